//! Unwound callers of a program that records its own: they must be complete and in order, with
//! `[unknown]` where a path cannot be unwound.

use calltap_e2e::{
    BARE, Build, GCC, Program, Resident, calltap_run, changed_text, compile, installed, matrix,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// The program's functions that identify a path; the others are the C library's.
const OWN: [&str; 14] = [
    "[unknown]",
    "main",
    "leaf",
    "middle",
    "jumps",
    "recursive",
    "large",
    "bare",
    "from_bare",
    "handler",
    "interrupted",
    "elsewhere",
    "coroutine",
    "thread",
];

/// Flags that keep symbols when the program is stripped.
const FLAGS: [&str; 2] = ["-rdynamic", "-pthread"];

fn program(build: &Build, flags: &[&str]) -> Program {
    compile(build, &["callers.c"], &[&FLAGS, flags].concat())
}

/// Compares the counts of each path, as printed by the program and by calltap.
fn check(program: &Program, flags: &[&str]) {
    let (answer, path) = (program.directory().join("answer"), program.path.to_string_lossy().into_owned());
    let answer = answer.to_string_lossy().into_owned();
    let words = [&["stacks", "leaf", "--json", "-o", &answer], flags, &["--", &path]].concat();
    let run = calltap_run(&words);
    let what = format!("{} {flags:?}", program.name);
    assert!(run.status.success(), "{what}: {}", run.stderr);
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for path in run.stdout.lines().filter_map(|line| line.strip_prefix("path ")) {
        *own.entry(path.to_owned()).or_default() += 1;
    }
    assert!(own.len() >= 8, "{what}: {}", run.stdout);
    let text = std::fs::read_to_string(&answer).expect("an answer");
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for path in answer["paths"].as_array().into_iter().flatten() {
        let names = path["path"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let names: Vec<&str> = names.filter(|name| OWN.contains(name)).collect();
        *found.entry(names.join(" ")).or_default() += path["calls"].as_u64().unwrap_or(0);
    }
    assert_eq!(found, own, "{what}: {answer}");
    assert_eq!((&answer["lost"], &answer["traced_callers_only"]), (&0.into(), &0.into()), "{what}");
}

#[test]
fn unwound_paths_equal_program_paths_in_every_build() {
    for build in matrix().map(|(_, build)| build).chain(installed(BARE)) {
        check(&program(build, &[]), &[]);
    }
}

#[test]
fn frame_pointers_lead_through_code_without_unwinding_information() {
    let flags = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for build in matrix().map(|(_, build)| build).filter(|build| ["gcc", "clang"].contains(&build.name)) {
        check(&program(build, &flags), &[]);
        // Where there is unwinding information, it describes the whole path.
        check(&program(build, &flags[..1]), &[]);
    }
}

#[test]
fn a_copy_that_ends_early_makes_a_path_unknown_and_not_another() {
    let program = program(installed(BARE).next().expect("a compiler"), &[]);
    let answer = calltap_run(&[
        "stacks",
        "leaf",
        "--json",
        "--stack-size",
        "64",
        "--",
        &program.path.to_string_lossy(),
    ]);
    assert!(answer.status.success(), "{}", answer.stderr);
    let text = answer.stdout.lines().skip_while(|line| !line.starts_with('{')).collect::<Vec<_>>().join("\n");
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let own = answer["paths"].as_array().into_iter().flatten();
    let recursive = own.filter(|path| {
        let names = path["path"].as_array().into_iter().flatten();
        path["path"][0] == "[unknown]"
            && names.skip(1).all(|name| ["recursive", "leaf"].contains(&name.as_str().unwrap_or("")))
    });
    assert_eq!(recursive.count(), 1, "{answer}");
}

#[test]
fn a_snapshot_has_the_callers_of_calls_that_were_made_before() {
    let program = compile(GCC, &["requests.c"], &[]);
    let resident = Resident::start(&program, &["forever"]);
    let (pid, trace) = (resident.pid.to_string(), program.directory().join("snapshot.calltap"));
    let trace = trace.to_string_lossy();
    let attached = calltap_run(&["attach", "-p", &pid, "-F", "disk", "-A", "disk@$callers"]);
    assert!(attached.status.success(), "{}", attached.stderr);
    let look = || {
        let snapshot = calltap_run(&["snapshot", "-p", &pid, "-o", &trace]);
        assert!(snapshot.status.success(), "{}", snapshot.stderr);
        let answer = calltap_run(&["stacks", "disk", "--json", "-i", &trace]);
        let answer: Option<Value> = serde_json::from_str(&answer.stdout).ok();
        // Until `disk` was called for the first time, there is no path.
        answer.filter(|answer| answer["unwound_calls"].as_u64() > Some(0))
    };
    let again = || {
        thread::sleep(Duration::from_millis(100));
        look()
    };
    let answer = (0..100).find_map(|_| again()).expect("calls of disk");
    for path in answer["paths"].as_array().expect("paths") {
        let names: Vec<&str> =
            path["path"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert!(names.ends_with(&["handle", "disk"]) && names.contains(&"work"), "{answer}");
        assert_ne!(names[0], "[unknown]", "{answer}");
    }
    let detached = calltap_run(&["detach", "-p", &pid]);
    assert!(detached.status.success(), "{}", detached.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

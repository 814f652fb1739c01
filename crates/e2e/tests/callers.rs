//! Callers that are unwound, of a program that notes its own: all of them and in order, and `[unknown]` where a path cannot be followed.

use calltap_e2e::{BARE, Build, Program, calltap_run, compile, installed, matrix};
use serde_json::Value;
use std::collections::BTreeMap;

/// Functions of the program by which a path is known: others are the C library's.
const OWN: [&str; 13] = [
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
    "thread",
];

/// With symbols that stripping leaves.
const FLAGS: [&str; 2] = ["-rdynamic", "-pthread"];

fn program(build: &Build, flags: &[&str]) -> Program {
    compile(build, &["callers.c"], &[&FLAGS, flags].concat())
}

/// How often each path is taken, as the program says, and as calltap does.
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
    assert!(own.len() >= 7, "{what}: {}", run.stdout);
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
fn paths_are_the_programs_own_however_it_was_built() {
    for build in matrix().map(|(_, build)| build).chain(installed(BARE)) {
        check(&program(build, &[]), &[]);
    }
}

#[test]
fn frame_pointers_lead_through_code_without_unwinding_information() {
    let flags = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for build in matrix().map(|(_, build)| build).filter(|build| ["gcc", "clang"].contains(&build.name)) {
        check(&program(build, &flags), &[]);
        // The unwinding information knows more where there is some.
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

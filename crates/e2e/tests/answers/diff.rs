//! `calltap diff` of recorded programs: its output and its exit codes.

use calltap_e2e::*;
use serde_json::Value;
use std::process::Command;

fn diff(a: &Recording, b: &Recording, flags: &[&str]) -> Run {
    let (a, b) = (a.trace.to_string_lossy(), b.trace.to_string_lossy());
    calltap_run(&[&["diff", &a, &b], flags].concat())
}

#[track_caller]
fn check(run: &Run, code: i32, says: &[&str]) {
    assert_eq!(run.status.code(), Some(code), "{}", run.stderr);
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), says.len(), "{}", run.stderr);
    for (line, says) in lines.iter().zip(says) {
        assert!(line.starts_with("calltap: ") && line.contains(says), "{says:?} is not in: {line}");
    }
}

fn timeline() -> Program {
    compile(GCC, &["timeline.c"], &[])
}

fn recorded(program: &Program, flags: &[&'static str]) -> Recording {
    record(program, flags, &Expect::default())
}

#[test]
fn conditions_decide_the_exit_code() {
    let (first, second) = (timeline(), timeline());
    let (a, b) = (recorded(&first, &[]), recorded(&second, &[]));
    check(&diff(&a, &b, &[]), 0, &[]);
    check(&diff(&a, &b, &["--fail-if", "calls(work)>1x", "--fail-if", "calls(*)>1000x"]), 0, &[]);
    let calls = diff(&a, &b, &["--fail-if", "calls(work)>=1"]);
    check(&calls, 3, &["work has 3 in A, 3 in B (1.00x)"]);
    // A single recording a side gives no evidence about times: neither that a condition is met, nor
    // that it is not.
    let lacks = "not enough evidence: 5 recordings a side are needed, A has 1 and B has 1";
    for condition in ["total(*)>1000x", "total(work)>0.000001x"] {
        let times = diff(&a, &b, &["--fail-if", condition]);
        check(&times, 4, &[&format!("{condition}: {lacks}"), "calltap record --repeat 5"]);
    }
    let both = diff(&a, &b, &["--fail-if", "calls(work)>=1", "--fail-if", "total(work)>1x"]);
    check(&both, 3, &["work has 3 in A", lacks, "--repeat 5"]);
    check(&diff(&a, &b, &["--fail-if", "calls(wrok_)>1x"]), 1, &["matches 'wrok_'"]);
    check(&diff(&a, &b, &["--fail-if", "calls(worm)>1x"]), 1, &["matches 'worm'; similar: work"]);
    check(&diff(&a, &b, &["--fail-if", "total(work)>5"]), 1, &["--fail-if: 'total(work)>5'"]);
    check(&diff(&a, &b, &["--paths", "--columns", "p99"]), 1, &["p99 is not kept by call path"]);
    check(&calltap_run(&["diff", "only-one"]), 1, &["two traces"]);
    check(&calltap_run(&["diff", "missing-1", "missing-2"]), 1, &["missing-1"]);
    assert_eq!(calltap_run(&["diff"]).status.code(), Some(1));
}

/// Records a program five times into `name.1` to `name.5` in its directory.
fn repeated(program: &Program, name: &str, arguments: &[&str]) -> Run {
    let output = program.directory().join(name);
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "--repeat", "5", "-o"]).arg(output).arg("--").arg(&program.path);
    command.args(arguments);
    run(command, b"")
}

#[test]
fn repeated_recordings_are_evidence() {
    let program = compile(GCC, &["paced_work.c"], &[]);
    let runs = repeated(&program, "a", &["500", "200"]);
    assert_eq!((runs.status.code(), runs.stdout.as_str()), (Some(0), "calls work 200\n".repeat(5).as_str()));
    assert!(repeated(&program, "b", &["500", "400"]).status.success());
    let path = |name: &str| program.directory().join(name).to_string_lossy().into_owned();
    let compare = |operands: &[String], flags: &[&str]| {
        let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
        calltap_run(&[&["diff"], flags, &operands].concat())
    };
    let globs = [path("a.*"), path("b.*")];
    let calls = "calls(work)>1.5x: work has 200 in A, 400 in B (2.00x)";
    check(&compare(&globs, &["--fail-if", "calls(work)>1.5x"]), 3, &[calls]);
    check(&compare(&globs, &["--fail-if", "p50(work)>1000000x"]), 0, &[]);
    let files = |name: &str| (1..=5).map(|n| path(&format!("{name}.{n}"))).collect::<Vec<_>>();
    let lists = [files("a"), vec!["--".to_owned()], files("b")].concat();
    check(&compare(&lists, &["--fail-if", "calls(work)>1.5x", "--fail-if", "calls(main)>1x"]), 3, &[calls]);
    let json: Value = serde_json::from_str(&compare(&globs, &["--json", "-F", "work"]).stdout).expect("JSON");
    assert_eq!(json["a"]["files"].as_array().map(Vec::len), Some(5));
    let work = &json["functions"][0];
    assert_eq!(work["calls"]["change"], serde_json::json!({ "low": 200.0, "high": 200.0 }));
    assert!(work["total_ns"]["change"]["low"].as_f64() < work["total_ns"]["change"]["high"].as_f64());
    check(&compare(&[path("c.*"), path("b.*")], &[]), 1, &["no file has such a name"]);
    check(&compare(&[files("a"), files("b")].concat(), &[]), 1, &["two traces, or several with several"]);
}

#[test]
fn a_run_that_fails_is_the_last() {
    let program = compile(GCC, &["paced_work.c"], &[]);
    let failed = repeated(&program, "failing", &[]);
    check(&failed, 2, &["run 1 of 5 failed: calltap does not make the other runs"]);
    let exists = |n: u32| program.directory().join(format!("failing.{n}")).exists();
    assert_eq!([exists(1), exists(2)], [true, false]);
    let attached = calltap_run(&["record", "--repeat", "2", "-p", "1"]);
    check(&attached, 1, &["--repeat needs '-- PROGRAM'"]);
}

#[test]
fn calls_are_the_same_in_every_recording_and_with_every_clock() {
    let program = timeline();
    let a = recorded(&program, &[]);
    for flags in [&[][..], &["--clock", "counter"], &["--clock", "coarse"], &["--tracer", "function"]] {
        let other = timeline();
        let b = recorded(&other, flags);
        let run = diff(&a, &b, &["--json"]);
        check(&run, 0, &[]);
        let json: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(json["calltap_diff"], 1);
        assert_eq!(
            json["restriction"] == Value::Null,
            !flags.contains(&"--clock"),
            "{}",
            json["restriction"]
        );
        let functions = json["functions"].as_array().expect("a list");
        assert!(!functions.is_empty());
        for function in functions {
            assert_eq!(function["calls"]["a"], function["calls"]["b"], "{flags:?}: {function}");
        }
    }
    let other = timeline();
    let run = diff(&a, &recorded(&other, &["--clock", "counter"]), &["--fail-if", "total(work)>1x"]);
    check(&run, 1, &["B has no times"]);
}

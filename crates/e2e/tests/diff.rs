//! `calltap diff` of recorded programs: what it says, and its exit codes.

use calltap_e2e::*;
use serde_json::Value;

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
    // The processor may be taken away for seconds from a call that takes nanoseconds.
    check(&diff(&a, &b, &["--fail-if", "calls(work)>1x", "--fail-if", "total(*)>1000000000000x"]), 0, &[]);
    let both = diff(&a, &b, &["--fail-if", "calls(work)>=1", "--fail-if", "total(work)>0.000001x"]);
    check(&both, 3, &["work has 3 in A, 3 in B (1.00x)", "total(work)"]);
    check(&diff(&a, &b, &["--fail-if", "calls(wrok_)>1x"]), 1, &["matches 'wrok_'"]);
    check(&diff(&a, &b, &["--fail-if", "calls(worm)>1x"]), 1, &["matches 'worm'; similar: work"]);
    check(&diff(&a, &b, &["--fail-if", "total(work)>5"]), 1, &["--fail-if: 'total(work)>5'"]);
    check(&diff(&a, &b, &["--paths", "--columns", "p99"]), 1, &["p99 is not kept by call path"]);
    check(&calltap_run(&["diff", "only-one"]), 1, &["two traces"]);
    check(&calltap_run(&["diff", "missing-1", "missing-2"]), 1, &["missing-1"]);
    assert_eq!(calltap_run(&["diff"]).status.code(), Some(2));
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

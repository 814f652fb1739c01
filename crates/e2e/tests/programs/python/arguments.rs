//! Arguments of Python functions: what is recorded is what the program prints of them.

use super::{Interpreter, interpreters, script};
use calltap_e2e::*;
use serde_json::Value;

/// Returns the arguments of the calls of a function, in order.
pub(super) fn arguments(trace: &str, function: &str) -> Vec<Value> {
    let run = calltap_run(&["replay", "--json", "-i", trace]);
    assert!(run.status.success(), "{}", run.stderr);
    let events = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of = |event: &Value| {
        event["event"] == "entry" && event["function"].as_str().is_some_and(|name| name.ends_with(function))
    };
    events.filter(of).map(|event| event["arguments"].clone()).collect()
}

#[test]
fn arguments_are_those_that_the_program_prints() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    let script = script("arguments.py");
    for Interpreter { minor, path } in interpreters {
        let command =
            ["--python", "__main__.*", "-F", "PyObject_Repr", "--", path.to_str().expect("a path"), &script];
        let rules = ["-A", "__main__.show", "-A", "__main__.*named@b,c", "-A", "__main__.cell*@kept"];
        let run = calltap_run(&[&["record", "-q", "-o", &trace], &rules[..], &command].concat());
        assert!(run.status.success(), "3.{minor}: {}", run.stderr);
        let printed = |start: &str| -> Vec<Value> {
            let lines = run.stdout.lines().filter_map(|line| line.strip_prefix(start));
            lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
        };
        let shown = arguments(&trace, ".show");
        assert!(shown.len() > 30, "3.{minor}");
        assert_eq!(shown, printed("show "), "3.{minor}");
        assert_eq!(arguments(&trace, ".named"), printed("named "), "3.{minor}");
        // Up to 3.10 a parameter that an inner function uses is not in the frame any more.
        let kept = if minor < 11 { Value::Null } else { 5.into() };
        assert_eq!(arguments(&trace, ".cell"), [serde_json::json!({ "kept": kept })], "3.{minor}");
        let run = calltap_run(&[&["record", "-q", "-A", "__main__.show@a/x"], &command[..]].concat());
        one_line(&run, &["'a/x' is no parameter's name"]);
    }
}

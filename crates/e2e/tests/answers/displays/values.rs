//! The page of `calltap view` shows arguments and results of calls.

use super::view::{View, browser, drive};
use calltap_e2e::{GCC, Run, calltap, calltap_run, compile, run_timeout};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

#[test]
fn arguments_and_results_are_those_of_the_call_that_is_chosen() {
    let program = compile(GCC, &["paced.c"], &["-g"]);
    let path = program.directory().join("values.data").display().to_string();
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-A", "leaf", "-R", "leaf", "-o", &path, "--"]).arg(&program.path);
    let recorded = run_timeout(command, b"", Duration::from_secs(60));
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let view = View::of_file(&path);
    let of = |function: &str| {
        let all = view.get("api/functions");
        let row = all.as_array().and_then(|rows| rows.iter().find(|row| row[1] == function).cloned());
        row.expect("a function")[0].clone()
    };
    let (leaf, nap) = (of("leaf"), of("nap"));
    assert_eq!(view.get(&format!("api/function?f={nap}"))["values"], false);
    let function = view.get(&format!("api/function?f={leaf}"));
    assert_eq!(function["values"], true);
    let slowest = function["slowest"].as_array().expect("calls");
    assert!(slowest.len() > 10, "{function}");
    for call in slowest {
        let (thread, start, depth) = (&call[0], &call[1], &call[3]);
        let values = view.get(&format!("api/values?f={leaf}&thread={thread}&start={start}&depth={depth}"));
        let number = |value: &Value| value.as_str().and_then(|text| text.parse::<i64>().ok());
        let (given, returned) = (number(&values["arguments"][0][1]), number(&values["results"][0][1]));
        assert!(given.is_some() && returned == given.map(|given| given + 1), "{call} {values}");
    }
    assert_eq!(view.get(&format!("api/values?f={leaf}&thread=0&start=1&depth=9")), Value::Null);
    // Debugging information has the source line of a function.
    let source = view.get(&format!("api/source?f={leaf}"));
    let line = std::fs::read_to_string(calltap_e2e::source("paced.c")).expect("its source");
    let line = 1 + line.lines().position(|line| line.contains("long leaf(")).expect("leaf");
    assert!(
        source.as_str().is_some_and(|text| text.ends_with(&format!("paced.c:{line}"))),
        "{source} {line}"
    );
    let page = program.directory().join("page.html").display().to_string();
    assert!(calltap_run(&["view", &path, "--save", &page]).status.success());
    if let Some(browser) = browser() {
        for address in [view.address.clone(), format!("file://{page}")] {
            let mut command = drive(&address, browser, "values");
            command.env("TMPDIR", program.directory());
            let Run { status, stdout, stderr } = run_timeout(command, b"", Duration::from_secs(200));
            assert!(status.success(), "{address}: {stdout}{stderr}");
        }
    }
    assert!(view.end().success());
}

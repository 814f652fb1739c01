//! Runs the examples.

use std::process::Command;

/// Runs an example, and returns what it prints; `None` if it is not built.
#[track_caller]
fn output_of(name: &str) -> Option<String> {
    let own = std::env::current_exe().expect("this test");
    let example = own.ancestors().nth(2).expect("the build's directory").join("examples").join(name);
    if !example.exists() {
        println!("SKIPPED: the example {name} is not built: cargo test -p calltap --features tracing");
        return None;
    }
    let output = Command::new(example).output().expect("run");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    Some(said.into_owned())
}

#[track_caller]
fn check(name: &str, expected: &[&str]) {
    let Some(said) = output_of(name) else { return };
    expected.iter().for_each(|line| assert!(said.lines().any(|own| own == *line), "no '{line}' in\n{said}"));
}

#[test]
fn durations_are_measured() {
    let handle = "durations::Server::handle: 3 calls, longest at least 10 ms";
    check("durations", &["sum 156", handle, "durations::parse: 3 calls, longest less than 10 ms"]);
}

#[test]
fn a_program_watches_itself() {
    check("trace_self", &["   6  trace_self::parse", "   3  calls that both ops saw"]);
}

#[test]
fn spans_and_calls_are_on_one_timeline() {
    let Some(said) = output_of("timeline") else { return };
    for (name, category) in [
        ("request", "span"),
        ("parsing", "span"),
        ("timeline::parse", "function"),
        ("timeline::store", "function"),
    ] {
        let event = format!("\"cat\":\"{category}\",\"name\":\"{name}\"");
        assert_eq!(said.matches(&event).count(), 3, "{event}: {said}");
    }
}

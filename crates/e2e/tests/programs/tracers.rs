//! Several tracers at the same time, each with its own functions, in a running process.

use calltap_e2e::{GCC, Program, Resident, calltap_run, changed_text, compile, kill, plain, succeeds};
use std::thread;
use std::time::{Duration, Instant};

fn program() -> Program {
    compile(GCC, &["resident.c"], &[])
}

/// Runs a command on the process, which must succeed, and returns its output.
fn on(resident: &Resident, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let pid = resident.pid.to_string();
    let run = calltap_run(&[&words[..], &["-p", &pid]].concat());
    assert!(run.status.success(), "{command}: {}", run.stderr);
    run.stdout
}

/// Waits until calls of a function have been counted.
fn await_profile(resident: &Resident, function: &str) -> String {
    let start = Instant::now();
    loop {
        let table = on(resident, "get trace_stat/function0");
        if table.contains(function) || start.elapsed() > Duration::from_secs(60) {
            return table;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_second_tracer_with_functions_of_its_own() {
    let program = program();
    let mut resident = Resident::start(&program, &["counted"]);
    assert_eq!(on(&resident, "attach --tracer nop"), "");
    assert_eq!(on(&resident, "get current_tracer function_tracers enabled_functions"), "nop\n");
    on(&resident, "put current_tracer function_graph");
    on(&resident, "put function_profile_enabled 1");
    assert_eq!(on(&resident, "get function_tracers"), "trace\n*trace_profile\n");
    on(&resident, "put set_ftrace_filter outer");
    on(&resident, "put function_tracers trace");
    on(&resident, "put set_ftrace_filter work");
    assert_eq!(on(&resident, "get set_ftrace_filter"), "[ trace] work\n[ trace_profile] outer\n");
    assert_eq!(
        on(&resident, "get enabled_functions").lines().filter(|line| line.ends_with("(1)")).count(),
        2
    );
    resident.tell();
    resident.wait_for("done");
    let table = await_profile(&resident, "outer");
    let rows: Vec<Vec<&str>> = table.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 1, "{table}");
    assert_eq!(rows[0][..2], ["outer", "12345"], "{table}");
    // Two tracers trace one function: one patched site, two users.
    on(&resident, "put --append set_ftrace_filter outer");
    assert!(on(&resident, "get enabled_functions").contains("outer (2)"));
    // The sums stay when the tracer is disabled, and are reset when it is enabled again.
    on(&resident, "put function_profile_enabled 0");
    assert!(on(&resident, "get trace_stat/function0").contains("outer"));
    on(&resident, "put function_profile_enabled 1");
    assert_eq!(on(&resident, "get trace_stat/function0").lines().count(), 2);
    on(&resident, "put current_tracer nop");
    on(&resident, "put function_profile_enabled 0");
    assert_eq!(on(&resident, "get enabled_functions"), "");
    on(&resident, "detach");
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn profile_is_visible_during_recording() {
    let program = program();
    let mut resident = Resident::start(&program, &["counted"]);
    let mut calltap =
        resident.attach_beside(&["--tracer", "profile", "--tracer", "function:absent", "--later"]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("done");
    let table = on(&resident, "stat --format csv");
    assert!(table.contains("outer,") && table.contains(",12345,12345,"), "{table}");
    let refused = calltap_run(&["put", "current_tracer", "nop", "-p", &resident.pid.to_string()]);
    assert!(!refused.status.success() && refused.stderr.contains("tracers stay"), "{}", refused.stderr);
    kill(calltap.id(), libc::SIGINT);
    succeeds(&mut calltap);
    assert!(resident.end().0.success());
}

#[test]
fn thirty_two_tracers_and_no_more() {
    let program = compile(GCC, &["tail.c"], &[]);
    let mut flags = vec!["--tracer"; 64];
    for (n, flag) in flags.iter_mut().skip(1).step_by(2).enumerate() {
        *flag = ["function", "function_graph", "profile"][n % 3];
    }
    calltap_e2e::check(&program, &[flags.clone()], &calltap_e2e::Expect::default());
    calltap_e2e::check(&program, &plain(), &calltap_e2e::Expect::default());
    flags.extend(["--tracer", "function"]);
    let run = calltap_run(&[&["record"], &flags[..], &["--", "true"]].concat());
    assert!(!run.status.success() && run.stderr.contains("at most 32 tracers"), "{}", run.stderr);
}

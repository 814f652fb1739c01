//! Attaching to programs that limit themselves, or whose threads are created by the C library.

use calltap_e2e::*;

fn check(build: &Build, how: &str) -> String {
    let program = compile(build, &["hardened.c"], &["-lrt"]);
    let mut resident = Resident::start(&program, &[how]);
    let tolerate = Tolerate { changes: &["Threads", "SigBlk"], ..Tolerate::default() };
    attach_and_look(&mut resident, 6, tolerate);
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{how}: {status} {output}{errors}");
    for line in output.lines().filter_map(|line| line.strip_prefix("SKIPPED: ")) {
        eprintln!("NOT HERE: {line}");
    }
    output
}

#[test]
fn memory_that_may_not_become_executable_is_no_hindrance() {
    for build in [GCC, &BUILDS[1], &PLACED[0]] {
        check(build, "mdwe");
    }
}

#[test]
fn timers_that_start_threads_tick_on() {
    let output = check(GCC, "timer");
    assert!(output.contains("ticked 1, wrong 0"), "{output}");
}

#[test]
fn a_user_namespace_can_be_entered_while_attached() {
    let program = compile(GCC, &["hardened.c"], &["-lrt"]);
    let mut resident = Resident::start(&program, &["namespace"]);
    let alone = {
        let mut alone = Resident::start(&program, &["namespace"]);
        alone.tell();
        alone.wait_for("unshare")
    };
    let pid = resident.pid.to_string();
    assert!(calltap_run(&["attach", "-p", &pid]).status.success());
    resident.tell();
    assert_eq!(resident.wait_for("unshare"), alone);
    resident.wait_for("done 55");
    let run = calltap_run(&["detach", "-p", &pid]);
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

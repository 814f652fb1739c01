//! Attaching that ends suddenly: calltap is killed, the program execs another, two attach at once.

use calltap_e2e::*;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

#[test]
#[ignore = "long: takes a minute"]
fn a_process_that_becomes_another_program_goes_on() {
    let program = compile(GCC, &["resident.c"], &[]);
    for pause in [0, 5, 15, 25, 40, 100] {
        let mut resident = Resident::start(&program, &["exec"]);
        let mut calltap = resident.attach_beside(&["--duration", "60ms"]);
        thread::sleep(Duration::from_millis(pause));
        resident.tell();
        resident.wait_for("replaced");
        let _ = calltap.wait();
        assert_eq!(changed_text(resident.pid), [""; 0], "after {pause} ms");
        let (status, output, errors) = resident.end();
        assert_eq!(status.code(), Some(9), "after {pause} ms: {status} {output}{errors}");
    }
}

#[test]
#[ignore = "long: at random"]
fn program_survives_recorder_killed_at_any_time() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut seed = 12345u32;
    for how in ["counted", "churn", "busy"] {
        for _ in 0..6 {
            let mut resident = Resident::start(&program, &[how]);
            for _ in 0..4 {
                seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
                let mut calltap = resident.attach_beside(&["--duration", "5ms"]);
                thread::sleep(Duration::from_micros(u64::from(seed >> 8) % 30_000));
                let _ = calltap.kill();
                let _ = calltap.wait();
                resident.tell();
            }
            assert!(resident.runs(), "{how}");
            let (status, output, errors) = resident.end();
            assert!(status.success(), "{how}: {status} {output}{errors}");
        }
    }
}

#[test]
fn program_survives_recorder_killed_at_any_system_call() {
    every_call_kills(&["record", "-q", "--duration", "5ms", "-o", "/dev/null"], &[1, 2, 3, 5, 8, 13, 21, 34]);
}

#[test]
fn killed_at_any_system_call_attach_leaves_nothing_that_detach_cannot_remove() {
    every_call_kills(&["attach"], &[1, 2, 3, 4, 5, 6, 8, 13]);
}

/// Kills a command at system calls by which it changes a process, and detaches.
fn every_call_kills(command: &[&str], times: &[u32]) {
    if !have("strace") {
        return;
    }
    let program = compile(GCC, &["resident.c"], &[]);
    for call in ["ptrace", "pwrite64", "wait4"] {
        for when in times {
            let mut resident = Resident::start(&program, &["counted"]);
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
            strace.args(["-e", &format!("inject={call}:signal=SIGKILL:when={when}")]);
            strace.arg(calltap_e2e::calltap()).args(command).args(["-p", &resident.pid.to_string()]);
            let killed = run(strace, b"");
            resident.tell();
            resident.wait_for("done");
            // Whether or not there was a session, nothing is left afterwards.
            let left = calltap_run(&["detach", "-p", &resident.pid.to_string()]);
            assert!(!left.stderr.contains("panicked"), "{call} {when}: {}", left.stderr);
            assert_eq!(changed_text(resident.pid), [""; 0], "{call} {when}: {}", left.stderr);
            let (status, output, errors) = resident.end();
            assert!(status.success(), "{call} {when}: {status} {output}{errors}");
            if killed.status.success() {
                // The command makes fewer such calls.
                break;
            }
        }
    }
}

#[test]
fn set_completes_change_of_killed_set() {
    if !have("strace") {
        return;
    }
    let program = compile(GCC, &["resident.c"], &[]);
    for when in [1, 2, 3, 4, 5, 6, 8, 10, 13] {
        let mut resident = Resident::start(&program, &["busy"]);
        let pid = resident.pid.to_string();
        assert!(calltap_run(&["attach", "-p", &pid]).status.success());
        let set = ["set", "-p", &pid, "--tracer", "function"];
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=ptrace", "-e"]);
        strace.arg(format!("inject=ptrace:signal=SIGKILL:when={when}")).arg(calltap_e2e::calltap()).args(set);
        let _ = run(strace, b"");
        let again = calltap_run(&set);
        assert!(again.status.success(), "{when}: {}", again.stderr);
        assert!(resident.runs(), "{when}");
        let taken = calltap_run(&["snapshot", "-p", &pid, "-o", resident.trace().to_str().unwrap()]);
        assert!(taken.status.success(), "{when}: {}", taken.stderr);
        let left = calltap_run(&["detach", "-p", &pid]);
        assert!(left.status.success(), "{when}: {}", left.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{when}");
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{when}: {status} {output}{errors}");
    }
}

#[test]
#[ignore = "long: under stress"]
fn concurrent_recorders_leave_program_intact() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["busy"]);
    for _ in 0..6 {
        let mut both = [
            resident.attach_beside(SHORT),
            resident.attach_beside(&["--duration", "10ms", "-o", "/dev/null"]),
        ];
        both.iter_mut().for_each(|one| drop(one.wait()));
        assert!(resident.runs());
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

/// The reader of calltap's output has ended.
#[test]
fn detach_works_with_closed_stderr() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let (pid, trace) = (resident.pid.to_string(), resident.trace());
    let trace = trace.to_string_lossy();
    let alone = program.path.to_string_lossy();
    for arguments in [
        &["record", "-o", &trace, "-p", &pid, "--duration", "50ms"][..],
        &["count", "work", "-p", &pid, "--duration", "50ms"],
        &["record", "-o", &trace, "--", &alone],
    ] {
        let mut command = Command::new(calltap());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut calltap = command.spawn().expect("calltap");
        drop(calltap.stderr.take());
        assert!(ends_within(&mut calltap, HANGS).is_some_and(|status| status.success()), "{arguments:?}");
        assert_eq!(changed_text(resident.pid), [""; 0], "{arguments:?}");
    }
    assert!(resident.runs() && resident.end().0.success());
}

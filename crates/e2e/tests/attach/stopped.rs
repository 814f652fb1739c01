//! Programs that a stop signal has stopped: calltap works on them and leaves them stopped, until
//! SIGCONT lets them go on.

use calltap_e2e::*;
use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

/// Whether all threads are stopped by a signal, and no longer by a tracer.
fn is_stopped(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states: Vec<String> =
        tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default()).collect();
    !states.is_empty()
        && states
            .iter()
            .all(|text| text.contains("\nState:\tT (stopped)\n") && text.contains("\nTracerPid:\t0\n"))
}

fn stop(resident: &Resident) {
    kill(resident.pid, libc::SIGSTOP);
    await_that("it is stopped", || is_stopped(resident.pid));
}

/// Lets a stopped program go on, which must then work and end as if untraced.
fn goes_on_after(resident: Resident, what: &str) {
    let pid = resident.pid;
    assert!(is_stopped(pid), "{what}: it is still stopped");
    kill(pid, libc::SIGCONT);
    await_that("it goes on", || !is_stopped(pid));
    assert_eq!(changed_text(pid), [""; 0], "{what}");
    resident.await_work(Duration::from_millis(20));
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{what}: {status} {output}{errors}");
}

/// Runs `calltap COMMAND -p PID`, which must leave the program stopped.
fn works(resident: &Resident, command: &[&str]) {
    let pid = resident.pid.to_string();
    let run = calltap_run(&[command, &["-p", &pid]].concat());
    assert!(run.status.success() && !run.stderr.contains("left behind"), "{command:?}: {}", run.stderr);
    assert!(is_stopped(resident.pid), "{command:?} leaves it stopped");
}

fn check(build: &Build, how: &str, work: impl Fn(&Resident)) {
    let program = compile(build, &["resident.c"], &[]);
    let resident = Resident::start(&program, &[how]);
    work(&resident);
    goes_on_after(resident, &format!("{} {how}", build.name));
}

/// Ends a recorder as Ctrl-C does.
fn interrupt(recorder: &mut Child) {
    kill(recorder.id(), libc::SIGINT);
    succeeds(recorder);
}

#[test]
fn detach_works_on_program_stopped_during_recording() {
    for (build, how) in [(GCC, "busy"), (&BARE[0], "busy"), (&BARE[0], "churn")] {
        check(build, how, |resident| {
            let mut recorder = resident.attach_beside(&[]);
            resident.await_recorder();
            stop(resident);
            works(resident, &["set", "--off"]);
            works(resident, &["set", "--on"]);
            interrupt(&mut recorder);
            assert_eq!(changed_text(resident.pid), [""; 0], "while it is stopped");
            resident.sound();
        });
    }
}

#[test]
fn a_program_that_is_stopped_at_any_moment_of_attaching_and_detaching_goes_on() {
    for pause in (0..16).step_by(2) {
        check(&BARE[0], "busy", |resident| {
            let mut recorder = resident.attach_beside(&["--duration", "2ms"]);
            thread::sleep(Duration::from_millis(pause * 4));
            stop(resident);
            let _ = recorder.wait();
            assert!(is_stopped(resident.pid), "after {pause}");
            calltap_run(&["detach", "-p", &resident.pid.to_string()]);
        });
    }
}

#[test]
fn a_stopped_program_is_changed_copied_and_detached_from() {
    for (build, how) in [(GCC, "busy"), (&BARE[0], "busy"), (&BARE[0], "churn")] {
        check(build, how, |resident| {
            let attached = calltap_run(&["attach", "-p", &resident.pid.to_string()]);
            assert!(attached.status.success(), "{}", attached.stderr);
            stop(resident);
            works(resident, &["set", "--tracer", "function"]);
            works(resident, &["set", "-N", "work"]);
            works(resident, &["snapshot", "-o", &resident.trace().to_string_lossy()]);
            works(resident, &["detach"]);
            assert_eq!(changed_text(resident.pid), [""; 0], "while it is stopped");
        });
    }
}

#[test]
fn detach_cleans_stopped_program_after_killed_calltap() {
    for stopped_first in [false, true] {
        check(&BARE[0], "busy", |resident| {
            let mut recorder = resident.attach_beside(&[]);
            resident.await_recorder();
            if stopped_first {
                stop(resident);
            }
            recorder.kill().expect("a child of this process");
            let _ = recorder.wait();
            stop(resident);
            works(resident, &["detach"]);
            assert_eq!(changed_text(resident.pid), [""; 0], "while it is stopped");
        });
    }
}

#[test]
fn a_program_that_goes_on_while_calltap_detaches_goes_on() {
    for pause in (0..12).step_by(2) {
        let program = compile(&BARE[0], &["resident.c"], &[]);
        let resident = Resident::start(&program, &["busy"]);
        let mut recorder = resident.attach_beside(&[]);
        resident.await_recorder();
        stop(&resident);
        kill(recorder.id(), libc::SIGINT);
        thread::sleep(Duration::from_millis(pause));
        kill(resident.pid, libc::SIGCONT);
        succeeds(&mut recorder);
        resident.await_work(Duration::from_millis(20));
        assert_eq!(changed_text(resident.pid), [""; 0], "after {pause} ms");
        let (status, output, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "after {pause} ms: {status} {output}{errors}");
    }
}

/// Whether a tracer has stopped one of the threads.
fn is_held(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
    states.into_iter().any(|text| text.contains("\nState:\tt (tracing stop)\n"))
}

/// Ctrl-Z at a calltap that holds the program takes effect when the program runs again.
#[test]
fn a_program_is_not_held_by_a_calltap_that_is_suspended() {
    let program = compile(&BARE[0], &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    let (pid, mut suspended) = (resident.pid, 0);
    for _ in 0..200 {
        let mut recorder = resident.attach_beside(&["-F", "work", "--duration", "20ms"]);
        let mut has_ended = || recorder.try_wait().expect("a child of this process").is_some();
        while !is_held(pid) && !has_ended() {}
        kill(recorder.id(), libc::SIGTSTP);
        thread::sleep(Duration::from_millis(100));
        if is_stopped(recorder.id()) {
            suspended += 1;
            await_that("the program runs", || !is_held(pid));
        }
        kill(recorder.id(), libc::SIGCONT);
        succeeds(&mut recorder);
        if suspended == 10 {
            break;
        }
    }
    assert_eq!(suspended, 10, "calltap was suspended while it held the program");
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{status} {output}{errors}");
}

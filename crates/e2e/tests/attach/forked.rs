//! Children that a process forks while calltap is attached: their ids are understood, also when
//! that process has ended.

use calltap_e2e::*;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Makes the program fork, and returns the child's id.
fn forks(resident: &mut Resident) -> u32 {
    resident.tell();
    resident.wait_for("child").trim().parse().expect("a process id")
}

/// Attaches to another process, which removes the files of sessions that no process has.
fn attach_elsewhere(program: &Program) {
    let other = Resident::start(program, &["leaves"]);
    let run = other.attach(&["--duration", "10ms"]);
    assert!(run.status.success(), "{}", run.stderr);
}

/// Detaches from a child, which must then be as before.
fn is_detached_from(child: u32, what: &str) {
    let run = calltap_run(&["detach", "-p", &child.to_string()]);
    assert!(run.status.success(), "{what}: {}", run.stderr);
    assert_eq!(changed_text(child), [""; 0], "{what}");
}

fn ends_well(resident: Resident, what: &str) {
    let (status, output, errors) = resident.end();
    assert!(status.success() && output.contains("end 0"), "{what}: {status} {output}{errors}");
}

#[test]
fn child_of_a_process_that_has_ended_is_detached_from() {
    let program = compile(&BARE[0], &["forks_away.c"], &[]);
    for how in ["rests", "works"] {
        let mut resident = Resident::start(&program, &["leaves", how]);
        let attached = calltap_run(&["attach", "-p", &resident.pid.to_string()]);
        assert!(attached.status.success(), "{how}: {}", attached.stderr);
        let child = forks(&mut resident);
        attach_elsewhere(&program);
        let status = calltap_run(&["status", "-p", &child.to_string()]);
        assert!(status.stderr.contains("has ended: 'calltap detach'"), "{how}: {}", status.stderr);
        is_detached_from(child, how);
        ends_well(resident, how);
    }
}

#[test]
fn child_that_outlives_a_started_program_is_detached_from() {
    let program = compile(&BARE[0], &["forks_away.c"], &[]);
    for how in ["rests", "works"] {
        let mut command = Command::new(calltap());
        command.args(["record", "-o", "/dev/null", "--"]).arg(&program.path).args(["leaves", how]);
        let mut resident = Resident::spawn(command, program.directory().to_owned());
        resident.wait_for("ready");
        let child = forks(&mut resident);
        let start = Instant::now();
        while resident.runs() {
            assert!(start.elapsed() < Duration::from_secs(30), "{how}: the recording does not end");
            thread::sleep(Duration::from_millis(10));
        }
        attach_elsewhere(&program);
        is_detached_from(child, how);
        let (status, output, errors) = resident.end();
        assert!(status.success() && output.contains("end 0"), "{how}: {status} {output}{errors}");
        let told = format!("-{child} goes on, and is no longer recorded");
        assert!(errors.contains(&told), "{how}: {errors}");
    }
}

#[test]
fn a_process_that_executes_another_program_is_no_longer_recorded() {
    let program = compile(&BARE[0], &["executes.c"], &[]);
    for command in [&["record", "-o", "/dev/null"][..], &["top"], &["count", "work"]] {
        let mut resident = Resident::start(&program, &[]);
        let pid = resident.pid.to_string();
        let mut beside = Command::new(calltap());
        beside.args(command).args(["-p", &pid]).stdout(Stdio::null()).stderr(Stdio::piped());
        let beside = beside.spawn().expect("calltap");
        resident.await_recorder();
        resident.tell();
        let run = beside.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.contains("has executed another program (executes), which is not traced"), "{said}");
        assert!(run.status.success(), "{command:?}: {said}");
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{command:?}: {status} {output}{errors}");
    }
}

#[test]
fn calls_of_a_child_are_within_the_limit_of_a_resting_parent() {
    let program = compile(&BARE[0], &["forks_away.c"], &[]);
    let mut resident = Resident::start(&program, &["stays", "busy"]);
    let mut calltap = resident.attach_beside_within("5%", &[]);
    resident.await_recorder();
    let child = forks(&mut resident);
    wait_until("the child's processor time", || used(child) > Duration::from_millis(500));
    kill(calltap.id(), libc::SIGINT);
    succeeds(&mut calltap);
    let disabled = &resident.view("info")["disabled_by_limit"];
    assert!(disabled.to_string().contains("work"), "{disabled}");
    ends_well(resident, "busy");
}

#[test]
fn child_of_a_process_names_that_process() {
    let program = compile(&BARE[0], &["forks_away.c"], &[]);
    let mut resident = Resident::start(&program, &["stays", "works"]);
    let attached = calltap_run(&["attach", "-p", &resident.pid.to_string()]);
    assert!(attached.status.success(), "{}", attached.stderr);
    let (child, expected) =
        (forks(&mut resident).to_string(), format!("it was forked by process {}", resident.pid));
    for words in [&["status"][..], &["set", "-F", "work"], &["snapshot", "-o", "/dev/null"], &["detach"]] {
        let run = calltap_run(&[words, &["-p", &child]].concat());
        assert!(!run.status.success() && run.stderr.contains(&expected), "{words:?}: {}", run.stderr);
    }
    is_detached_from(resident.pid, "the first process");
    assert_eq!(changed_text(child.parse().expect("an id")), [""; 0]);
    ends_well(resident, "the first process");
}

//! A killed `calltap record -- PROGRAM`: its session is found by the program's id, and the program
//! is restored.

use calltap_e2e::*;
use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Starts a recorder with a program.
fn start(program: &Program) -> Resident {
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o", "/dev/null", "--"]).arg(&program.path).arg("counted");
    Resident::spawn(command, program.directory().to_owned())
}

/// Returns the program that a recorder has started.
fn child(recorder: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", recorder)).unwrap_or_default();
    children.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a program")
}

/// Kills the recorder. After `command` the program's text must be as in its file, and the program
/// must run on.
fn check(build: &'static Build, command: &[&str]) {
    let program = compile(build, &["resident.c"], &[]);
    let mut recorder = start(&program);
    recorder.wait_for("ready");
    let pid = child(recorder.pid);
    let what = format!("{} {command:?}", program.name);
    assert_ne!(changed_text(pid), [""; 0], "{what}: nothing is traced");
    recorder.kill();
    while recorder.runs() {
        thread::sleep(Duration::from_millis(5));
    }
    // Another calltap removes the remains of ended sessions, but not those of a session whose
    // program runs.
    assert!(calltap_run(&["record", "-q", "-o", "/dev/null", "--", "true"]).status.success());
    let pid_word = pid.to_string();
    let status = calltap_run(&["status", "-p", &pid_word]);
    one_line(&status, &["has ended without detaching", "calltap detach"]);
    let run = calltap_run(&[command, &["-p", &pid_word]].concat());
    assert!(run.status.success(), "{what}: {}", run.stderr);
    assert_eq!(changed_text(pid), [""; 0], "{what}: {}", run.stderr);
    let again = calltap_run(&["status", "-p", &pid_word]);
    one_line(&again, &["not attached"]);
    recorder.tell();
    recorder.wait_for("done");
    recorder.end();
}

#[test]
fn detach_finds_the_session_of_a_killed_recorder() {
    for build in [GCC, &BARE[0], &PLACED[0], &BARE_PLACED[0]] {
        check(build, &["detach"]);
    }
}

#[test]
fn record_finds_the_session_of_a_killed_recorder() {
    for build in [GCC, &BARE_PLACED[0]] {
        check(build, &["record", "-q", "--duration", "20ms", "-o", "/dev/null"]);
    }
}

/// Makes this process the parent of orphaned descendants, so that it learns how they end.
fn adopt_orphans() {
    rustix::process::set_child_subreaper(Some(getpid())).expect("orphans are adopted");
}

/// Returns the signal that has ended a child.
fn ended_by(pid: u32) -> Option<i32> {
    let child = Pid::from_raw(pid as i32).expect("a process id");
    let (found, status) = waitpid(Some(child), WaitOptions::empty()).expect("a child").expect("its end");
    assert_eq!(found, child);
    status.terminating_signal()
}

/// Returns the processes that run a program.
fn running(program: &Program) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program.path))
        .collect()
}

// A forked child waits until the recorder traces it (PTRACE_SEIZE). If the recorder is killed
// before that, the child must end instead of waiting.
#[test]
fn recorder_killed_after_fork_leaves_no_stopped_program() {
    let program = compile(&PLACED[0], &["resident.c"], &[]);
    for round in 0..60 {
        let mut recorder = start(&program);
        let children = format!("/proc/{0}/task/{0}/children", recorder.pid);
        while recorder.runs() && fs::read_to_string(&children).is_ok_and(|children| children.is_empty()) {}
        recorder.kill();
        while recorder.runs() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(30));
        for pid in running(&program) {
            let stands = matches!(state(pid), Some('t' | 'T'));
            kill(pid, libc::SIGKILL);
            assert!(!stands, "{round}: {pid} stands still");
        }
    }
}

// A static program is traced for its first moments: a recorder killed in that time could leave it
// stopped for ever.
#[test]
fn recorder_killed_during_start_leaves_no_stopped_program() {
    adopt_orphans();
    for build in [&PLACED[0], &BARE_PLACED[0]] {
        let program = compile(build, &["resident.c"], &[]);
        for step in 0..40u64 {
            let mut recorder = start(&program);
            thread::sleep(Duration::from_micros(step * 700));
            recorder.kill();
            while recorder.runs() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(20));
            // A child that was killed before it began counts as never started.
            for pid in
                running(&program).into_iter().filter(|pid| state(*pid).is_some_and(|state| state != 'Z'))
            {
                assert!(
                    !matches!(state(pid), Some('t' | 'T')),
                    "{} {step}: {pid} stands still",
                    program.name
                );
                // The signal that ends the program with its recorder may be pending.
                if !recorder.says("ready") {
                    assert_eq!(ended_by(pid), Some(libc::SIGKILL), "{} {step}: {pid}", program.name);
                }
            }
            recorder.end();
        }
    }
}

//! Attaching to threads that wait: no wait may end early, and none may last for ever.

use calltap_e2e::*;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn waits(kinds: &[&str], times: usize) {
    let program = compile(GCC, &["waits.c"], &["-lrt"]);
    goes_on(&program, kinds, times, Tolerate { changes: &["Threads"], ..Tolerate::default() });
}

#[test]
fn no_wait_ends_early_or_with_eintr() {
    waits(&[], 12);
}

#[test]
fn no_rarer_wait_ends_with_eintr() {
    waits(&["io_uring", "recvmmsg_limit", "sendmmsg_limit", "connect_limit"], 4);
}

#[test]
#[ignore = "cannot hold, see docs/explanation/safety.md: a call that has transferred something already returns that, short"]
fn no_transfer_is_cut_short() {
    waits(&["recv_all", "write_big"], 4);
}

#[test]
fn two_hundred_threads_half_busy_half_blocked() {
    let program = compile(GCC, &["waits.c"], &["-lrt"]);
    // As a service has its own control group, the program has its own session: with the kernel's
    // autogroups the test, calltap and other tests get a share of the processors beside it.
    let mut command = Command::new("setsid");
    command.arg(&program.path).arg("-b100").current_dir(program.directory());
    let mut resident = Resident::spawn(command, program.directory().to_owned());
    resident.wait_for("ready");
    let tolerate = Tolerate { changes: &["Threads"], refusals: true };
    resident_goes_on(resident, &program.name, 3, tolerate);
}

#[test]
fn a_thread_that_waits_for_its_vfork_child_is_waited_for() {
    let program = compile(GCC, &["waits.c"], &["-lrt"]);
    let mut resident = Resident::start(&program, &["vfork", "epoll_wait", "semop"]);
    let first = resident.attach(SHORT);
    // The thread ends when its child process has ended. The first thread and two others remain.
    let tasks = format!("/proc/{}/task", resident.pid);
    await_that("the child has ended", || fs::read_dir(&tasks).expect("it runs").count() == 3);
    attach_and_look(&mut resident, 2, Tolerate { changes: &["Threads"], ..Tolerate::default() });
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}{}", first.stderr);
}

#[test]
#[ignore = "cannot hold, see docs/explanation/safety.md: the end of a child ends waits of the thread that the kernel has gone over to, also untraced"]
fn programs_started_all_the_time() {
    waits(&["spawns", "epoll_wait", "recv_limit"], 6);
}

#[test]
fn a_thread_that_syncs_files_all_the_time() {
    waits(&["fsync", "epoll_wait", "recv_limit"], 6);
}

fn resident(how: &str, times: usize, tolerate: Tolerate<'_>) {
    goes_on(&compile(GCC, &["resident.c"], &[]), &[how], times, tolerate);
}

#[test]
fn ignored_signals_end_no_wait() {
    resident("ignored", 15, Tolerate { changes: &["SigBlk"], refusals: true });
}

#[test]
fn pause_ends_when_its_signal_comes() {
    resident("pause", 6, Tolerate { changes: &["SigBlk"], refusals: true });
}

// Old return addresses remain in frames that are never left; only open calls may matter.
#[test]
fn stale_linker_addresses_on_a_stack_do_not_keep_calltap_from_attaching() {
    for build in installed(BUILDS) {
        let program = compile(build, &["leftover.c"], &[]);
        let mut child = Command::new(&program.path).stdout(Stdio::piped()).spawn().expect("the program");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let run =
            calltap_run(&["record", "-p", &child.id().to_string(), "--duration", "20ms", "-o", "/dev/null"]);
        let runs = child.try_wait().expect("the test's own child").is_none();
        child.kill().expect("the test's own child");
        child.wait().expect("the test's own child");
        assert!(runs && run.status.success(), "{}: {}", program.name, run.stderr);
    }
}

//! Attaching to a process at its start and at its end, and to one that holds a lock which the
//! injected code would wait for: the process is attached to before or after, or refused.

use calltap_e2e::*;
use std::fs;
use std::process::Command;

#[test]
fn a_process_that_executes_programs_all_the_time_is_recorded_or_refused_for_that() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("again");
    fs::write(&script, "i=0\nwhile [ $i -lt 2000 ]; do i=$((i + 1)); done\nexec sh \"$0\"\n")
        .expect("a script");
    let mut shell = Command::new("sh");
    shell.arg(&script);
    let build = |arguments: &[&str]| compile(&BARE[0], &["executes_always.c"], arguments);
    let programs = [build(&[]), build(&["-static"])];
    let [dynamic, fixed] = programs.each_ref().map(|program| Command::new(&program.path));
    for command in [shell, dynamic, fixed] {
        let mut resident = Resident::spawn(command, dir.path().to_owned());
        for _ in 0..8 {
            let run = resident.attach(&["--duration", "1ms"]);
            let says = |why: &str| run.stderr.contains(why);
            let is_known = run.status.success() || says("it executed another program while calltap attached");
            assert!(is_known, "{}", run.stderr);
            assert!(resident.runs(), "{}", run.stderr);
        }
    }
}

#[test]
fn a_program_that_starts_is_attached_to_when_its_initializers_have_run() {
    for build in [&BARE[0], GCC] {
        let program = compile(build, &["initialized.c"], &[]);
        let mut command = Command::new(&program.path);
        command.current_dir(program.directory());
        let mut resident = Resident::spawn(command, program.directory().to_owned());
        let run = resident.attach(SHORT);
        assert!(run.status.success(), "{}", run.stderr);
        resident.wait_for("ready");
        resident.ends_well(build.name);
    }
}

/// The agent of a followed program is loaded before its initializers run.
#[test]
fn a_program_that_is_followed_keeps_the_addresses_that_a_sanitizer_has_noted() {
    let program = compile(&BARE[0], &["initialized.c"], &[]);
    let mut command = Command::new("sh");
    command.args(["-c", "read line; \"$1\"; exit $?", "sh"]).arg(&program.path);
    command.current_dir(program.directory());
    let mut resident = Resident::spawn(command, program.directory().to_owned());
    let mut calltap = resident.attach_beside(&["--follow"]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("ready");
    kill(calltap.id(), libc::SIGINT);
    succeeds(&mut calltap);
    resident.ends_well(&program.name);
}

/// Compiles a program with an allocator, mutexes and a search for leaks of its own.
fn with_own_locks() -> Program {
    compile(&BARE[0], &["own_locks.c"], &["-rdynamic", "-Wl,--no-as-needed", "-lgcc_s"])
}

#[test]
fn a_thread_that_holds_the_lock_of_its_own_allocator_is_not_borrowed() {
    let program = with_own_locks();
    for _ in 0..8 {
        let resident = Resident::start(&program, &[]);
        let run = resident.attach(SHORT);
        assert!(run.status.success(), "{}", run.stderr);
        resident.ends_well(&program.name);
    }
}

#[test]
fn a_program_that_searches_for_leaks_at_its_end_is_left_alone() {
    let program = with_own_locks();
    let mut resident = Resident::start(&program, &["ends"]);
    resident.wait_for("searches");
    one_line(&resident.attach(SHORT), &["it has ended"]);
    resident.ends_well(&program.name);
}

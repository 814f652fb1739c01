//! Programs that drop their privileges and change their root directory, as servers do.

use calltap_e2e::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn may_drop() -> bool {
    let may = is_root();
    if !may {
        skipped("not root: there are no privileges to give up");
    }
    may
}

/// Compiles the program, and a library that it opens later; the user that it changes to may read
/// both.
fn program() -> Program {
    let program = compile(&BARE[0], &["dropped.c"], &[]);
    program.add(&BARE[0], &["library.c"], "libone.so", &["-shared", "-fPIC"]);
    fs::set_permissions(program.directory(), Permissions::from_mode(0o755))
        .expect("the test's own directory");
    program
}

/// Returns the calls of a function in a trace.
fn calls(trace: &Path, name: &str) -> u64 {
    let run = calltap_run(&["report", "-i", &trace.to_string_lossy(), "--format", "json"]);
    assert!(run.status.success(), "{}", run.stderr);
    let rows = rows_of(&run.stdout);
    let row = rows.iter().find(|row| row["function"] == name);
    row.map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
}

#[test]
fn a_process_that_changes_its_effective_user_is_detached_from() {
    if !may_drop() {
        return;
    }
    let program = program();
    let mut resident = Resident::start(&program, &["back"]);
    let pid = resident.pid.to_string();
    for _ in 0..4 {
        let attached = calltap_run(&["attach", "-p", &pid]);
        assert!(attached.status.success(), "{}", attached.stderr);
        resident.tell();
        resident.wait_for("changed");
        let left = calltap_run(&["detach", "-p", &pid]);
        assert!(left.status.success(), "{}", left.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0]);
    }
    assert!(resident.end().0.success());
}

/// Attaches repeatedly to a program that has dropped its privileges. Each time its calls must be
/// recorded, and its text must be as before.
fn attaches(root: &str) {
    if !may_drop() {
        return;
    }
    let program = program();
    let root = if root.is_empty() { "-" } else { &program.directory().to_string_lossy() };
    let mut resident = Resident::start(&program, &[root]);
    for n in 1..=2 {
        let run = resident.attach_until(&[], |resident| calls(&resident.trace(), "work") > 10);
        assert!(run.status.success(), "attach {n}: {}", run.stderr);
        assert!(resident.runs());
        let left = fs::read_dir(program.directory()).expect("the test's own directory").flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        let is_ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("calltap.");
        assert!(!left.iter().any(is_ours), "attach {n} leaves {left:?}");
    }
    // The text can be compared with the files only where these have the same names.
    if root == "-" {
        assert_eq!(changed_text(resident.pid), [""; 0]);
    }
    assert!(resident.end().0.success());
}

#[test]
fn first_attach_to_a_program_of_another_user_works() {
    attaches("");
}

#[test]
fn first_attach_to_a_program_in_a_root_without_proc_works() {
    attaches("changed");
}

/// Checks that every call of a library which is opened after dropping the privileges is recorded.
fn library_is_seen(root: &str, attached: bool, more: &[&str]) {
    if !may_drop() {
        return;
    }
    let program = program();
    let directory = program.directory().to_string_lossy().into_owned();
    let (root, library) = if root.is_empty() {
        ("-", directory + "/libone.so")
    } else {
        (&*directory, "/libone.so".to_owned())
    };
    let trace = program.directory().join("late.calltap");
    let flags = ["record", "-q", "--max-overhead", "none", "--later", "-F", "one_function", "-o"];
    let (mut resident, recorder) = if attached {
        let resident = Resident::start(&program, &[&[root, &library], more].concat());
        let pid = resident.pid.to_string();
        let mut command = Command::new(calltap());
        command.args(flags).arg(&trace).args(["-p", &pid]);
        let recorder = Resident::spawn(command, program.directory().to_owned());
        resident.await_recorder();
        (resident, Some(recorder))
    } else {
        let mut command = Command::new(calltap());
        command.args(flags).arg(&trace).arg("--").arg(&program.path).args([root, &library]).args(more);
        let mut resident = Resident::spawn(command, program.directory().to_owned());
        resident.wait_for("ready");
        (resident, None)
    };
    for _ in 0..3 {
        resident.tell();
        resident.wait_for("opened");
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
    let errors = errors + &recorder.map(|recorder| recorder.end().2).unwrap_or_default();
    assert_eq!(calls(&trace, "one_function"), 3000, "{errors}");
}

#[test]
fn library_opened_by_another_user_is_traced() {
    library_is_seen("", false, &[]);
}

#[test]
fn library_opened_in_another_root_is_traced() {
    library_is_seen("changed", false, &[]);
}

#[test]
fn library_opened_while_attached_is_traced() {
    library_is_seen("changed", true, &[]);
}

/// The linker's jump does not reach the agent, so it goes through a jump nearby.
#[test]
fn library_is_traced_where_the_dynamic_linker_is_far_from_the_agent() {
    library_is_seen("", true, &["far"]);
}

//! Programs that confine themselves while calltap is attached: by a seccomp filter, another root
//! directory, namespaces, a frozen control group, or by becoming a daemon.

use calltap_e2e::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn calltap(resident: &Resident, command: &[&str]) -> Run {
    let pid = resident.pid.to_string();
    let run = calltap_run(&[command, &["-p", &pid]].concat());
    assert!(!run.stderr.contains("panicked"), "{command:?}: {}", run.stderr);
    run
}

fn work(resident: &mut Resident) {
    resident.tell();
    resident.wait_for("done");
}

/// Checks that a program runs on as if untraced, with its own text.
fn goes_on_unchanged(mut resident: Resident, what: &str) {
    assert_eq!(changed_text(resident.pid), [""; 0], "{what}");
    work(&mut resident);
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{what}: {status} {output}{errors}");
}

/// Attaches to a program, which then confines itself; changes what is traced, and detaches. Neither
/// `set` nor `detach` may disturb it. Returns what `detach` says.
fn confined(build: &Build, how: &str) -> String {
    let program = compile(build, &["confined.c"], &[]);
    let mut resident = Resident::start(&program, &[how]);
    assert!(calltap(&resident, &["attach"]).status.success());
    work(&mut resident);
    for change in [&["set", "--off"][..], &["set", "--on"], &["set", "--tracer", "function"]] {
        calltap(&resident, change);
        work(&mut resident);
    }
    let taken = calltap(&resident, &["snapshot", "-o", &resident.trace().to_string_lossy()]);
    assert!(taken.status.success(), "{how}: {}", taken.stderr);
    let left = calltap(&resident, &["detach"]);
    assert!(left.status.success(), "{how}: {}", left.stderr);
    goes_on_unchanged(resident, &format!("{} {how}", build.name));
    left.stderr
}

/// Kills a recorder of a program that then confines itself, and detaches.
fn confined_after_a_kill(how: &str) {
    let program = compile(&BARE[0], &["confined.c"], &[]);
    let mut resident = Resident::start(&program, &[how]);
    let mut recorder = resident.attach_beside(&[]);
    resident.await_recorder();
    work(&mut resident);
    recorder.kill().expect("a child of this process");
    let _ = recorder.wait();
    let left = calltap(&resident, &["detach"]);
    assert!(left.status.success(), "{how}: {}", left.stderr);
    goes_on_unchanged(resident, how);
}

#[test]
fn a_filter_that_came_later_does_not_kill() {
    for build in [GCC, &BARE[0]] {
        // Another thread may make the calls.
        assert!(!confined(build, "filter").contains("seccomp"));
        // No thread may.
        let said = confined(build, "filter all");
        assert!(
            said.contains("its seccomp filter does not allow") && said.contains("mappings stay"),
            "{said}"
        );
    }
    confined_after_a_kill("filter all");
}

#[test]
fn system_calls_that_are_dispatched_later_are_no_hindrance() {
    confined(&BARE[0], "dispatch");
    confined_after_a_kill("dispatch");
}

fn may_change_root() -> bool {
    found_or_skipped(is_root(), "only root can change a root directory")
}

#[test]
fn a_program_that_changes_its_root_directory_or_namespaces_is_detached_from() {
    if !may_change_root() {
        return;
    }
    for how in ["root", "namespaces"] {
        for build in [GCC, &BARE[0]] {
            confined(build, how);
        }
        confined_after_a_kill(how);
    }
}

/// Lets a program become a daemon while calltap is attached by `command`, and detaches from the
/// daemon: `detach` or the end of the recording does.
fn becomes_a_daemon(command: &[&str], is_killed: bool) {
    let program = compile(&BARE[0], &["confined.c"], &[]);
    let mut resident = Resident::start(&program, &["daemon"]);
    let mut recorder = None;
    if command == ["attach"] {
        assert!(calltap(&resident, command).status.success());
    } else {
        recorder = Some(resident.attach_beside(&[]));
        resident.await_recorder();
    }
    resident.tell();
    let daemon: u32 = resident.wait_for("daemon").parse().expect("its id");
    resident.wait_for("done");
    match &mut recorder {
        Some(recorder) if is_killed => {
            let _ = recorder.kill();
            let _ = recorder.wait();
        }
        Some(recorder) => succeeds(recorder),
        None => {}
    }
    // A recorder that was killed may have been about to end.
    let left = calltap_run(&["detach", "-p", &daemon.to_string()]);
    let expected = if recorder.is_none() { left.status.success() } else { !left.stderr.contains("panicked") };
    assert!(expected, "{command:?}: {}", left.stderr);
    assert_eq!(changed_text(daemon), [""; 0], "{command:?}, killed: {is_killed}: {}", left.stderr);
    let trace = resident.trace();
    let pid = daemon.to_string();
    let again = calltap_run(&["record", "-p", &pid, "--duration", "10ms", "-o", &trace.to_string_lossy()]);
    assert!(again.status.success(), "{command:?}: {}", again.stderr);
    work(&mut resident);
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{command:?}: {status} {output}{errors}");
}

#[test]
fn a_program_that_becomes_a_daemon_is_detached_from() {
    for _ in 0..4 {
        becomes_a_daemon(&["attach"], false);
        becomes_a_daemon(&["record"], false);
        becomes_a_daemon(&["record"], true);
    }
}

/// A control group of this test, and how to freeze it. Removed on drop.
struct Freezer {
    group: PathBuf,
    /// File, contents that freeze and thaw.
    switch: (&'static str, [&'static str; 2]),
    /// File, and the line of it when the group is frozen.
    state: (&'static str, &'static str),
}

impl Freezer {
    fn create() -> Option<Freezer> {
        let name = format!("calltap-test-{}", std::process::id());
        let two = (("cgroup.freeze", ["1", "0"]), ("cgroup.events", "frozen 1"));
        let one = (("freezer.state", ["FROZEN", "THAWED"]), ("freezer.state", "FROZEN"));
        [("/sys/fs/cgroup", two), ("/sys/fs/cgroup/freezer", one)].into_iter().find_map(
            |(at, (switch, state))| {
                let group = Path::new(at).join(&name);
                fs::create_dir(&group).ok()?;
                let freezer = Freezer { group, switch, state };
                freezer.group.join(switch.0).exists().then_some(freezer)
            },
        )
    }

    fn set(&self, frozen: bool) {
        let (file, [freeze, thaw]) = self.switch;
        fs::write(self.group.join(file), if frozen { freeze } else { thaw }).expect("its switch");
        let text = || fs::read_to_string(self.group.join(self.state.0)).unwrap_or_default();
        wait_until("the freezer", || text().lines().any(|line| line == self.state.1) == frozen);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

#[test]
fn frozen_process_is_refused_and_detached_once_thawed() {
    let Some(freezer) = Freezer::create() else {
        return skipped("no control group can be created");
    };
    let program = compile(&BARE[0], &["confined.c"], &[]);
    let mut resident = Resident::start(&program, &[""]);
    fs::write(freezer.group.join("cgroup.procs"), resident.pid.to_string()).expect("a member");
    freezer.set(true);
    one_line(&resident.attach(SHORT), &["frozen"]);
    freezer.set(false);
    let mut recorder = resident.attach_beside(&[]);
    resident.await_recorder();
    freezer.set(true);
    let start = Instant::now();
    kill(recorder.id(), libc::SIGINT);
    assert!(!recorder.wait().expect("a child").success());
    let left = calltap(&resident, &["detach"]);
    assert!(!left.status.success() && left.stderr.contains("frozen"), "{}", left.stderr);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    freezer.set(false);
    work(&mut resident);
    let left = calltap(&resident, &["detach"]);
    assert!(left.status.success(), "{}", left.stderr);
    goes_on_unchanged(resident, "frozen");
}

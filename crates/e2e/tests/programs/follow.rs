//! `--follow`: a tree of processes in one trace.

use calltap_e2e::*;
use serde_json::Value;
use std::path::Path;

/// Records with `--follow`. The program alone must have the same status and output. The trace lives
/// as long as the returned program.
fn followed(program: &Program, command: &[&str]) -> (Program, Recording) {
    let shell = Program::existing(command[0]);
    let mut alone = std::process::Command::new(command[0]);
    alone.args(&command[1..]).current_dir(program.directory());
    let alone = run(alone, b"");
    let arguments = Expect { arguments: &command[1..], ..Expect::default() };
    let flags = ["--follow", "-F", "step", "-F", "inner"];
    let recording = record(&shell, &flags, &arguments);
    let what = &recording.what;
    assert_eq!(recording.run.status, alone.status, "{what}: how it ended: {}", recording.run.stderr);
    assert_eq!(recording.run.stderr, alone.stderr, "{what}: its errors");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&recording.run.stdout), sorted(&alone.stdout), "{what}: its output");
    let info = recording.info();
    assert_eq!(info["complaints"].as_array().map(Vec::len), Some(0), "{what}: {}", info["complaints"]);
    assert_eq!(info["calls"]["lost"], 0, "{what}: {info}");
    (shell, recording)
}

fn calls(rows: &[Value], name: &str) -> u64 {
    let own = rows.iter().filter(|row| row["function"] == name);
    own.map(|row| row["calls"].as_u64().unwrap_or(0)).sum()
}

/// Returns the notes about processes that were not followed.
fn refusals(recording: &Recording) -> Vec<String> {
    let info = recording.info();
    let notes = info["notes"].as_array().cloned().unwrap_or_default();
    let texts = notes.iter().filter_map(|note| note.as_str());
    texts.filter(|text| text.starts_with("not followed")).map(str::to_owned).collect()
}

fn path(program: &Program) -> String {
    program.path.to_string_lossy().into_owned()
}

#[test]
fn shell_script_and_its_programs_are_one_trace() {
    let program = compile(GCC, &["followed.c"], &[]);
    let own = path(&program);
    let script = format!(
        "{own} steps 5; {own} steps 7 | cat; ({own} steps 9) & wait; env -i {own} steps 20; exec {own} steps 11"
    );
    let (_kept, recording) = followed(&program, &["/bin/sh", "-c", &script]);
    let rows = recording.rows();
    assert_eq!([calls(&rows, "step"), calls(&rows, "inner")], [52, 52], "{rows:?}");
    assert_eq!(refusals(&recording), [""; 0]);
    // The processes are told apart, each with its own module.
    let info = recording.info();
    let threads = info["threads"].as_array().expect("threads").iter();
    let mut each: Vec<u64> =
        threads.map(|thread| calls(&recording.rows_of(thread["tid"].as_i64().unwrap()), "step")).collect();
    each.sort();
    assert_eq!(each, [5, 7, 9, 11, 20], "{info}");
    let named = info["processes"].as_array().expect("processes").iter();
    let names: Vec<&str> = named.filter_map(|process| process["comm"].as_str()).collect();
    assert!(names.contains(&"sh") && names.contains(&"cat"), "{names:?}");
}

#[test]
fn a_tree_of_processes_that_run_at_once_is_recorded_whole() {
    for build in [GCC, &BUILDS[1], &BUILDS[4]] {
        let program = compile(build, &["followed.c"], &[]);
        let (_kept, recording) = followed(&program, &[&path(&program), "tree", "4"]);
        // The tree has 31 nodes.
        let rows = recording.rows();
        assert_eq!([calls(&rows, "step"), calls(&rows, "inner")], [310, 310], "{}: {rows:?}", build.name);
    }
}

#[test]
fn other_programs_are_not_recorded_without_follow() {
    let program = compile(GCC, &["followed.c"], &[]);
    let expect = Expect { arguments: &["tree", "2"], uncounted: true, ..Expect::default() };
    let recording = record(&program, &[], &expect);
    assert_eq!(calls(&recording.rows(), "step"), 10);
}

#[test]
fn follow_records_daemon_after_parent_exit() {
    let program = compile(GCC, &["followed.c"], &[]);
    let (_kept, recording) = followed(&program, &[&path(&program), "daemon", "33"]);
    assert_eq!(calls(&recording.rows(), "step"), 33);
}

#[test]
fn programs_not_built_for_tracing_are_recorded_too() {
    let program = compile(&BARE[0], &["followed.c"], &[]);
    let (_kept, recording) =
        followed(&program, &["/bin/sh", "-c", &format!("{} steps 8; true", path(&program))]);
    assert_eq!(calls(&recording.rows(), "step"), 8);
}

#[test]
fn unfollowable_program_runs_and_is_reported_in_one_line() {
    let program = compile(GCC, &["followed.c"], &[]);
    let fixed = program.add(GCC, &["followed.c"], "fixed", &["-static"]);
    let (own, fixed) = (path(&program), fixed.to_string_lossy().into_owned());
    let (_kept, recording) =
        followed(&program, &["/bin/sh", "-c", &format!("{fixed} steps 3; {fixed} steps 4; {own} steps 6")]);
    assert_eq!(calls(&recording.rows(), "step"), 6);
    let told = refusals(&recording);
    assert!(
        matches!(&told[..], [one] if one.contains("fixed") && one.contains("statically linked")),
        "{told:?}"
    );
}

#[test]
fn program_in_other_root_is_followed_if_session_is_visible() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root may change the root directory");
    }
    let program = compile(GCC, &["followed.c"], &[]);
    let own = path(&program);
    // A root directory that contains only the program and its libraries.
    let root = program.directory().join("root");
    let Some(ldd) = output_of("ldd", &[&own]) else { return };
    let libraries = ldd.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain([own.as_str()]) {
        let inside = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(inside.parent().unwrap_or(Path::new("/"))).expect("a directory");
        copy_program(Path::new(file), &inside);
    }
    let (_kept, recording) = followed(&program, &[&own, "chroot", &root.to_string_lossy(), &own, "14"]);
    let told = refusals(&recording);
    assert!(matches!(&told[..], [one] if one.contains("root directory")), "{told:?}");
    assert_eq!(calls(&recording.rows(), "step"), 0);
    // A root directory that also contains the session directory: files that calltap cannot open by
    // its own paths are found through it.
    for inside in ["dev/shm", "proc", "only"] {
        std::fs::create_dir_all(root.join(inside)).expect("a directory");
    }
    let root = root.display();
    let script = |mounts: &str| {
        format!(
            "mount --bind /dev/shm {root}/dev/shm && {mounts} mount -t tmpfs none {root}/only && \
             cp {own} {root}/only/apart && exec {own} chroot {root} /only/apart 16"
        )
    };
    for (mounts, refused, counted) in
        [(format!("mount --bind /proc {root}/proc &&"), None, 16), (String::new(), Some("no /proc"), 0)]
    {
        let script = script(&mounts);
        let (_kept, recording) =
            followed(&program, &["/usr/bin/unshare", "--mount", "/bin/sh", "-c", &script]);
        let told = refusals(&recording);
        let as_expected = told.len() == usize::from(refused.is_some())
            && told.iter().all(|text| refused.is_some_and(|why| text.contains(why)));
        assert!(as_expected, "{told:?}");
        assert_eq!(calls(&recording.rows(), "step"), counted);
    }
}

#[test]
fn a_tree_runs_on_when_calltap_is_killed() {
    let program = compile(GCC, &["followed.c"], &[]);
    let script = format!("for n in 1 2 3 4 5 6 7 8 9 10; do {} steps $n; done; echo end", path(&program));
    for killed_after in ["steps 1", "steps 4"] {
        let mut command = std::process::Command::new(calltap());
        let trace = program.directory().join("killed.calltap");
        command.args(["record", "-q", "--follow", "-F", "step", "-o"]).arg(&trace);
        command.args(["--", "/bin/sh", "-c", &script]);
        let mut recorder = Resident::spawn(command, program.directory().to_owned());
        recorder.wait_for(killed_after);
        recorder.kill();
        recorder.wait_for("end");
    }
}

#[test]
fn children_of_a_process_that_was_attached_to_are_followed_and_left() {
    let program = compile(GCC, &["followed.c"], &[]);
    let mut resident = Resident::start(&program, &["wait", "15"]);
    let mut recorder = resident.attach_beside(&["--follow"]);
    resident.await_recorder();
    for _ in 0..3 {
        resident.tell();
        assert_eq!(resident.wait_for("done"), "0");
    }
    let trace = resident.trace();
    let pid = resident.pid;
    assert!(calltap_run(&["detach", "-p", &pid.to_string()]).status.success());
    succeeds(&mut recorder);
    assert_eq!(changed_text(pid), [""; 0]);
    resident.tell();
    assert_eq!(resident.wait_for("done"), "0");
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
    let report = calltap_run(&["report", "-i", &trace.to_string_lossy(), "--format", "json"]);
    let rows = rows_of(&report.stdout);
    assert_eq!(calls(&rows, "step"), 45, "{rows:?}");
}

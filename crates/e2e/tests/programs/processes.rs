//! Child processes, exec, and libraries that are opened and closed.

use calltap_e2e::{
    BUILDS, Expect, Program, Resident, calltap_run, changed_text, check, clocks, compile, diagonal, matrix,
    plain, rows_of, succeeds, with_libraries,
};
use std::collections::BTreeSet;

fn processes(how: &str, children: usize) {
    let expect = Expect { arguments: &[how], ..Expect::default() };
    for (turn, build) in matrix() {
        let program = compile(build, &["processes.c"], &[]);
        check(&program, &diagonal(turn), &expect);
        let recording = check(&program, &plain(), &expect);
        let info = recording.info();
        let processes = info["processes"].as_array().cloned().unwrap_or_default();
        assert_eq!(processes.len(), 1 + children, "{}: processes", recording.what);
        let first = processes[0]["pid"].as_i64().expect("a process id");
        let in_parent = recording.rows_of(first);
        let named = |name: &str| in_parent.iter().any(|row| row["function"] == name);
        assert!(!named("child_only"), "{}: a child's call is in its parent's ring", recording.what);
        assert!(named("main"), "{}: {in_parent:?}", recording.what);
    }
}

#[test]
fn forked_children_are_processes_of_their_own() {
    processes("fork", 20);
}

#[test]
fn grandchildren_are_separate_processes() {
    processes("double", 2);
}

/// Checks that views report the number of processes whose callers from before a fork are not known.
fn check_forked(how: &str, flags: &[&'static str], children: usize) {
    let program = compile(&BUILDS[0], &["processes.c"], &[]);
    let expect = Expect { arguments: &[how], ..Expect::default() };
    let recording = check(&program, &[flags.to_vec()], &expect);
    let trace = recording.trace.to_string_lossy().into_owned();
    for view in ["report", "graph", "replay"] {
        let text = calltap_run(&[view, "-i", &trace]).stdout;
        let note = text.lines().find(|line| line.starts_with("# callers from before the fork"));
        let number = |line: &str| line.split_once("not known in ")?.1.split(' ').next()?.parse().ok();
        assert_eq!(note.and_then(number).unwrap_or(0), children, "{how}: {view}: {note:?}");
    }
}

#[test]
fn views_say_where_callers_from_before_a_fork_are_not_known() {
    for how in ["fork", "double", "threads", "others"] {
        check_forked(how, &[], 0);
    }
    for clock in ["coarse", "counter"] {
        check_forked("fork", &["--clock", clock], 0);
    }
    check_forked("fork", &["--tracer", "function"], 0);
    check_forked("fork", &["--clock", "sparse"], 20);
}

#[test]
fn fork_in_a_program_with_threads() {
    processes("threads", 20);
}

#[test]
fn vfork_spawn_system_and_popen_work() {
    processes("others", 0);
}

#[test]
fn children_of_posix_spawn_begin_at_the_very_end_of_their_stack() {
    let program = compile(&BUILDS[0], &["spawns.c"], &[]);
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("trace"));
    let run = calltap_run(&["record", "-F", "libc:*", "-o", &trace.to_string_lossy(), "--", &path]);
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(run.stdout.trim(), "succeeded 50", "{}", run.stderr);
}

#[test]
fn a_program_that_replaces_itself() {
    for (turn, build) in matrix() {
        let program = compile(build, &["processes.c"], &[]);
        check(&program, &diagonal(turn), &Expect { arguments: &["exec"], ..Expect::default() });
    }
}

#[test]
fn libraries_opened_and_closed_200_times() {
    for (turn, build) in matrix() {
        let (program, library) = with_libraries(build);
        check(&program, &diagonal(turn), &Expect { arguments: &[&library], ..Expect::default() });
    }
}

#[test]
fn functions_the_c_library_also_has() {
    for build in [&BUILDS[0], &BUILDS[4], &BUILDS[5]] {
        let program = compile(build, &["interposed.c"], &["-fno-builtin"]);
        check(&program, &clocks(), &Expect::default());
    }
}

/// Forks children that make no call before the selection changes. `attached`: the session has no
/// controller meanwhile. Returns the number of calls of `work`.
fn idle_children(program: &Program, attached: bool) -> u64 {
    let mut resident = Resident::start(program, &[]);
    let pid = resident.pid.to_string();
    let on = |words: &[&str]| {
        let run = calltap_run(&[words, &["-p", &pid]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        run.stdout
    };
    let mut recorder = None;
    if attached {
        on(&["attach", "--tracer", "profile", "-F", "other"]);
    } else {
        recorder = Some(resident.attach_beside(&["--tracer", "profile", "-F", "other"]));
        resident.await_recorder();
    }
    let round = |resident: &mut Resident| {
        resident.tell();
        resident.wait_for("done");
    };
    let forked = |resident: &mut Resident| {
        resident.tell();
        let child: u32 = resident.wait_for("child").parse().expect("a number");
        resident.wait_for("done");
        child
    };
    let first = forked(&mut resident);
    on(&["set", "-F", "work"]);
    if attached {
        // calltap detaches before the child has made a call. A child forked earlier does not belong
        // to the next session.
        on(&["detach"]);
        for pid in [resident.pid, first] {
            assert_eq!(changed_text(pid), Vec::<String>::new());
        }
        on(&["attach", "--tracer", "profile", "-F", "other"]);
        on(&["set", "-F", "work"]);
    }
    round(&mut resident); // all are traced
    let second = forked(&mut resident);
    on(&["set", "-F", "other"]);
    round(&mut resident); // none is traced
    on(&["set", "-F", "work"]);
    round(&mut resident); // all are traced
    let table = on(&["stat", "--format", "json"]);
    on(&["detach"]);
    if let Some(mut recorder) = recorder {
        succeeds(&mut recorder);
    }
    for pid in [resident.pid, first, second] {
        assert_eq!(changed_text(pid), Vec::<String>::new());
    }
    round(&mut resident);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
    let rows = rows_of(&table);
    let work = rows.iter().filter(|row| row["function"] == "work");
    work.map(|row| row["calls"].as_u64().expect("a number")).sum()
}

#[test]
fn children_that_call_nothing_for_a_while_are_switched_with_the_others() {
    for build in [&BUILDS[0], &BUILDS[4]] {
        let program = compile(build, &["idle_children.c"], &[]);
        assert_eq!(idle_children(&program, true), 10 + 20, "{}, attached", build.name);
        assert_eq!(idle_children(&program, false), 20 + 30, "{}, recorded", build.name);
    }
}

#[test]
fn children_that_are_forked_while_their_parent_is_left_are_left_too() {
    let program = compile(&BUILDS[0], &["forks_on.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let attached = calltap_run(&["attach", "-p", &pid]);
    assert!(attached.status.success(), "{}", attached.stderr);
    resident.tell();
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(left.status.success(), "{}", left.stderr);
    resident.tell();
    resident.wait_for("done");
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its children");
    for process in children.split_whitespace().chain([&*pid]) {
        let process = process.parse().expect("a process id");
        assert_eq!(changed_text(process), [""; 0], "process {process} of {pid}");
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

#[test]
fn children_that_are_forked_during_a_change_have_the_new_selection() {
    let program = compile(&BUILDS[0], &["forks_on.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let attached = calltap_run(&["attach", "-p", &pid, "-F", "work"]);
    assert!(attached.status.success(), "{}", attached.stderr);
    resident.tell();
    let mut known = BTreeSet::new();
    for round in 0..4 {
        let filter = ["main", "work"][round % 2];
        let set = calltap_run(&["set", "-p", &pid, "-F", filter]);
        assert!(set.status.success(), "{}", set.stderr);
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its children");
        let expected = changed_text(resident.pid);
        let new: Vec<&str> =
            children.split_whitespace().filter(|child| known.insert((*child).to_owned())).collect();
        for child in new.iter().step_by(1 + new.len() / 5) {
            assert_eq!(changed_text(child.parse().expect("a process id")), expected, "{child}: {filter}");
        }
    }
    assert!(known.len() > 8, "{} children", known.len());
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(left.status.success(), "{}", left.stderr);
    resident.tell();
    resident.wait_for("done");
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

//! Children, other programs, and libraries that come and go.

use calltap_e2e::{BUILDS, Expect, check, clocks, compile, diagonal, matrix, plain, with_libraries};

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
fn grandchildren_too() {
    processes("double", 2);
}

#[test]
fn fork_in_a_program_with_threads() {
    processes("threads", 20);
}

#[test]
fn vfork_spawn_system_and_popen_do_no_harm() {
    processes("others", 0);
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

//! Where a table or the buffer of a recording is full, calls are lost and counted, and the program goes on.

use calltap_e2e::{Expect, GCC, Program, check, compile, run};
use std::process::Command;

fn program() -> Program {
    compile(GCC, &["limits.c"], &[])
}

fn expect(arguments: &'static [&'static str]) -> Expect<'static> {
    Expect { arguments, may_lose: true, uncounted: true, ..Expect::default() }
}

#[test]
fn more_children_than_a_recording_has_room_for() {
    for clock in ["tsc", "sparse", "counter"] {
        check(&program(), &[vec!["--clock", clock]], &expect(&["forks"]));
    }
}

#[test]
fn handlers_in_threads_that_found_no_room_for_their_first_call() {
    for tracer in ["function", "function_graph"] {
        check(&program(), &[vec!["--tracer", tracer, "--buffer-size", "256K"]], &expect(&["threads"]));
    }
}

#[test]
fn a_small_shared_memory_file_system_means_a_smaller_buffer() {
    let program = compile(GCC, &["threads.c"], &[]);
    let calltap = calltap_e2e::calltap();
    let script = format!(
        "mount -t tmpfs -o size=48m tmpfs /dev/shm && exec {} record -q -o {}/trace -- {} busy",
        calltap.display(),
        program.directory().display(),
        program.path.display()
    );
    let mut inside = Command::new("unshare");
    inside.args(["-m", "sh", "-c", &script]);
    let mut alone = Command::new(&program.path);
    alone.arg("busy");
    let (recorded, alone) = (run(inside, b""), run(alone, b""));
    if recorded.stderr.contains("unshare") || recorded.stderr.contains("mount:") {
        return calltap_e2e::skipped("no private mounts here");
    }
    assert_eq!((recorded.stdout, recorded.status), (alone.stdout, alone.status), "{}", recorded.stderr);
}

//! Behaviour that is wrong today, one test each; run with `--features known-bugs`. A test moves to its place when it passes.

use calltap_e2e::{
    Expect, GCC, calltap, calltap_run, check, compile, compile_rust, diagonal, matrix, plain, run,
    with_libraries,
};
use std::os::unix::process::CommandExt;
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

// A handler that interrupts a hook between reserving a slot and writing it, and leaves by siglongjmp, leaves an empty
// slot; the recorder stops reading the thread there, and what follows is neither recorded nor counted as lost.
#[test]
fn siglongjmp_out_of_a_handler_at_20_khz() {
    for (turn, build) in matrix() {
        let program = compile(build, &["jumps.c"], &[]);
        let expect = Expect { arguments: &["signals"], may_lose: true, ..Expect::default() };
        check(&program, &diagonal(turn), &expect);
    }
}

// The dynamic linker runs resolvers while it relocates, before it starts the agent.
#[test]
fn ifunc_resolvers_are_traced() {
    let (program, library) = with_libraries(GCC);
    check(&program, &plain(), &Expect { arguments: &[&library, "resolver"], ..Expect::default() });
}

// The recorder's runtime ignores SIGPIPE for itself and makes it the default for the program, whatever it was.
#[test]
fn an_ignored_sigpipe_stays_ignored() {
    let program = compile(GCC, &["surroundings.c"], &[]);
    let output = |mut command: Command| {
        // SAFETY: a system call that is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                Ok(())
            })
        };
        run(command, b"").stdout
    };
    let mut recorded = Command::new(calltap());
    recorded.args(["record", "-q", "-o", "/dev/null", "--"]).arg(&program.path);
    assert_eq!(output(recorded), output(Command::new(&program.path)));
}

// An LD_PRELOAD that is set but empty is taken out of the environment, not put back.
#[test]
fn an_empty_preload_list_stays_in_the_environment() {
    let program = compile(GCC, &["surroundings.c"], &[]);
    let output = |recorder: &[&str]| {
        let mut command = Command::new("env");
        command.args(["LD_PRELOAD="]).args(recorder).arg(&program.path);
        run(command, b"").stdout
    };
    let calltap = calltap();
    let recorded = output(&[&calltap.to_string_lossy(), "record", "-q", "-o", "/dev/null", "--"]);
    assert_eq!(recorded, output(&[]));
}

// Every tail call indents the tree by one more level: a chain of a million makes 4 GB of text, in 2 GB of memory.
#[test]
fn replay_of_a_long_chain_of_tail_calls_stays_small() {
    let program = compile(GCC, &["tail.c"], &[]);
    let recording = check(&program, &plain(), &Expect::default());
    let trace = recording.trace.to_string_lossy().into_owned();
    let text = program.directory().join("replay").to_string_lossy().into_owned();
    assert!(calltap_run(&["replay", "-i", &trace, "-o", &text]).status.success());
    let size = std::fs::metadata(&text).expect("the text").len();
    assert!(size < 400_000_000, "{size} bytes for a million calls");
}

// Threads whose stacks share a mirror piece start together: one maps it, the others give up after a bounded spin and lose their calls, if
// the mapping thread is off the processor meanwhile. These losses are in no thread's count: only a note tells of them.
#[test]
fn threads_that_start_together_on_a_busy_machine_lose_nothing() {
    let program = compile_rust("panics.rs", &["-Copt-level=2"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 * std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let result =
            catch_unwind(|| (0..60).for_each(|_| drop(check(&program, &plain(), &Expect::default()))));
        over.store(true, Relaxed);
        assert!(result.is_ok(), "calls were lost");
    });
}

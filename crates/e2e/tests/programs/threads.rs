//! Threads, signals and coroutines: every call is counted, and every program ends as untraced.

use calltap_e2e::{
    BARE, BUILDS, Build, Expect, GCC, again, calltap_run, check, clocks, compile, compile_rust, diagonal,
    matrix, plain, transparent,
};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn threads(how: &str) {
    for (turn, build) in matrix() {
        let program = compile(build, &["threads.c"], &[]);
        check(&program, &diagonal(turn), &Expect { arguments: &[how], ..Expect::default() });
    }
}

#[test]
fn cancelled_threads_run_their_cleanup_handlers() {
    threads("cancel");
}

#[test]
fn threads_leave_by_pthread_exit() {
    threads("exit");
}

#[test]
fn destructors_of_thread_specific_data_are_traced() {
    threads("keys");
}

#[test]
fn three_thousand_short_threads() {
    threads("short");
}

#[test]
fn eight_busy_threads() {
    let program = compile(GCC, &["threads.c"], &[]);
    check(&program, &clocks(), &Expect { arguments: &["busy"], ..Expect::default() });
}

#[test]
fn detached_threads() {
    threads("detached");
}

#[test]
fn main_leaves_before_its_threads() {
    threads("main");
}

#[test]
fn destructors_of_thread_locals_are_traced() {
    for (turn, build) in matrix() {
        check(&compile(build, &["thread_locals.cpp"], &[]), &diagonal(turn), &Expect::default());
    }
}

fn signals(how: &str, builds: [&Build; 3]) {
    for build in builds {
        let program = compile(build, &["signals.c"], &[]);
        let expect = Expect { arguments: &[how], may_lose: true, ..Expect::default() };
        check(&program, &clocks(), &expect);
    }
}

/// A transaction that is repeated returns once more to where it began.
#[test]
fn transactions_that_are_repeated_go_on_as_untraced() {
    for build in [&BARE[0], GCC] {
        let program = again(build, "transactions.c", &["-fgnu-tm", "-pthread"]);
        transparent(&program, &[]);
        let (path, trace) = (program.path.to_string_lossy(), program.directory().join("moves.data"));
        for filter in ["*", "libitm:*"] {
            let run =
                calltap_run(&["record", "-q", "-F", filter, "-o", &trace.to_string_lossy(), "--", &path]);
            let is_right = run.status.success() && run.stdout == "sum 1600, wrong 0\n";
            assert!(is_right, "{filter}: {} {} {}", run.status, run.stdout, run.stderr);
        }
    }
}

#[test]
fn handlers_at_20_khz() {
    signals("plain", [&BUILDS[0], &BUILDS[1], &BUILDS[4]]);
}

#[test]
fn handlers_on_a_small_alternate_stack() {
    // Builds with -pg are left out: the profiler's own timer would overflow the small stack,
    // untraced as well.
    signals("alternate", [&BUILDS[0], &BUILDS[4], &BUILDS[5]]);
}

#[test]
fn handlers_that_interrupt_handlers() {
    signals("nested", [&BUILDS[0], &BUILDS[2], &BUILDS[5]]);
}

#[test]
fn coroutines_that_move_between_threads() {
    for (turn, build) in matrix() {
        // The events of a handler that interrupts the first event of its thread's stack may be
        // lost.
        let expect = Expect { may_lose: true, ..Expect::default() };
        check(&compile(build, &["coroutines.c"], &[]), &diagonal(turn), &expect);
    }
}

// The threads' stacks share pieces of the shadow stack, which one thread maps while the others
// wait.
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
            catch_unwind(|| (0..6).for_each(|_| drop(check(&program, &plain(), &Expect::default()))));
        over.store(true, Relaxed);
        assert!(result.is_ok(), "calls were lost");
    });
}

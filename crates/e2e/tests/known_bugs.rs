//! Behaviour that is wrong today, one test each; run with `--features known-bugs`. A test moves to its place when it passes.

use calltap_e2e::{Expect, GCC, check, compile, diagonal, matrix, plain, with_libraries};

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

//! Behaviour that is not as one would wish, one test each; run with `--features known-bugs`. A test moves to its place when it passes.

use calltap_e2e::{Expect, GCC, Resident, calltap_run, check, compile, plain, with_libraries};

// The dynamic linker runs resolvers while it relocates, before it starts the agent.
#[test]
fn ifunc_resolvers_are_traced() {
    let (program, library) = with_libraries(GCC);
    check(&program, &plain(), &Expect { arguments: &[&library, "resolver"], ..Expect::default() });
}

// The context that a tail call of swapcontext keeps has the return address of its caller, which is a stub's: it lies on no stack, and detaching does not find it.
#[test]
fn a_coroutine_that_was_left_by_a_tail_call_is_resumed_after_detaching() {
    let program = compile(GCC, &["swaps_last.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    assert!(calltap_run(&["attach", "-p", &pid]).status.success());
    resident.tell();
    resident.wait_for("done");
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(left.status.success(), "{}", left.stderr);
    resident.tell();
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

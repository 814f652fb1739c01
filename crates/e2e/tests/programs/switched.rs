//! Functions are switched off and on, and from tracer to tracer, while programs run: their results
//! are the same.

use calltap_e2e::*;

fn check(source: &str, flags: &[&str]) {
    for (_, build) in matrix() {
        transparent_while_switched(&again(build, source, flags), &[]);
    }
    transparent_while_switched(&again(&PLACED[0], source, flags), &[]);
}

#[test]
fn values_and_registers_are_passed_as_untraced() {
    check("abi.c", &[]);
}

#[test]
fn callers_that_keep_values_in_scratch_registers_go_on_as_untraced() {
    transparent_while_switched(&again(GCC, "ipa_ra.c", &["-O3", "-march=native"]), &[]);
}

#[test]
fn longjmp_and_tail_calls_go_on_as_untraced() {
    check("jumps.c", &[]);
    check("tail.c", &[]);
}

#[test]
fn exceptions_go_on_as_untraced() {
    check("throws.cpp", &[]);
}

#[test]
fn coroutines_that_move_between_threads_go_on_as_untraced() {
    check("coroutines.c", &[]);
}

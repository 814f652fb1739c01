//! Behaviour that is not as one would wish, one test each; run with `--features known-bugs`. A test moves to its place when it passes.

use calltap_e2e::{Expect, GCC, check, plain, with_libraries};

// The dynamic linker runs resolvers while it relocates, before it starts the agent.
#[test]
fn ifunc_resolvers_are_traced() {
    let (program, library) = with_libraries(GCC);
    check(&program, &plain(), &Expect { arguments: &[&library, "resolver"], ..Expect::default() });
}

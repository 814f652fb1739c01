//! Known bugs, one failing test each; run with `--features known-bugs`. A test that passes moves to
//! the tests of its subject.

use calltap_e2e::{Expect, GCC, check, plain, with_libraries};

// The dynamic linker calls resolvers during relocation, before it starts the agent.
#[test]
fn ifunc_resolvers_are_traced() {
    let (program, library) = with_libraries(GCC);
    check(&program, &plain(), &Expect { arguments: &[&library, "resolver"], ..Expect::default() });
}

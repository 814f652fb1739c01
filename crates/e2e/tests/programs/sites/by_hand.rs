//! Code that C compilers do not write, or write only with some flags: its results are those of the
//! untraced program.

use calltap_e2e::{Expect, GCC, check, compile};

/// No counts: the functions are not C functions, or not all of them can be traced.
const UNCOUNTED: Expect<'_> =
    Expect { arguments: &[], stdin: b"", may_lose: false, uncounted: true, unnamed: false };

#[test]
fn functions_written_by_hand_compute_the_same() {
    for flags in [&["-O2"][..], &["-O2", "-static"], &["-O2", "-no-pie"]] {
        let program = compile(GCC, &["by_hand.c", "by_hand.S"], flags);
        let filters = ["*", "inline_data", "main,steps", "main,add_data", "main,into_steps,below_stack"];
        let mut words: Vec<Vec<&str>> = filters.map(|filter| vec!["-F", filter, "--later"]).to_vec();
        words.push(vec!["--tracer", "function"]);
        check(&program, &words, &UNCOUNTED);
    }
}

#[test]
fn computed_gotos_through_thunks_compute_the_same() {
    for thunk in ["thunk", "thunk-inline"] {
        let flag = format!("-mindirect-branch={thunk}");
        let flags = ["-O2", "-fcf-protection=none", &flag];
        let program = compile(GCC, &["thunks.c"], &flags);
        // Another set of functions means another part of the file that is decoded.
        let few = vec!["-F", "__x86_indirect_thunk*,step", "--later"];
        let all = [vec![], few, vec!["--tracer", "function"], vec!["--tracer", "profile"]];
        check(&program, &all, &UNCOUNTED);
    }
}

//! Helpers of the end-to-end tests: building small programs, running them alone and under `calltap
//! record`, and comparing the visible results.
//!
//! A program prints `calls NAME N` for each function whose calls it has counted itself; in a line
//! `about NAME N`, N differs from run to run, as with signals. `calltap report` and `calltap stat`
//! must agree with both.

mod attached;
mod check;
mod compile;
mod compiled;
mod disturbed;
mod files;
mod go;
mod kernelshark;
mod mounted;
mod naps;
mod python;
mod rows;
mod run;
mod skipped;
mod terminal;
mod wait;

pub use attached::{
    Resident, State, await_sleeps, changed_text, memory, private_text, state, succeeds, used,
};
pub use check::{Expect, Flags, Recording, check, record};
pub use compile::{
    BARE, BARE_PLACED, BUILDS, Build, CLANG, GCC, PLACED, Program, XRAY, compile, compile_cargo,
    compile_rust, compile_rust_as_it_is, have, installed, matrix, output_of, with_libraries,
};
pub use disturbed::{
    ATTACHES, SHORT, Tolerate, again, attach_and_look, counts_exactly, goes_on, one_line, refused,
    refused_by, resident_goes_on, transparent, transparent_while_switched, transparent_while_switched_by,
};
pub use files::{copy_program, source, write_program};
pub use go::Go;
pub use kernelshark::kernelshark;
pub use mounted::{MountPoint, Mounted, await_open, await_that, ends_within, have_fuse, is_mounted, reader};
pub use naps::trace_of_naps;
pub use python::{python, python_of_pyenv};
pub use rows::rows_of;
pub use run::{HANGS, Run, Server, calltap, calltap_run, run, run_timeout, run_within};
pub use skipped::{found_or_skipped, is_root, skipped};
pub use terminal::{Terminal, jumps};
pub use wait::{end_of, interrupt, kill, kill_group, wait_until};

const TRACERS: [&[&str]; 6] = [
    &["--tracer", "function_graph"],
    &["--tracer", "function"],
    &["--tracer", "function", "--tracer", "function_graph"],
    &["--tracer", "profile"],
    &["--tracer", "profile", "--tracer", "function"],
    &["--tracer", "profile", "--tracer", "function_graph"],
];
const CLOCKS: [&str; 4] = ["tsc", "sparse", "coarse", "counter"];

fn flags(tracer: usize, clock: usize) -> Flags {
    let mut all = TRACERS[tracer % TRACERS.len()].to_vec();
    all.extend(["--clock", CLOCKS[clock % CLOCKS.len()]]);
    all
}

/// Returns every tracer with every clock.
pub fn full() -> Vec<Flags> {
    (0..TRACERS.len() * CLOCKS.len()).map(|i| flags(i, i / TRACERS.len())).collect()
}

/// Returns the default, and two more combinations that differ with `turn`, so that a matrix of
/// builds uses all of them.
pub fn diagonal(turn: usize) -> Vec<Flags> {
    vec![flags(0, turn), flags(1 + turn % (TRACERS.len() - 1), turn + 1)]
}

/// Returns the default tracer with every clock.
pub fn clocks() -> Vec<Flags> {
    (0..CLOCKS.len()).map(|clock| flags(0, clock)).collect()
}

/// Returns only the default tracer and clock.
pub fn plain() -> Vec<Flags> {
    vec![Vec::new()]
}

/// Whether the kernel reports context switches; reports a skipped test if not.
pub fn have_switches() -> bool {
    let refused = calltap_sched::switches(std::process::id(), false).err();
    if let Some(refused) = &refused {
        skipped(&refused.to_string());
    }
    refused.is_none()
}

/// Whether the kernel reports wakings and system calls; reports a skipped test if not.
pub fn have_tracepoints() -> bool {
    let wakings = calltap_sched::wakings(std::process::id()).err();
    let refused = wakings.or_else(|| calltap_sched::system_calls(std::process::id(), false).err());
    if let Some(refused) = &refused {
        skipped(&refused.to_string());
    }
    refused.is_none()
}

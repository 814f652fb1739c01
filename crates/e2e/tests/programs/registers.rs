//! Values pass into traced functions and back unchanged, in every register and stack slot.

use calltap_e2e::{Expect, GCC, check, clocks, compile, diagonal, full, have, matrix, plain, record};

/// Prints features that the processor lacks. They cannot be installed, and do not count as skipped.
fn say_missing(output: &str) {
    let lines = output.lines().filter_map(|line| line.strip_prefix("SKIPPED: "));
    lines.for_each(|line| eprintln!("NOT HERE: {line}"));
}

#[test]
fn arguments_and_results_of_every_class_arrive() {
    for (turn, build) in matrix() {
        let program = compile(build, &["abi.c"], &[]);
        let flags = if turn == 0 { full() } else { diagonal(turn) };
        say_missing(&check(&program, &flags, &Expect::default()).run.stdout);
    }
}

#[test]
fn values_kept_in_caller_saved_registers_survive() {
    let build = calltap_e2e::Build { name: "attribute", compilers: ["gcc", "g++"], flags: &["-O2"] };
    check(&compile(&build, &["ipa_ra.c"], &["-fipa-ra"]), &full(), &Expect::default());
}

#[test]
fn a_traced_call_changes_no_register_and_no_flag() {
    let build = calltap_e2e::Build { name: "assembly", compilers: ["gcc", "g++"], flags: &["-O2"] };
    let program = compile(&build, &["oracle.c", "oracle_asm.S"], &[]);
    say_missing(&check(&program, &full(), &Expect::default()).run.stdout);
}

#[test]
fn a_traced_call_after_a_prologue_changes_no_register_and_no_flag() {
    let build = calltap_e2e::Build { name: "assembly", compilers: ["gcc", "g++"], flags: &["-O2"] };
    let program = compile(&build, &["oracle.c", "oracle_asm.S"], &["-DMCOUNT"]);
    // Untraced, the profiler's own mcount changes registers: only the recorded run is judged.
    for flags in full() {
        let recording = record(&program, &flags, &Expect::default());
        assert!(
            recording.run.stdout.contains("\n0 of ") || recording.run.stdout.starts_with("0 of "),
            "{}",
            recording.run.stdout
        );
        recording.counts_agree(&Expect::default());
    }
}

#[test]
fn indirect_tail_calls_and_static_chains_keep_their_registers() {
    if !have("clang-16") {
        return;
    }
    for build in [GCC, &calltap_e2e::BUILDS[3]] {
        let program = compile(build, &["tail.c"], &[]);
        check(&program, &clocks(), &Expect::default());
        check(&program, &plain(), &Expect::default());
    }
}

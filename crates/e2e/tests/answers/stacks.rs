//! Stack traces by other tools show the program's frames, complete and in order; frames of calltap
//! have names.

use calltap_e2e::{Expect, Program, XRAY, calltap, compile, have, matrix, record, run};
use std::process::Command;

const CHAIN: [&str; 4] = ["chain_c", "chain_b", "chain_a", "main"];

/// First word of gdb for a frame of calltap's stubs.
const STUB: &str = "<signal";

/// Checks that the frames down to main are the chain; other frames may only be calltap's, or, above
/// the chain, those that `above` allows.
fn frames_are_right(frames: &[String], what: &str) {
    let first = frames.iter().position(|frame| frame == CHAIN[0]);
    let Some(first) = first else { panic!("{what}: no {} in {frames:?}", CHAIN[0]) };
    let last = frames.iter().position(|frame| frame == "main");
    let Some(last) = last else { panic!("{what}: no main in {frames:?}") };
    let own = |frame: &&String| !["calltap_stub", "calltap_hook", STUB].contains(&frame.as_str());
    let program: Vec<&String> = frames[first..=last].iter().filter(own).collect();
    assert_eq!(program, CHAIN.iter().collect::<Vec<_>>(), "{what}: {frames:?}");
}

/// Returns the names in lines `path(name+0x12) [0x1234]` after a prefix.
fn names(output: &str, prefix: &str) -> Vec<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once('('));
    lines.map(|(_, rest)| rest.split(['+', ')']).next().unwrap_or_default().to_owned()).collect()
}

fn flag_sets() -> [Vec<&'static str>; 3] {
    let (one, other) = (vec!["--tracer", "function"], vec!["--tracer", "function_graph"]);
    [one.clone(), other.clone(), [one, other].concat()]
}

#[test]
fn backtrace_and_the_unwinder_see_every_frame() {
    for (_, build) in matrix() {
        let program = compile(build, &["chain.c"], &["-rdynamic"]);
        for flags in flag_sets() {
            let recording = record(&program, &flags, &Expect::default());
            let output = &recording.run.stdout;
            frames_are_right(&names(output, "backtrace: "), &recording.what);
            frames_are_right(&names(output, "unwind: "), &recording.what);
        }
    }
}

fn debugger(program: &Program, place: &str, flags: &[&str]) -> Vec<String> {
    let trace = program.directory().join("gdb.calltap");
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set breakpoint pending on"]);
    command.args(["-ex", "set detach-on-fork off", "-ex", "set follow-fork-mode child"]);
    // The recorder must run while gdb runs the program.
    command.args(["-ex", "set schedule-multiple on", "-ex"]);
    command.arg(format!("break {place}")).args(["-ex", "run", "-ex", "bt", "-ex", "kill", "--args"]);
    command.arg(calltap()).args(["record", "-q", "-o"]).arg(&trace).args(flags).arg("--").arg(&program.path);
    let output = run(command, b"").stdout;
    let frames = output.lines().filter(|line| line.starts_with('#'));
    frames
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "in").map_or(1, |at| at + 1);
            words.get(at).copied().unwrap_or_default().to_owned()
        })
        .collect()
}

#[test]
fn a_debugger_shows_every_frame() {
    if !have("gdb") {
        return;
    }
    for (_, build) in matrix() {
        let program = compile(build, &["chain.c"], &[]);
        let frames = debugger(&program, "innermost", &["--tracer", "function_graph"]);
        assert_eq!(frames.first().map(String::as_str), Some("innermost"), "{}: {frames:?}", program.name);
        frames_are_right(&frames, &program.name);
        // Functions with rewritten exits have no return address of calltap on the stack.
        let has_stub = frames.iter().any(|frame| frame == STUB);
        assert_eq!(has_stub, build.name != XRAY.name, "{}: {frames:?}", program.name);
    }
}

//! The ways of changing code that runs, side by side: `benches/patch_modes.c`, a program that changes its own.

use super::Bench;
use crate::shell;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::process::Command;

/// How a mode is named in the program, and for people.
const MODES: [(&str, &str); 7] = [
    ("nothing", "nothing is changed, for 500 us"),
    ("stop_machine", "stop_machine: a signal stops all threads"),
    ("breakpoint", "breakpoint: `int3`, tail, first byte; a handler skips it"),
    ("jmp-3f", "`jmp 3f`: two bytes, tail, two bytes; a breakpoint where they straddle a word"),
    ("test-eax", "calltap's: A9, operand, first byte"),
    ("before-start", "before the program runs"),
    ("as-it-comes", "no protocol at all"),
];

/// The table.
pub fn table(bench: &Bench) -> Result<String> {
    let program = bench.place.join("patch_modes");
    let source = shell::root().join("benches/patch_modes.c");
    // (A call made by hand goes where a compiler believes nobody writes: below the stack pointer.)
    let mut gcc = Command::new("gcc");
    shell::status(gcc.args(["-O2", "-mno-red-zone", "-o"]).args([&program, &source]).arg("-lpthread"))?;
    let rounds = if bench.quick { "100" } else { "1000" };
    let run = shell::output(Command::new(&program).args(["1", rounds]))?;
    let output = String::from_utf8(run.stdout)?;
    let mut text = format!(
        "### Patch modes\n\n\
         20,000 functions of a program that are switched at once by itself, through a second mapping, {rounds} times in each mode; another thread calls them all the time and \
         checks what comes out. Microseconds. What it waits for when nothing is changed is the machine's other work. Calls that went wrong: of eight functions around the end of a page \
         that are called all the time.\n\n\
         | mode | all are switched in | a caller waits: median | p99.9 | longest | switches of the eight | calls that went wrong |\n\
         |---|--:|--:|--:|--:|--:|--:|\n\
         | the kernel's stop_machine, 2008 | | 800 | | | | |\n"
    );
    for (mode, name) in MODES {
        let find = |line: &str| line.strip_prefix(mode)?.strip_prefix(' ').map(str::to_owned);
        let row = output.lines().find_map(find).with_context(|| format!("no {mode}: {output}"))?;
        let words: Vec<&str> = row.split(' ').collect();
        let [_, all, median, tail, longest, switches, wrong] = words[..] else { continue };
        writeln!(text, "| {name} | {all} | {median} | {tail} | {longest} | {switches} | {wrong} |")?;
    }
    Ok(text)
}

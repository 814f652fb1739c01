//! A trace of a program that sleeps, for tests of views.

use crate::attached::await_sleeps;
use crate::compile;
use crate::compile::{GCC, Program};
use crate::run::calltap;
use crate::wait::end_of;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Records the program until it has slept several times. Returns the program, which owns the
/// directory, and the trace's path.
pub fn trace_of_naps() -> (Program, String) {
    let program = compile(GCC, &["paced.c"], &[]);
    let path = program.directory().join("naps.data").display().to_string();
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o", &path, "--"]).arg(&program.path);
    // The program runs until its input ends.
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("calltap");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    let pid = line.trim().strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    await_sleeps(pid.unwrap_or_else(|| panic!("{line}")), 100);
    drop(child.stdin.take());
    assert!(end_of(child).success());
    (program, path)
}

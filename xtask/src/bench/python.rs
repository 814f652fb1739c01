//! Calls of Python functions: calltap beside the profiler of the interpreter and other tools.

use super::Bench;
use super::measure::median;
use crate::shell;
use anyhow::{Context, Result};
use calltap_e2e::python;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Minor versions whose functions are traced.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=13;

/// Work at each call.
#[derive(Clone, Copy, PartialEq)]
enum Subject {
    /// Work of `python.py` itself, by its name there.
    Script(&'static str),
    /// perf's trampolines, which record nothing by themselves.
    Perf,
    /// calltap with this selection.
    Calltap(&'static str),
}

/// The subjects, with the heads of their columns.
const SUBJECTS: [(Subject, &str); 8] = [
    (Subject::Script("alone"), "the call itself"),
    (Subject::Script("nothing"), "functions in C that do nothing"),
    (Subject::Script("clock"), "that read the clock"),
    (Subject::Perf, "perf's trampolines"),
    (Subject::Calltap("*"), "**calltap, recorded**"),
    (Subject::Calltap("*.other"), "**calltap, not selected**"),
    (Subject::Script("viztracer"), "viztracer"),
    (Subject::Script("cProfile"), "cProfile"),
];

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let library = bench.place.join("python.so");
    let source = shell::root().join("benches/python.c");
    let mut gcc = Command::new("gcc");
    shell::output(gcc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source))?;
    let mut text = "### Calls of Python functions\n\n\
         Nanoseconds of processor time that a call of an empty function costs more than alone; the best of five loops of half a million calls in each round. \
         Functions in C are called by the cheapest means of the interpreter at each entry and return: as a profile function up to 3.11, by sys.monitoring from 3.12 on.\n\n"
        .to_owned();
    let heads: Vec<&str> = SUBJECTS.iter().map(|(_, head)| *head).collect();
    writeln!(text, "| CPython | {} |\n|---|{}", heads.join(" | "), "--:|".repeat(heads.len()))?;
    for minor in VERSIONS {
        let Some(interpreter) = python(minor) else { continue };
        let mut costs: Vec<Vec<f64>> = SUBJECTS.iter().map(|_| Vec::new()).collect();
        for _ in 0..bench.rounds {
            for ((subject, _), costs) in SUBJECTS.iter().zip(&mut costs) {
                costs.extend(subject.cost(bench, &interpreter, minor, &library)?);
            }
        }
        let alone = median(costs[0].clone());
        let cell = |(n, costs): (usize, &Vec<f64>)| match costs.is_empty() {
            true => "-".to_owned(),
            false => format!("{:.0}", median(costs.clone()) - if n == 0 { 0.0 } else { alone }),
        };
        let cells: Vec<String> = costs.iter().enumerate().map(cell).collect();
        writeln!(text, "| 3.{minor} | {} |", cells.join(" | "))?;
    }
    Ok(text)
}

impl Subject {
    /// Runs the script, and returns the nanoseconds that it prints; `None` if the interpreter has
    /// no such means.
    fn cost(self, bench: &Bench, interpreter: &PathBuf, minor: u32, library: &Path) -> Result<Option<f64>> {
        let mut command = Command::new(interpreter);
        let mut how = "alone";
        match self {
            Subject::Script(name) => how = name,
            Subject::Perf if minor < 12 => return Ok(None),
            Subject::Perf => {
                command.args(["-X", "perf"]);
            }
            Subject::Calltap(glob) => {
                command = Command::new(&bench.calltap);
                command.args(["record", "-q", "--python", glob, "-o"]).arg(bench.place.join("python.data"));
                command.arg("--").arg(interpreter);
            }
        }
        if how == "viztracer" {
            let has_it = Command::new(interpreter).args(["-c", "import viztracer"]).output()?;
            if !has_it.status.success() {
                return Ok(None);
            }
        }
        command.arg(shell::root().join("benches/python.py")).arg(how).arg(library);
        let printed = String::from_utf8(shell::output(&mut command)?.stdout)?;
        let took = printed.lines().last().unwrap_or_default().trim().parse();
        Ok(Some(took.with_context(|| format!("{}: {printed}", shell::line(&command)))?))
    }
}

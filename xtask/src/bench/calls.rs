//! The cost of a traced call.

use super::Bench;
use super::expect::at_most;
use super::measure::median;
use super::subjects::{Run, Subject, pg_calls};
use super::workloads::{self, Workload};
use crate::shell;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::process::Command;

const GRAPH: &str = "function_graph";
const SPARSE: &str = "function_graph, sparse";
const ENTRY: &str = "function";
const OVERWRITE: &str = "function_graph, overwrite";
/// Place of [`GRAPH`] among the subjects of a workload.
const GRAPH_INDEX: usize = 2;

const CALLTAP: [Subject; 6] = [
    Subject::Calltap(GRAPH, &[]),
    Subject::Calltap(OVERWRITE, &["--overwrite"]),
    Subject::Calltap(SPARSE, &["--clock", "sparse"]),
    Subject::Calltap("function_graph, counter", &["--clock", "counter"]),
    Subject::Calltap(ENTRY, &["--tracer", "function"]),
    Subject::Calltap("function, sparse", &["--tracer", "function", "--clock", "sparse"]),
];

/// Returns the limits: of the whole cost as a share of uftrace's, and of the program's part in ns.
fn limits(name: &str) -> (Option<f64>, Option<f64>) {
    match name {
        GRAPH => (Some(0.4), Some(35.0)),
        SPARSE => (None, Some(7.0)),
        ENTRY => (Some(0.2), Some(11.0)),
        _ => (None, None),
    }
}

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let mut text = format!(
        "### Cost of a traced call\n\n\
         Nanoseconds added per call to the bare program: processor time of program and recorder together, the program's part, \
         the recorder's part, and time on the wall. Bytes per event (entry or return) on disk. The limits in ns are those of the \
         machine the trials ran on; the ratio to uftrace travels better. With `--overwrite` (`attach` uses the same ring) the recorder \
         reads the newest events at the end only. The least that a call can cost, two readings of the time stamp counter and two \
         stores of 8 bytes, takes {:.1} ns here (`benches/floor.c`).\n\n\
         | workload | tracer | calls | added ns | program | recorder | wall | bytes/event | lost | of uftrace's cost |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        floor(bench)?
    );
    for workload in workloads::all(bench)? {
        let measured = Measured::new(bench, &workload)?;
        for index in GRAPH_INDEX..measured.subjects.len() {
            measured.row(&mut text, workload.name, index)?;
        }
    }
    Ok(text)
}

/// All runs of one workload.
struct Measured {
    /// The bare program is the first subject; uftrace, if installed, the last.
    subjects: Vec<Subject>,
    /// The runs of all subjects, by round.
    rounds: Vec<Vec<Run>>,
    /// Number of calls in uftrace's build, if uftrace is installed.
    uftrace_calls: Option<f64>,
}

impl Measured {
    fn new(bench: &Bench, workload: &Workload) -> Result<Measured> {
        let mut subjects = vec![Subject::Bare, Subject::Off];
        subjects.extend(CALLTAP);
        let mut uftrace_calls = None;
        if bench.uftrace {
            subjects.push(Subject::Uftrace);
            uftrace_calls = Some(pg_calls(bench, workload)?);
        }
        for subject in &subjects {
            subject.run(bench, workload)?;
        }
        let mut rounds: Vec<Vec<Run>> = Vec::new();
        for _ in 0..bench.rounds {
            rounds.push(subjects.iter().map(|subject| subject.run(bench, workload)).collect::<Result<_>>()?);
        }
        Ok(Measured { subjects, rounds, uftrace_calls })
    }

    /// Returns the number of calls in a subject's run.
    fn calls(&self, index: usize) -> f64 {
        match (self.subjects[index], self.uftrace_calls) {
            (Subject::Uftrace, Some(calls)) => calls,
            // The trace has the newest calls only.
            (Subject::Calltap(OVERWRITE, _), _) => self.rounds[0][GRAPH_INDEX].info.calls,
            _ => self.rounds[0][index].info.calls,
        }
    }

    /// Returns the cost that a subject adds per call, as a share of uftrace's.
    fn of_uftrace(&self, index: usize, calls: f64, limit: Option<f64>) -> String {
        let (Some(uftrace_calls), last) = (self.uftrace_calls, self.subjects.len() - 1) else {
            return String::new();
        };
        let each = |round: &Vec<Run>| (added(round, index) / calls) / (added(round, last) / uftrace_calls);
        let ratio = median(self.rounds.iter().map(each).collect());
        limit.map_or_else(|| format!("{ratio:.2}"), |limit| at_most(ratio, limit, 2))
    }

    /// Appends a subject's row.
    fn row(&self, text: &mut String, workload: &str, index: usize) -> Result<()> {
        let (subject, calls) = (&self.subjects[index], self.calls(index));
        let own = matches!(subject, Subject::Calltap(..));
        let over = |what: &dyn Fn(&[Run]) -> f64| {
            median(self.rounds.iter().map(|round| what(round) / calls).collect())
        };
        let cpu = over(&|round| added(round, index));
        let program = over(&|round| round[index].info.program - round[0].cost.cpu);
        let wall = over(&|round| round[index].cost.wall - round[0].cost.wall);
        let lost: f64 = self.rounds.iter().map(|round| round[index].info.lost).sum();
        let events = if own { self.rounds[0][index].info.events } else { 2.0 * calls };
        let bytes = over(&|round| round[index].info.bytes * calls / events);
        let is_whole = subject.name() != OVERWRITE;
        let (ratio_limit, limit) = limits(subject.name());
        let ratio = if own { self.of_uftrace(index, calls, ratio_limit) } else { "1".to_owned() };
        let show = |value: f64| if own { format!("{value:.1}") } else { String::new() };
        writeln!(
            text,
            "| {workload} | {} | {:.1} M | {cpu:.1} | {} | {} | {wall:.1} | {} | {} | {ratio} |",
            subject.name(),
            calls / 1e6,
            limit.map_or_else(|| show(program), |limit| at_most(program, limit, 1)),
            show(over(&|round| round[index].info.recorder)),
            if own && is_whole && workload == "sqlite3" {
                at_most(bytes, 1.0, 2)
            } else {
                format!("{bytes:.2}")
            },
            if own && is_whole { at_most(lost, 0.0, 0) } else { String::new() },
        )?;
        Ok(())
    }
}

/// Returns the processor time that a subject adds to the bare program in a round.
fn added(round: &[Run], index: usize) -> f64 {
    round[index].cost.cpu - round[0].cost.cpu
}

/// Returns the nanoseconds of two readings of the time stamp counter and two stores.
fn floor(bench: &Bench) -> Result<f64> {
    let program = bench.place.join("floor");
    shell::status(
        Command::new("gcc").args(["-O2", "-o"]).args([&program, &shell::root().join("benches/floor.c")]),
    )?;
    let measure = |_| {
        let output = shell::output(&mut Command::new(&program))?;
        String::from_utf8(output.stdout)?.trim().parse().context("benches/floor.c prints nanoseconds")
    };
    Ok(median((0..bench.rounds).map(measure).collect::<Result<_>>()?))
}

//! The cost of calls in many threads, and what they lose.

use super::expect::at_most;
use super::measure::median;
use super::subjects::{Run, Subject};
use super::{Bench, workloads};
use anyhow::Result;
use std::fmt::Write;

const GRAPH: Subject = Subject::Calltap("function_graph", &[]);
/// Numbers of threads.
const THREADS: [u32; 4] = [1, 10, 100, 1000];

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let calls: u32 = if bench.quick { 2_000_000 } else { 8_000_000 };
    let mut text = format!(
        "### Many threads\n\n\
         The threads begin together and only call: {} million calls altogether, `record -- PROGRAM` with its defaults. Nanoseconds \
         of processor time per call that recording adds to the program, and that the recorder takes; in the program also as a ratio \
         to one thread, of the same round.\n\n\
         | threads | calls | program | recorder | of one thread's | lost |\n|--:|--:|--:|--:|--:|--:|\n",
        calls / 1_000_000
    );
    let counts = THREADS.map(|count| vec![count.to_string(), calls.to_string()]);
    let all: Vec<_> =
        counts.iter().map(|words| workloads::ours("threads.c", "threads", words)).collect::<Result<_>>()?;
    let mut rounds: Vec<Vec<[Run; 2]>> = Vec::new();
    for _ in 0..bench.rounds {
        let run = |workload| Ok([Subject::Bare.run(bench, workload)?, GRAPH.run(bench, workload)?]);
        rounds.push(all.iter().map(run).collect::<Result<_>>()?);
    }
    for (n, count) in THREADS.iter().enumerate() {
        let over =
            |figure: &dyn Fn(&[[Run; 2]]) -> f64| median(rounds.iter().map(|round| figure(round)).collect());
        let ratio = match n {
            0 => String::new(),
            _ => format!("{:.2}", over(&|round| program(&round[n]) / program(&round[0]))),
        };
        let lost: f64 = rounds.iter().map(|round| round[n][1].info.lost).sum();
        writeln!(
            text,
            "| {count} | {:.1} M | {:.1} | {:.1} | {ratio} | {} |",
            over(&|round| round[n][1].info.calls) / 1e6,
            over(&|round| program(&round[n])),
            over(&|round| round[n][1].info.recorder / round[n][1].info.calls),
            at_most(lost, 0.0, 0),
        )?;
    }
    Ok(text)
}

/// Returns the nanoseconds per call that recording adds to the program.
fn program([bare, recorded]: &[Run; 2]) -> f64 {
    (recorded.info.program - bare.cost.cpu) / recorded.info.calls
}

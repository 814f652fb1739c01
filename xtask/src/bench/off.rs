//! The cost of the room for tracing while nothing is traced.

use super::measure::{least, median};
use super::subjects::Subject;
use super::{Bench, workloads};
use anyhow::Result;
use std::fmt::Write;

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let rounds = if bench.quick { 9 } else { 25 };
    let mut text = format!(
        "### Cost when off\n\n\
         Processor time more than the bare program (NOPs, off) and than the build with NOPs (recorded with only main switched on), \
         {rounds} rounds. One build is one code layout, and layout alone moves real programs by 1 to 2 %.\n\n\
         | workload | subject | beside | median | of the fastest runs |\n|---|---|---|--:|--:|\n"
    );
    for workload in workloads::programs(bench)? {
        let subjects = [Subject::Bare, Subject::Off, Subject::OnlyMain];
        let mut all: Vec<Vec<f64>> = Vec::new();
        for _ in 0..rounds {
            let mut round = Vec::new();
            for subject in subjects {
                let run = subject.run(bench, &workload)?;
                // In a recorded run only the program's own time counts: the start of the recorder
                // is measured in `start`.
                round.push(if subject == Subject::OnlyMain { run.info.program } else { run.cost.cpu });
            }
            all.push(round);
        }
        for (index, base) in [(1, 0), (2, 1)] {
            let ratio = median(all.iter().map(|round| round[index] / round[base]).collect());
            let fastest = |index: usize| least(all.iter().map(|round| round[index]));
            writeln!(
                text,
                "| {} | {} | {} | {:+.1} % | {:+.1} % |",
                workload.name,
                subjects[index].name(),
                subjects[base].name(),
                100.0 * (ratio - 1.0),
                100.0 * (fastest(index) / fastest(base) - 1.0),
            )?;
        }
    }
    Ok(text)
}

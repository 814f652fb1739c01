//! The cost of a call at every function's entry that only returns, of the NOP that replaces it, and
//! of tracing: the comparison that dynamic ftrace began with.

use super::measure::median;
use super::subjects::Subject;
use super::{Bench, workloads};
use anyhow::Result;
use std::fmt::Write;

const SUBJECTS: [Subject; 7] = [
    Subject::Bare,
    Subject::Returns,
    Subject::Converted,
    Subject::OnlyMain,
    Subject::Calltap("profile", &["--tracer", "profile"]),
    Subject::Calltap("function", &["--tracer", "function"]),
    Subject::Calltap("function_graph", &[]),
];

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let rounds = if bench.quick { 5 } else { 15 };
    let mut text = format!(
        "### mcount, NOPs, tracing\n\n\
         The program's own processor time, more than that of the bare program: {rounds} rounds, medians. `-pg -mfentry` with a profiling function that only \
         returns (the founding patches: 15 to 18 %); the same program after calltap has made NOPs of the calls (the founding patches: noise); the compiler's NOPs; all functions traced.\n\n"
    );
    let names: Vec<&str> = SUBJECTS[1..].iter().map(|subject| subject.name()).collect();
    writeln!(text, "| workload | {} |\n|---|{}", names.join(" | "), "--:|".repeat(names.len()))?;
    let mut all = workloads::programs(bench)?;
    all.extend(workloads::calls_only(bench)?);
    for workload in all {
        let mut runs: Vec<Vec<f64>> = Vec::new();
        for _ in 0..rounds {
            let time = |subject: &Subject| {
                let run = subject.run(bench, &workload)?;
                // In a recorded run only the program's own time counts.
                let alone = matches!(subject, Subject::Bare | Subject::Returns);
                Ok(if alone { run.cost.cpu } else { run.info.program })
            };
            runs.push(SUBJECTS.iter().map(time).collect::<Result<_>>()?);
        }
        write!(text, "| {} |", workload.name)?;
        for index in 1..SUBJECTS.len() {
            let ratio = median(runs.iter().map(|run| run[index] / run[0]).collect());
            write!(text, " {:+.1} % |", 100.0 * (ratio - 1.0))?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

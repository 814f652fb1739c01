//! The speed of `report` on traces of one thread and of a thousand threads.

use super::expect::at_least;
use super::info::info;
use super::measure::{self, median};
use super::subjects::{Subject, pg_calls};
use super::{Bench, workloads};
use anyhow::Result;
use std::fmt::Write;
use std::process::Command;

/// The subject loses no events even on a busy machine, as the traces compared must have the same
/// number of events.
const GRAPH: Subject = Subject::Calltap("function_graph", &["--max-wait", "60s"]);

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let mut text = String::from(
        "### Reading: report\n\n\
         Million events (entry or return) per second of processor time, and on the wall.\n\n\
         | trace | calltap | on the wall | uftrace | calltap / uftrace | beside 1 thread |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let calls = if bench.quick { 2_000_000 } else { 8_000_000 };
    let threads =
        |count: u32| workloads::ours("threads.c", "threads", &[count.to_string(), calls.to_string()]);
    let mut all = vec![("1 thread", threads(1)?), ("1,000 threads", threads(1000)?)];
    all.extend(workloads::programs(bench)?.into_iter().map(|workload| (workload.name, workload)));
    let mut single = 0.0;
    for (name, workload) in all {
        let uftrace_calls = if bench.uftrace { pg_calls(bench, &workload)? } else { 0.0 };
        GRAPH.run(bench, &workload)?;
        let events = info(bench, &GRAPH.data(bench))?.events;
        if bench.uftrace {
            Subject::Uftrace.run(bench, &workload)?;
        }
        let (mut ours, mut wall, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.rounds {
            let cost =
                measure::run(Command::new(&bench.calltap).args(["report", "-i"]).arg(GRAPH.data(bench)))?;
            ours.push(1e3 * events / cost.cpu);
            wall.push(1e3 * events / cost.wall);
            if bench.uftrace {
                let mut report = Command::new("uftrace");
                report.args(["report", "--no-pager", "-d"]).arg(Subject::Uftrace.data(bench));
                let speed = 1e3 * 2.0 * uftrace_calls / measure::run(&mut report)?.cpu;
                theirs.push(speed);
                ratios.push(1e3 * events / cost.cpu / speed);
            }
        }
        let ours = median(ours);
        let beside = match name {
            "1 thread" => {
                single = ours;
                String::new()
            }
            "1,000 threads" => at_least(ours / single, 0.9, 2),
            _ => String::new(),
        };
        let (theirs, ratio) = match bench.uftrace {
            true => (format!("{:.1}", median(theirs)), at_least(median(ratios), 3.0, 1)),
            false => (String::new(), String::new()),
        };
        writeln!(text, "| {name} | {ours:.1} | {:.1} | {theirs} | {ratio} | {beside} |", median(wall))?;
    }
    Ok(text)
}

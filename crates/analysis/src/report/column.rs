//! The columns of a report.

use super::{Options, Times};
use crate::incidents::Incidents;
use std::str::FromStr;

/// A column of the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Column {
    /// Time of outermost activations.
    #[default]
    Total,
    /// Time of its calls without the calls that they made.
    SelfTime,
    /// Number of calls.
    Calls,
    /// Mean time per call.
    Avg,
    /// Shortest call.
    Min,
    /// Longest call.
    Max,
    /// Standard deviation per call.
    Stdev,
    /// Median duration.
    P50,
    /// 90th percentile of durations.
    P90,
    /// 99th percentile of durations.
    P99,
    /// 99.9th percentile of durations.
    P999,
    /// Part of the total in which the threads ran.
    Cpu,
    /// Part of the total in which the threads were runnable but had no processor.
    Runnable,
    /// Part of the total in which the threads were blocked.
    Blocked,
    /// Part of the total in which calltap held the threads.
    Tracing,
    /// Part of the self time in which the threads ran.
    SelfCpu,
    /// Part of the self time in which the threads were runnable but had no processor.
    SelfRunnable,
    /// Part of the self time in which the threads were blocked.
    SelfBlocked,
    /// Part of the self time in which calltap held the threads.
    SelfTracing,
    /// Page faults in the function itself.
    Faults,
    /// Page faults in the function itself that read from a disk.
    MajorFaults,
    /// Moves to other processors in the function itself.
    Migrations,
    /// Signals delivered in the function itself.
    Signals,
    /// Name of the function.
    Function,
    /// File name of the module.
    Module,
}

/// The percentiles in the order of [`Times::percentiles_ns`], in parts per thousand.
pub(crate) const PERMILLES: [u32; 4] = [500, 900, 990, 999];

use Column::*;

/// All columns with their names.
const TABLE: [(Column, &str); 25] = [
    (Total, "total"),
    (SelfTime, "self"),
    (Calls, "calls"),
    (Avg, "avg"),
    (Min, "min"),
    (Max, "max"),
    (Stdev, "stdev"),
    (P50, "p50"),
    (P90, "p90"),
    (P99, "p99"),
    (P999, "p99.9"),
    (Cpu, "cpu"),
    (Runnable, "runnable"),
    (Blocked, "blocked"),
    (Tracing, "tracing"),
    (SelfCpu, "self-cpu"),
    (SelfRunnable, "self-runnable"),
    (SelfBlocked, "self-blocked"),
    (SelfTracing, "self-tracing"),
    (Faults, "faults"),
    (MajorFaults, "major-faults"),
    (Migrations, "migrations"),
    (Signals, "signals"),
    (Function, "function"),
    (Module, "module"),
];

impl Column {
    /// The names that `from_str` parses.
    pub const NAMES: &[&str] = &{
        let (mut names, mut at) = ([""; TABLE.len()], 0);
        while at < TABLE.len() {
            names[at] = TABLE[at].1;
            at += 1;
        }
        names
    };

    /// The default columns.
    pub(super) const USUAL: [Column; 7] = [Total, SelfTime, Calls, Avg, Min, Max, Stdev];

    /// Columns added by default if context switches were recorded.
    pub(super) const SWITCHED: [Column; 2] = [Cpu, Blocked];

    /// Columns added to JSON if context switches were recorded.
    pub(super) const STATES: [Column; 8] =
        [Cpu, Runnable, Blocked, Tracing, SelfCpu, SelfRunnable, SelfBlocked, SelfTracing];

    /// Columns added to JSON if incidents were recorded.
    pub(super) const INCIDENTS: [Column; 4] = [Faults, MajorFaults, Migrations, Signals];

    /// Returns the column's name.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|(column, _)| *column == self).map_or("", |(_, name)| name)
    }

    /// Returns the column's name in CSV and JSON.
    pub(super) fn key(self) -> String {
        match self {
            Calls => "calls".to_owned(),
            Faults | MajorFaults | Migrations | Signals => self.name().replace('-', "_"),
            _ => format!("{}_ns", self.name().replace(['.', '-'], "_")),
        }
    }

    /// Returns a percentile's parts per thousand; `None` for other columns.
    pub(super) fn permille(self) -> Option<u32> {
        Some(match self {
            P50 => PERMILLES[0],
            P90 => PERMILLES[1],
            P99 => PERMILLES[2],
            P999 => PERMILLES[3],
            _ => return None,
        })
    }

    /// Returns the time of the column, if known.
    pub(super) fn ns(self, times: &Times) -> Option<u64> {
        let percentile = |at: usize| times.percentiles_ns.map(|all| all[at]);
        let known = |at: usize| times.off_ns.map(|off| off[at]).filter(|off| off.unknown == 0);
        match self {
            Total => Some(times.total_ns),
            SelfTime => Some(times.self_ns),
            Avg => Some(times.avg_ns),
            Min => Some(times.min_ns),
            Max => Some(times.max_ns),
            Stdev => Some(times.stdev_ns),
            P50 => percentile(0),
            P90 => percentile(1),
            P99 => percentile(2),
            P999 => percentile(3),
            Cpu => known(0).and_then(|off| off.cpu(times.total_ns)),
            Runnable => known(0).map(|off| off.runnable),
            Blocked => known(0).map(|off| off.blocked),
            Tracing => known(0).map(|off| off.tracing),
            SelfCpu => known(1).and_then(|off| off.cpu(times.self_ns)),
            SelfRunnable => known(1).map(|off| off.runnable),
            SelfBlocked => known(1).map(|off| off.blocked),
            SelfTracing => known(1).map(|off| off.tracing),
            Calls | Faults | MajorFaults | Migrations | Signals | Function | Module => None,
        }
    }

    /// Returns the number of incidents of the column, if known; `None` for other columns.
    pub(super) fn incidents(self, all: &Incidents) -> Option<u64> {
        match self {
            Faults => Some(all.faults),
            MajorFaults => Some(all.major_faults),
            Migrations => Some(all.migrations),
            Signals => all.signals,
            _ => None,
        }
    }

    fn is_number(self) -> bool {
        !matches!(self, Function | Module)
    }
}

impl FromStr for Column {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = TABLE.iter().find(|(_, known)| *known == name);
        let unknown = || format!("'{name}' is not a column; columns are {}", Self::NAMES.join(", "));
        found.map(|(column, _)| *column).ok_or_else(unknown)
    }
}

impl Options {
    /// Returns the numeric columns, in order.
    pub(super) fn all_columns(&self) -> Vec<Column> {
        let mut columns: Vec<Column> =
            if self.columns.is_empty() { Column::USUAL.to_vec() } else { self.columns.clone() };
        columns.push(self.sort);
        let mut seen = Vec::new();
        columns.retain(|column| {
            let new = column.is_number() && !seen.contains(column);
            seen.push(*column);
            new
        });
        columns
    }
}

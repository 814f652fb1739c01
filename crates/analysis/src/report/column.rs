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
    /// Time without calls made.
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
    /// What half of the calls do not exceed.
    P50,
    /// What nine of ten calls do not exceed.
    P90,
    /// What 99 of a hundred calls do not exceed.
    P99,
    /// What 999 of a thousand calls do not exceed.
    P999,
    /// The part of the total in which the threads ran.
    Cpu,
    /// The part of the total in which they could run, without a processor.
    Runnable,
    /// The part of the total in which they slept.
    Blocked,
    /// The part of the total in which calltap held them.
    Tracing,
    /// The part of the own time in which the threads ran.
    SelfCpu,
    /// The part of the own time in which they could run, without a processor.
    SelfRunnable,
    /// The part of the own time in which they slept.
    SelfBlocked,
    /// The part of the own time in which calltap held them.
    SelfTracing,
    /// Page faults in the function itself.
    Faults,
    /// Of these, pages that had to be read from a disk.
    MajorFaults,
    /// Moves to other processors in the function itself.
    Migrations,
    /// Signals that came in the function itself.
    Signals,
    /// Name.
    Function,
    /// Module's file name.
    Module,
}

/// Of the percentiles, in the order of [`Times::percentiles_ns`].
pub(crate) const PERMILLES: [u32; 4] = [500, 900, 990, 999];

use Column::*;

/// All columns, and their names.
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
    /// The names understood by `from_str`.
    pub const NAMES: &[&str] = &{
        let (mut names, mut at) = ([""; TABLE.len()], 0);
        while at < TABLE.len() {
            names[at] = TABLE[at].1;
            at += 1;
        }
        names
    };

    /// What is shown unless something else is asked for.
    pub(super) const USUAL: [Column; 7] = [Total, SelfTime, Calls, Avg, Min, Max, Stdev];

    /// Also shown where context switches were recorded.
    pub(super) const SWITCHED: [Column; 2] = [Cpu, Blocked];

    /// Also in JSON.
    pub(super) const STATES: [Column; 8] =
        [Cpu, Runnable, Blocked, Tracing, SelfCpu, SelfRunnable, SelfBlocked, SelfTracing];

    /// Also in JSON where it was recorded what happened to threads.
    pub(super) const INCIDENTS: [Column; 4] = [Faults, MajorFaults, Migrations, Signals];

    /// Its name.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|(column, _)| *column == self).map_or("", |(_, name)| name)
    }

    /// Its name in CSV and JSON.
    pub(super) fn key(self) -> String {
        match self {
            Calls => "calls".to_owned(),
            Faults | MajorFaults | Migrations | Signals => self.name().replace('-', "_"),
            _ => format!("{}_ns", self.name().replace(['.', '-'], "_")),
        }
    }

    /// Of a percentile: how many of a thousand calls do not exceed it.
    pub(super) fn permille(self) -> Option<u32> {
        Some(match self {
            P50 => PERMILLES[0],
            P90 => PERMILLES[1],
            P99 => PERMILLES[2],
            P999 => PERMILLES[3],
            _ => return None,
        })
    }

    /// Its time, if that is known.
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

    /// How often it happened, if that is known; None also for what is no incident.
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
    /// The columns with numbers, in order.
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

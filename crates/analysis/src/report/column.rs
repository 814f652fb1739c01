//! The columns of a report.

use super::{Options, Row, Times};
use crate::error::NotOneOf;
use crate::incidents::Incidents;
use crate::off::Off;
use crate::units::{count, duration};
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

/// The value of a column, by where it is kept. It decides the key in CSV and JSON, and the form of
/// a cell.
#[derive(Clone, Copy)]
enum Value {
    /// Nanoseconds of the function's calls, measured for every function with times.
    Ns(fn(&Times) -> Option<u64>),
    /// Nanoseconds in a state of the threads, known where context switches were recorded.
    State(fn(&Times) -> Option<u64>),
    /// A number of incidents, known where these were recorded.
    Incidents(fn(&Incidents) -> Option<u64>),
    /// Another number.
    Count(fn(&Row) -> Option<u64>),
    /// A name, which the table has behind the numbers.
    Text,
}

/// When a table without `--columns` has a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    /// If context switches were recorded.
    IfSwitched,
    /// If a row has more than 0.
    IfAny,
    /// If a row has more than a twentieth of its total time.
    IfLarge,
    OnRequest,
}

/// A column's properties.
struct Spec {
    column: Column,
    name: &'static str,
    value: Value,
    shown: Shown,
    /// Rank among the columns that a narrow terminal leaves out, the first at 1; 0 for others.
    rank: u8,
}

const fn spec(column: Column, name: &'static str, value: Value, shown: Shown, rank: u8) -> Spec {
    Spec { column, name, value, shown, rank }
}

fn percentile(times: &Times, at: usize) -> Option<u64> {
    times.percentiles_ns.map(|all| all[at])
}

/// Returns the states of the total (0) or of the self time (1), if they are known.
fn off(times: &Times, at: usize) -> Option<Off> {
    times.off_ns.map(|off| off[at]).filter(|off| off.unknown == 0)
}

use Shown::*;

/// All columns, in the order of tables. To add a column, add a row; CSV, JSON, `--columns` and the
/// width of the terminal follow from it.
const COLUMNS: [Spec; 25] = [
    spec(Total, "total", Value::Ns(|times| Some(times.total_ns)), Always, 0),
    spec(SelfTime, "self", Value::Ns(|times| Some(times.self_ns)), Always, 0),
    spec(Calls, "calls", Value::Count(|row| Some(row.calls)), Always, 0),
    spec(Avg, "avg", Value::Ns(|times| Some(times.avg_ns)), Always, 10),
    spec(Min, "min", Value::Ns(|times| Some(times.min_ns)), Always, 2),
    spec(Max, "max", Value::Ns(|times| Some(times.max_ns)), Always, 4),
    spec(Stdev, "stdev", Value::Ns(|times| Some(times.stdev_ns)), Always, 1),
    spec(P50, "p50", Value::Ns(|times| percentile(times, 0)), OnRequest, 0),
    spec(P90, "p90", Value::Ns(|times| percentile(times, 1)), OnRequest, 0),
    spec(P99, "p99", Value::Ns(|times| percentile(times, 2)), OnRequest, 0),
    spec(P999, "p99.9", Value::Ns(|times| percentile(times, 3)), OnRequest, 0),
    spec(Cpu, "cpu", Value::State(|times| off(times, 0)?.cpu(times.total_ns)), IfSwitched, 9),
    spec(Runnable, "runnable", Value::State(|times| Some(off(times, 0)?.runnable)), IfLarge, 7),
    spec(Blocked, "blocked", Value::State(|times| Some(off(times, 0)?.blocked)), IfSwitched, 8),
    spec(Tracing, "tracing", Value::State(|times| Some(off(times, 0)?.tracing)), IfAny, 0),
    spec(SelfCpu, "self-cpu", Value::State(|times| off(times, 1)?.cpu(times.self_ns)), OnRequest, 0),
    spec(SelfRunnable, "self-runnable", Value::State(|times| Some(off(times, 1)?.runnable)), OnRequest, 0),
    spec(SelfBlocked, "self-blocked", Value::State(|times| Some(off(times, 1)?.blocked)), OnRequest, 0),
    spec(SelfTracing, "self-tracing", Value::State(|times| Some(off(times, 1)?.tracing)), OnRequest, 0),
    spec(Faults, "faults", Value::Incidents(|all| Some(all.faults)), IfAny, 6),
    spec(MajorFaults, "major-faults", Value::Incidents(|all| Some(all.major_faults)), OnRequest, 0),
    spec(Migrations, "migrations", Value::Incidents(|all| Some(all.migrations)), IfAny, 5),
    spec(Signals, "signals", Value::Incidents(|all| all.signals), OnRequest, 0),
    spec(Function, "function", Value::Text, OnRequest, 0),
    spec(Module, "module", Value::Text, OnRequest, 3),
];

// `Column::spec` finds a column's row by its number.
const _: () = {
    let mut at = 0;
    while at < COLUMNS.len() {
        assert!(COLUMNS[at].column as usize == at);
        at += 1;
    }
};

impl Column {
    /// The names that `from_str` parses.
    pub const NAMES: &[&str] = &{
        let (mut names, mut at) = ([""; COLUMNS.len()], 0);
        while at < COLUMNS.len() {
            names[at] = COLUMNS[at].name;
            at += 1;
        }
        names
    };

    fn spec(self) -> &'static Spec {
        &COLUMNS[self as usize]
    }

    fn those(is_one: impl Fn(&Spec) -> bool) -> Vec<Column> {
        COLUMNS.iter().filter(|spec| is_one(spec)).map(|spec| spec.column).collect()
    }

    /// Returns the default columns.
    pub(super) fn usual() -> Vec<Column> {
        Column::those(|spec| spec.shown == Always)
    }

    /// Returns the columns that a table adds to the default ones, by what its rows have.
    pub(super) fn added(switched: bool, rows: &[Row]) -> Vec<Column> {
        Column::those(|spec| match spec.shown {
            IfSwitched => switched,
            IfAny => rows.iter().any(|row| spec.column.number(row) > Some(0)),
            IfLarge => {
                rows.iter().any(|row| spec.column.number(row) > Total.number(row).map(|total| total / 20))
            }
            Always | OnRequest => false,
        })
    }

    /// Returns the columns that JSON adds to the default ones: states, null where they are not
    /// known, and incidents if they were recorded.
    pub(super) fn added_to_json(rows: &[Row]) -> Vec<Column> {
        let happened = rows.iter().any(|row| row.incidents.is_some());
        Column::those(|spec| match spec.value {
            Value::State(_) => true,
            Value::Incidents(_) => happened,
            Value::Ns(_) | Value::Count(_) | Value::Text => false,
        })
    }

    /// Returns the columns that a narrow terminal leaves out, in this order.
    pub(super) fn leavable() -> Vec<Column> {
        let mut columns = Column::those(|spec| spec.rank > 0);
        columns.sort_by_key(|column| column.spec().rank);
        columns
    }

    /// Returns the column's name.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// Returns the column's title in a table.
    pub(super) fn title(self) -> String {
        self.name().to_uppercase()
    }

    /// Returns the column's name in CSV and JSON.
    pub(super) fn key(self) -> String {
        let unit = match self.spec().value {
            Value::Ns(_) | Value::State(_) => "_ns",
            Value::Incidents(_) | Value::Count(_) | Value::Text => "",
        };
        self.name().replace(['.', '-'], "_") + unit
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

    /// Returns the number of the column in a row, if it has one and it is known.
    pub(super) fn number(self, row: &Row) -> Option<u64> {
        match self.spec().value {
            Value::Ns(of) | Value::State(of) => of(row.times.as_ref()?),
            Value::Incidents(of) => of(row.incidents.as_ref()?),
            Value::Count(of) => of(row),
            Value::Text => None,
        }
    }

    /// Returns the number of the column in a row as a table shows it: `?` if it is not known, `-`
    /// if the function has no times.
    pub(super) fn cell(self, row: &Row) -> String {
        match (self.spec().value, self.number(row)) {
            (Value::Ns(_) | Value::State(_), Some(ns)) => duration(ns),
            (_, Some(number)) => count(number),
            (Value::Ns(_) | Value::State(_), None) if row.times.is_none() => "-".to_owned(),
            (_, None) => "?".to_owned(),
        }
    }

    /// Whether the column's number grows with every call that is recorded.
    pub(super) fn adds_up(self) -> bool {
        matches!(self, Total | SelfTime | Calls)
    }

    fn is_number(self) -> bool {
        !matches!(self.spec().value, Value::Text)
    }
}

impl FromStr for Column {
    type Err = NotOneOf;

    fn from_str(name: &str) -> Result<Self, NotOneOf> {
        let found = COLUMNS.iter().find(|spec| spec.name == name);
        found.map(|spec| spec.column).ok_or_else(|| NotOneOf::new("column", name, Self::NAMES))
    }
}

impl Options {
    /// Returns the numeric columns, in order.
    pub(super) fn all_columns(&self) -> Vec<Column> {
        let mut columns = if self.columns.is_empty() { Column::usual() } else { self.columns.clone() };
        // The default is no reason to add a column to those that were named.
        if self.columns.is_empty() || self.sort != Options::default().sort {
            columns.push(self.sort);
        }
        let mut seen = Vec::new();
        columns.retain(|column| {
            let new = column.is_number() && !seen.contains(column);
            seen.push(*column);
            new
        });
        columns
    }
}

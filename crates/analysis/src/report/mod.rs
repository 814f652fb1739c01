//! The report: number and times of calls of each function.
//!
//! `total` is the time of outermost activations only, so that recursion is not counted twice;
//! `self` excludes calls made. `cpu`, `runnable` and `blocked` are the parts of `total` in which
//! the threads ran, had no processor, and slept. They are known if context switches were recorded,
//! and only for functions whose calls all lie in the time of that record. Average, minimum, maximum
//! and standard deviation are per call, recursive calls included; the deviation is the sample one
//! (n - 1), as in the kernel's function profiler. Calls recorded by a `function` tracer count as
//! calls and have no time. Percentiles are per call, too, by nearest rank, with a relative error of
//! at most 1/128.

pub(crate) mod collect;
mod column;
mod output;

pub use column::Column;
pub(crate) use column::PERMILLES;

use crate::colours::Colours;
use crate::error::Error;
use crate::incidents::Incidents;
use crate::off::Off;
use crate::replay::SourceLine;
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use crate::tree::Totals;
use calltap_names::Word;
use serde_json::{Map, Value};
use std::io::Write;

/// Scope and form of the report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Column to sort by.
    pub sort: Column,
    /// Numeric columns, in this order; empty: the default ones. The sort column is always shown.
    pub columns: Vec<Column>,
    /// Whether the order is reversed (names normally ascend, numbers descend).
    pub reverse: bool,
    /// Shows only functions matching one of these by demangled or linker name; empty: all.
    pub filter: Vec<Word>,
    /// Whether there is one table per thread.
    pub by_thread: bool,
    /// Maximum number of rows, of each thread with `by_thread`.
    pub limit: Option<usize>,
    /// Whether linker names are kept.
    pub linker_names: bool,
    /// Whether names are shortened to what distinguishes them.
    pub short_names: bool,
    /// Whether names in text have the colours of their modules, for a terminal.
    pub colour: bool,
    /// Characters of a line of text: if names do not fit, default columns are left out.
    pub width: Option<usize>,
    /// Returns the file and line of a function, for a column of them; `None`: no such column.
    pub source_line: Option<SourceLine>,
}

/// The times of a function, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Time of outermost activations.
    pub total_ns: u64,
    /// Time without calls made.
    pub self_ns: u64,
    /// Mean per call.
    pub avg_ns: u64,
    /// Shortest call.
    pub min_ns: u64,
    /// Longest call.
    pub max_ns: u64,
    /// Sample standard deviation per call, 0 for a single call.
    pub stdev_ns: u64,
    /// Off-CPU parts of `total_ns` and of `self_ns`; `None` if context switches were not recorded.
    pub off_ns: Option<[Off; 2]>,
    /// p50, p90, p99 and p99.9 per call, if requested: off by at most 1/128.
    pub percentiles_ns: Option<[u64; 4]>,
}

/// A function, of one thread with [`Options::by_thread`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Name, demangled unless linker names are requested.
    pub function: String,
    /// File name of the module.
    pub module: String,
    /// Thread name and id; `None` unless by thread.
    pub thread: Option<(String, u32)>,
    /// File and line of the function, if they are shown and known.
    pub source: Option<String>,
    /// Number of calls.
    pub calls: u64,
    /// Whether the overhead limit disabled it while it was recorded, so that it had more calls than
    /// these.
    pub disabled_by_limit: bool,
    /// Incidents in the function itself; `None` if unknown.
    pub incidents: Option<Incidents>,
    /// Times; `None` if no call of it was timed or the clock has no time.
    pub times: Option<Times>,
}

/// A finished report.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// Totals of the whole trace, before filter and limit.
    pub totals: Totals,
    /// Number of rows cut off by the limit.
    pub cut: u64,
    head: String,
    /// Facts of the head, for JSON.
    facts: Map<String, Value>,
    timed: bool,
    by_thread: bool,
    /// Whether files and lines are shown.
    lines: bool,
    /// Whether context switches were recorded.
    switched: bool,
    columns: Vec<Column>,
    /// Whether the user named the columns: no other is added to them.
    chosen: bool,
    colours: Colours,
    /// Characters of a line, if columns may be left out to fit.
    width: Option<usize>,
    sort: Column,
}

/// Output form of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Text,
    /// CSV: a line of names, then a line per function; fields without a time are empty.
    Csv,
    /// JSON: an object of facts about the trace with an array of objects; null stands for a missing
    /// time.
    Json,
}

/// Reads all events and makes the report.
pub fn collect(source: &dyn Source, options: &Options, progress: Progress<'_>) -> Result<Report, Error> {
    collect::collect(source, options, progress)
}

/// Reads all events and writes the report.
pub fn write(
    source: &dyn Source,
    options: &Options,
    format: Format,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<(), Error> {
    collect(source, options, progress)?.write(format, out)?;
    Ok(())
}

//! Per function: how often, how long.
//!
//! `total` is the time of the outermost activations only, so recursion is not counted twice; `self` excludes calls
//! made. `cpu`, `runnable` and `blocked` are the parts of `total` in which the threads ran, had no processor, and slept. They are known where context
//! switches were recorded, and only of functions whose calls all lie in the time of that record. Average, minimum, maximum and standard deviation are per call, recursive calls included; the deviation is
//! the sample one (n - 1), as in the kernel's function profiler. Calls seen by a `function` tracer count as calls
//! and have no time. Percentiles are per call, too, by nearest rank; a call's duration is known to 1/128 of it.

pub(crate) mod collect;
mod column;
mod output;

pub use column::Column;
pub(crate) use column::PERMILLES;

use crate::error::Error;
use crate::incidents::Incidents;
use crate::off::Off;
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use crate::tree::Totals;
use calltap_names::Word;
use std::io::Write;

/// What to show, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Column to sort by.
    pub sort: Column,
    /// Columns with numbers, in this order; empty for the usual ones. One that is sorted by is always shown.
    pub columns: Vec<Column>,
    /// Turn the order around (names normally ascend, numbers descend).
    pub reverse: bool,
    /// Only functions matching one of these by demangled or linker name; empty = all.
    pub filter: Vec<Word>,
    /// One table per thread.
    pub by_thread: bool,
    /// At most so many rows (in each thread with `by_thread`).
    pub limit: Option<usize>,
    /// Keep linker names.
    pub linker_names: bool,
    /// Of names only what tells them apart.
    pub short_names: bool,
    /// Characters of a line of text: where names have no room in it, columns are left out that were not asked for.
    pub width: Option<usize>,
}

/// The times of a function, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Outermost activations.
    pub total_ns: u64,
    /// Without calls made.
    pub self_ns: u64,
    /// Mean per call.
    pub avg_ns: u64,
    /// Shortest call.
    pub min_ns: u64,
    /// Longest call.
    pub max_ns: u64,
    /// Sample standard deviation per call, 0 for a single call.
    pub stdev_ns: u64,
    /// Of `total_ns` and of `self_ns`, what the threads did not run; none where context switches were not recorded.
    pub off_ns: Option<[Off; 2]>,
    /// p50, p90, p99 and p99.9 per call, if they were asked for: off by 1/128 at most.
    pub percentiles_ns: Option<[u64; 4]>,
}

/// One function (of one thread with [`Options::by_thread`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Name, demangled unless linker names were asked for.
    pub function: String,
    /// File name of the module.
    pub module: String,
    /// Thread name and id, by thread only.
    pub thread: Option<(String, u32)>,
    /// Number of calls.
    pub calls: u64,
    /// Was it disabled by the overhead limit while it was recorded? Then it had more calls than these.
    pub limited: bool,
    /// What happened in the function itself; absent where that is not known.
    pub incidents: Option<Incidents>,
    /// Times; absent when no call of it was timed or the clock has no time.
    pub times: Option<Times>,
}

/// A finished report.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// What the whole trace held, before filter and limit.
    pub totals: Totals,
    /// Rows cut off by the limit.
    pub cut: u64,
    head: String,
    timed: bool,
    by_thread: bool,
    /// Context switches were recorded.
    switched: bool,
    columns: Vec<Column>,
    /// Characters of a line, if columns may be left out for them.
    width: Option<usize>,
    sort: Column,
}

/// Form of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Aligned columns for people.
    #[default]
    Text,
    /// A line of names, then a line per function; empty fields where there is no time.
    Csv,
    /// An array of objects; null where there is no time.
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

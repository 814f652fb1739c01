//! Options of exports.

use calltap_analysis::{Error, Progress, Source, Totals, Word, paths};

/// A version of trace.dat: every trace-cmd and KernelShark reads 6, releases since 2022 also read
/// 7.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// Version 6: parts in a fixed order.
    #[default]
    V6,
    /// Version 7: sections.
    V7,
}

/// Options of an export.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether linker names are kept.
    pub linker_names: bool,
    /// Whether every stack begins with its thread (folded stacks, flame graphs), or has it as a
    /// label (pprof).
    pub by_thread: bool,
    /// Maximum number of stacks kept in memory (folded stacks, flame graphs, pprof); 0: a million.
    pub max_paths: usize,
    /// The time that is summed up (folded stacks, flame graphs).
    pub by: paths::By,
    /// Name of the argument that holds the trace id of a call (OTLP).
    pub trace_id: Option<String>,
    /// Version of the file (trace.dat).
    pub version: Version,
    /// The functions that become spans (OpenTelemetry).
    pub functions: Vec<Word>,
}

/// Returns the call paths of a trace, within the limits of the options.
pub(crate) fn call_paths(
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(paths::Paths, Totals), Error> {
    let limit = if options.max_paths == 0 { paths::NODES } else { options.max_paths };
    paths::collect(source, limit, options.by_thread, progress)
}

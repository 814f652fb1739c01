//! What a user says of an export.

use calltap_analysis::{Error, Progress, Source, Totals, Word, paths};

/// Which version of trace.dat: 6 is read by every trace-cmd and KernelShark, 7 by those since 2022.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// Parts in a fixed order.
    #[default]
    V6,
    /// Sections.
    V7,
}

/// How to export.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Keep linker names.
    pub linker_names: bool,
    /// Folded stacks and flame graphs: begin every stack with its thread. pprof: label every stack with it.
    pub by_thread: bool,
    /// Folded stacks, flame graphs, pprof: different stacks kept in memory, 0 = a million.
    pub max_paths: usize,
    /// Folded stacks and flame graphs: which time.
    pub by: paths::By,
    /// OTLP: the argument that says which trace a call is part of.
    pub trace_id: Option<String>,
    /// trace.dat: which version of it.
    pub version: Version,
    /// OpenTelemetry: the functions that become spans.
    pub functions: Vec<Word>,
}

/// The call paths of a trace, as far as options let them be kept.
pub fn call_paths(
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(paths::Paths, Totals), Error> {
    let limit = if options.max_paths == 0 { paths::NODES } else { options.max_paths };
    paths::collect(source, limit, options.by_thread, progress)
}

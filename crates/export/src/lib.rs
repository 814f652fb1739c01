//! A trace in the forms that other programs read: Perfetto, Chrome, Firefox, Speedscope, pprof, callgrind, OpenTelemetry, trace-cmd, CSV, folded stacks and flame graphs.
#![forbid(unsafe_code)]

mod callgrind;
mod chrome;
mod csv;
mod firefox;
mod flamegraph;
mod folded;
mod otlp;
mod perfetto;
mod pprof;
mod proto;
mod speedscope;
mod svg;
mod trace_dat;

pub use self::flamegraph::flamegraph;
pub use callgrind::callgrind;
pub use chrome::chrome;
pub use csv::csv;
pub use firefox::firefox;
pub use folded::folded;
pub use otlp::otlp;
pub use perfetto::perfetto;
pub use pprof::pprof;
pub use speedscope::speedscope;
pub use trace_dat::{Version, trace_dat};

use calltap_analysis::{Call, Error, Names, Off, Progress, Source, Totals, Word, paths};
use calltap_trace::ThreadId;

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
fn call_paths(
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(paths::Paths, Totals), Error> {
    let limit = if options.max_paths == 0 { paths::NODES } else { options.max_paths };
    paths::collect(source, limit, options.by_thread, progress)
}

/// Process and thread id as the operating system had them.
fn pid_tid(source: &dyn Source, thread: ThreadId) -> (u32, u32) {
    let meta = source.meta();
    let Some(thread) = meta.threads.get(thread.0 as usize) else { return (0, 0) };
    let pid = meta.processes.get(thread.process as usize).map_or(0, |process| process.pid);
    (pid, thread.tid)
}

/// How long the thread of a call did not run, by the names of attributes; nothing if it ran all the time, or if that was not recorded at all. What is not known of
/// a call whose trace knows it of others is one of them.
fn off_parts(source: &dyn Source, call: &Call) -> impl Iterator<Item = (&'static str, u64)> {
    let off = if source.has_switches() { call.off } else { Off::default() };
    let parts = [
        ("runnable_ns", off.runnable),
        ("blocked_ns", off.blocked),
        ("tracing_ns", off.tracing),
        ("unknown_ns", off.unknown),
    ];
    parts.map(|(name, ticks)| (name, source.duration_ns(ticks))).into_iter().filter(|(_, ns)| *ns > 0)
}

/// The command line, for titles.
fn command(source: &dyn Source) -> String {
    source.meta().session.as_ref().map(|session| session.command.join(" ")).unwrap_or_default()
}

/// What a node of a call tree is called.
fn node_name(of: calltap_analysis::paths::Of, names: &Names<'_>) -> String {
    match of {
        calltap_analysis::paths::Of::Root => "all".to_owned(),
        calltap_analysis::paths::Of::Thread(thread) => names.task(thread),
        calltap_analysis::paths::Of::Site(site) => names.function(site).to_owned(),
    }
}

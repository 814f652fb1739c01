//! Names of threads, recordings and nodes in exports, and attributes of calls.

use calltap_analysis::paths::Of;
use calltap_analysis::{Call, Names, Off, Source};
use calltap_trace::{Thread, ThreadId};

/// Bit that tells goroutine numbers from thread ids, which are smaller.
const GOROUTINE: u32 = 1 << 30;

/// Returns process and thread id of the operating system; for a goroutine, an id that no thread
/// has.
pub(crate) fn pid_tid(source: &dyn Source, thread: ThreadId) -> (u32, u32) {
    let meta = source.meta();
    let Some(thread) = meta.threads.get(thread.0 as usize) else { return (0, 0) };
    let pid = meta.processes.get(thread.process as usize).map_or(0, |process| process.pid);
    (pid, tid_of(thread))
}

/// Returns the id of a thread; for a goroutine, an id that no thread has.
pub(crate) fn tid_of(thread: &Thread) -> u32 {
    thread.goroutine.map_or(thread.tid, |number| (number as u32 % GOROUTINE) | GOROUTINE)
}

/// Returns the off-CPU times of a call with the names of their attributes, without those that are
/// 0; empty if context switches were not recorded at all. Unknown time is one of the attributes.
pub(crate) fn off_parts(source: &dyn Source, call: &Call) -> impl Iterator<Item = (&'static str, u64)> {
    let off = if source.has_switches() { call.off } else { Off::default() };
    let parts = [
        ("runnable_ns", off.runnable),
        ("blocked_ns", off.blocked),
        ("tracing_ns", off.tracing),
        ("unknown_ns", off.unknown),
    ];
    parts.map(|(name, ticks)| (name, source.duration_ns(ticks))).into_iter().filter(|(_, ns)| *ns > 0)
}

/// Returns the command line, for titles.
pub(crate) fn command(source: &dyn Source) -> String {
    source.meta().session.as_ref().map(|session| session.command.join(" ")).unwrap_or_default()
}

/// Returns the name of a node of a call tree.
pub(crate) fn node_name(of: Of, names: &Names<'_>) -> String {
    match of {
        Of::Root => "all".to_owned(),
        Of::Thread(thread) => names.task(thread),
        Of::Site(site) => names.function(site).to_owned(),
    }
}

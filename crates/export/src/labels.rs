//! How exports call a thread, a recording and a node, and what they say of a call besides.

use calltap_analysis::paths::Of;
use calltap_analysis::{Call, Names, Off, Source};
use calltap_trace::{Thread, ThreadId};

/// What tells goroutines from threads where both have a number: no thread id is as large.
const GOROUTINE: u32 = 1 << 30;

/// Process and thread id as the operating system had them. A goroutine has an id that no thread has.
pub fn pid_tid(source: &dyn Source, thread: ThreadId) -> (u32, u32) {
    let meta = source.meta();
    let Some(thread) = meta.threads.get(thread.0 as usize) else { return (0, 0) };
    let pid = meta.processes.get(thread.process as usize).map_or(0, |process| process.pid);
    (pid, tid_of(thread))
}

/// The id of a thread, and one for a goroutine that no thread has.
pub fn tid_of(thread: &Thread) -> u32 {
    thread.goroutine.map_or(thread.tid, |number| (number as u32 % GOROUTINE) | GOROUTINE)
}

/// How long the thread of a call did not run, by the names of attributes; nothing if it ran all the time, or if that was not recorded at all. What is not known of
/// a call whose trace knows it of others is one of them.
pub fn off_parts(source: &dyn Source, call: &Call) -> impl Iterator<Item = (&'static str, u64)> {
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
pub fn command(source: &dyn Source) -> String {
    source.meta().session.as_ref().map(|session| session.command.join(" ")).unwrap_or_default()
}

/// What a node of a call tree is called.
pub fn node_name(of: Of, names: &Names<'_>) -> String {
    match of {
        Of::Root => "all".to_owned(),
        Of::Thread(thread) => names.task(thread),
        Of::Site(site) => names.function(site).to_owned(),
    }
}

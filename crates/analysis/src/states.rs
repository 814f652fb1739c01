//! What each thread did, one stretch of time after the other, whatever it had called.

use crate::error::Error;
use crate::sources::source::Source;
use calltap_trace::{RunState, ThreadId};

/// What an exported trace.dat says in words of a thread, as the kernel has no event that does.
pub const SAYS_UNKNOWN: &str = "it is not known whether this thread runs\n";
/// Likewise, behind a time of which it is not known.
pub const SAYS_RUNNING: &str = "this thread runs\n";

/// From a time to another, a thread did one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// When it began, ticks.
    pub from: u64,
    /// When it did something else.
    pub to: u64,
    /// What.
    pub state: RunState,
}

/// The states of a thread in order, each up to the next; nothing is known before the first and behind the last. None where context switches were not
/// recorded. The kernel does not tell when a thread ends: that it runs at last is known up to its last event.
pub fn states(source: &dyn Source, thread: ThreadId) -> Result<Vec<State>, Error> {
    let switches = source.switches(thread)?.unwrap_or_default();
    let state =
        |pair: &[calltap_trace::Switch]| State { from: pair[0].at, to: pair[1].at, state: pair[0].to };
    let mut states: Vec<State> = switches.windows(2).map(state).collect();
    // A switch to what is not known is the end of the records.
    let last = states.iter_mut().rfind(|state| state.state != RunState::Unknown);
    if let (Some(last), Some((_, end))) = (last, source.thread_span(thread))
        && last.state == RunState::Running
    {
        last.to = last.to.min(end.max(last.from));
    }
    states.retain(|state| state.to > state.from);
    Ok(states)
}

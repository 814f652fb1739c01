//! The states of each thread over time, independent of calls.

use crate::error::Error;
use crate::sources::source::Source;
use calltap_trace::{RunState, ThreadId};

/// Text in an exported trace.dat for the time from which a thread's state is unknown, as the kernel
/// has no event for that.
pub const SAYS_UNKNOWN: &str = "it is not known whether this thread runs\n";
/// Text in an exported trace.dat before the exit of a call that ended at an unknown earlier time,
/// without a return that was recorded. An exit has a duration, and no event says that a call was
/// left.
pub const SAYS_LEFT: &str = "the next call has ended at an unknown time\n";
/// Text in an exported trace.dat for a thread that runs after a time of unknown state.
pub const SAYS_RUNNING: &str = "this thread runs\n";

/// An interval in which a thread was in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Beginning, ticks.
    pub from: u64,
    /// End, ticks.
    pub to: u64,
    /// State of the thread.
    pub state: RunState,
}

/// Returns the states of a thread in order, each up to the next; unknown time before the first and
/// after the last. Empty if context switches were not recorded. The kernel does not report the end
/// of a thread: a last running state extends to the thread's last event.
pub fn states(source: &dyn Source, thread: ThreadId) -> Result<Vec<State>, Error> {
    let switches = source.switches(thread)?.unwrap_or_default();
    let state =
        |pair: &[calltap_trace::Switch]| State { from: pair[0].at, to: pair[1].at, state: pair[0].to };
    let mut states: Vec<State> = switches.windows(2).map(state).collect();
    // A switch to the unknown state ends the records.
    let last = states.iter_mut().rfind(|state| state.state != RunState::Unknown);
    if let (Some(last), Some((_, end))) = (last, source.thread_span(thread))
        && last.state == RunState::Running
    {
        last.to = last.to.min(end.max(last.from));
    }
    states.retain(|state| state.to > state.from);
    Ok(states)
}

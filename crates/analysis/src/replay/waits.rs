//! When threads did not run: lines of their own, between those of events.

use crate::error::Error;
use crate::source::Source;
use crate::states::{State, states};
use crate::units::duration;
use calltap_trace::{RunState, ThreadId};
use std::collections::VecDeque;

/// A stretch of time in which a thread did not run, or in which that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub(super) from: u64,
    to: u64,
    state: RunState,
    /// Calls that are open.
    pub(super) depth: u32,
}

impl Wait {
    /// `/* blocked 16.495 ms */`
    pub(super) fn text(&self, source: &dyn Source) -> String {
        let length = duration(source.duration_ns(self.to - self.from));
        match self.state {
            RunState::Unknown => format!("/* not known whether it ran: {length} */"),
            RunState::Tracing => format!("/* held by calltap {length} */"),
            state => format!("/* {} {length} */", state.name()),
        }
    }
}

/// Those of a thread that are still to come.
#[derive(Default)]
pub(super) struct Waits(VecDeque<State>);

impl Waits {
    pub(super) fn of(source: &dyn Source, thread: ThreadId) -> Result<Waits, Error> {
        let Some((first, last)) = source.thread_span(thread).filter(|_| source.has_switches()) else {
            return Ok(Waits::default());
        };
        let known = states(source, thread)?;
        let (from, to) = known.first().zip(known.last()).map_or((last, last), |(a, z)| (a.from, z.to));
        let unknown = |from, to| State { from, to, state: RunState::Unknown };
        let all = [unknown(first, from)].into_iter().chain(known).chain([unknown(to, last)]);
        Ok(Waits(all.filter(|state| state.state != RunState::Running && state.to > state.from).collect()))
    }

    /// Those that begin after an event at `now`, before the thread's next one, with so many calls open. What is not known is told of calls alone, and what follows the last
    /// event as well.
    #[inline]
    pub(super) fn until(&mut self, now: u64, next: Option<u64>, depth: usize) -> Vec<Wait> {
        if self.0.is_empty() { Vec::new() } else { self.told(now, next, depth) }
    }

    fn told(&mut self, now: u64, next: Option<u64>, depth: usize) -> Vec<Wait> {
        let mut waits = Vec::new();
        while let Some(&State { from, to, state }) = self.0.front() {
            if next.is_some_and(|next| from.max(now) >= next && to > now) {
                break;
            }
            let is_told = depth > 0 || (next.is_some() && state != RunState::Unknown);
            if !is_told && next.is_some_and(|next| to > next) {
                break;
            }
            self.0.pop_front();
            if is_told && to > now {
                waits.push(Wait { from: from.max(now), to, state, depth: depth as u32 });
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::{Blocked, Runnable, Unknown};

    fn told(waits: &mut Waits, now: u64, next: Option<u64>, depth: usize) -> Vec<(u64, u64, RunState)> {
        waits.until(now, next, depth).iter().map(|wait| (wait.from, wait.to, wait.state)).collect()
    }

    #[test]
    fn each_is_told_once_where_it_begins() {
        let state = |from, to, state| State { from, to, state };
        let all =
            [state(0, 15, Unknown), state(20, 25, Blocked), state(26, 45, Runnable), state(50, 60, Blocked)];
        let mut waits = Waits(all.into());
        assert_eq!(told(&mut waits, 0, Some(10), 0), [], "outside of calls");
        assert_eq!(told(&mut waits, 10, Some(12), 1), [(10, 15, Unknown)]);
        assert_eq!(told(&mut waits, 12, Some(30), 2), [(20, 25, Blocked), (26, 45, Runnable)]);
        assert_eq!(told(&mut waits, 30, Some(47), 1), [], "told before");
        assert_eq!(told(&mut Waits(waits.0.clone()), 47, None, 0), [], "behind the last event");
        assert_eq!(told(&mut waits, 47, None, 1), [(50, 60, Blocked)]);
    }
}

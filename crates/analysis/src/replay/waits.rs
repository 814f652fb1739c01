//! Off-CPU intervals and incidents of threads, printed as lines between those of events.

use crate::error::Error;
use crate::incidents;
use crate::sources::source::Source;
use crate::states::{State, states};
use crate::units::duration;
use calltap_trace::{Incident, IncidentKind, RunState, ThreadId};
use std::collections::VecDeque;

/// An interval in which a thread did not run or in which its state is unknown, or an incident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub(super) from: u64,
    pub(super) kind: Kind,
    /// Number of open calls.
    pub(super) depth: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// State of the thread, and the end of the interval.
    Off(RunState, u64),
    Incident(IncidentKind),
}

impl Wait {
    /// Formats the wait: `/* blocked 16.495 ms */`.
    pub(super) fn text(&self, source: &dyn Source) -> String {
        let (state, to) = match &self.kind {
            Kind::Off(state, to) => (*state, *to),
            Kind::Incident(what) => return format!("/* {} */", incidents::text(what)),
        };
        let length = duration(source.duration_ns(to - self.from));
        match state {
            RunState::Unknown => format!("/* not known whether it ran: {length} */"),
            RunState::Tracing => format!("/* held by calltap {length} */"),
            state => format!("/* {} {length} */", state.name()),
        }
    }
}

/// The waits of a thread that are still to be printed.
#[derive(Default)]
pub(super) struct Waits {
    states: VecDeque<State>,
    incidents: VecDeque<Incident>,
    /// Whether those outside of calls are left out.
    within: bool,
}

impl Waits {
    pub(super) fn of(source: &dyn Source, thread: ThreadId, within: bool) -> Result<Waits, Error> {
        let Some((first, last)) = source.thread_span(thread) else { return Ok(Waits::default()) };
        let incidents = source.incidents(thread)?.entries;
        let incidents = incidents.into_iter().filter(|one| (first..=last).contains(&one.at)).collect();
        if !source.has_switches() {
            return Ok(Waits { incidents, within, ..Waits::default() });
        }
        let known = states(source, thread)?;
        let (from, to) = known.first().zip(known.last()).map_or((last, last), |(a, z)| (a.from, z.to));
        let unknown = |from, to| State { from, to, state: RunState::Unknown };
        let all = [unknown(first, from)].into_iter().chain(known).chain([unknown(to, last)]);
        let states = all.filter(|state| state.state != RunState::Running && state.to > state.from).collect();
        Ok(Waits { states, incidents, within })
    }

    /// Takes the waits that begin after an event at `now` and before the thread's next one, with
    /// `depth` calls open. Unknown time is reported only within calls, and so is time after the
    /// last event.
    #[inline]
    pub(super) fn until(&mut self, now: u64, next: Option<u64>, depth: usize) -> Vec<Wait> {
        let mut waits = if self.states.is_empty() { Vec::new() } else { self.take_off(now, next, depth) };
        let is_due = |one: &&Incident| next.is_none_or(|next| one.at < next);
        while let Some(&Incident { at, what }) = self.incidents.front().filter(is_due) {
            self.incidents.pop_front();
            if self.within && depth == 0 {
                continue;
            }
            waits.push(Wait { from: at.max(now), kind: Kind::Incident(what), depth: depth as u32 });
        }
        waits
    }

    fn take_off(&mut self, now: u64, next: Option<u64>, depth: usize) -> Vec<Wait> {
        let mut waits = Vec::new();
        while let Some(&State { from, to, state }) = self.states.front() {
            if next.is_some_and(|next| from.max(now) >= next && to > now) {
                break;
            }
            let is_printed = depth > 0 || (next.is_some() && state != RunState::Unknown && !self.within);
            if !is_printed && next.is_some_and(|next| to > next) {
                break;
            }
            self.states.pop_front();
            if is_printed && to > now {
                waits.push(Wait { from: from.max(now), kind: Kind::Off(state, to), depth: depth as u32 });
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::{Blocked, Runnable, Unknown};

    fn take_off(waits: &mut Waits, now: u64, next: Option<u64>, depth: usize) -> Vec<(u64, u64, RunState)> {
        let off = |wait: &Wait| match wait.kind {
            Kind::Off(state, to) => (wait.from, to, state),
            Kind::Incident(_) => (wait.from, wait.from, RunState::Running),
        };
        waits.until(now, next, depth).iter().map(off).collect()
    }

    #[test]
    fn incidents_are_shown_at_their_time() {
        let incident = |at| Incident { at, what: IncidentKind::Signal { number: 10 } };
        let mut waits = Waits { incidents: [incident(11), incident(12)].into(), ..Waits::default() };
        assert_eq!(waits.until(5, Some(11), 1), []);
        let [wait] = waits.until(11, Some(12), 2)[..] else { panic!("one before the next event") };
        assert_eq!((wait.from, wait.depth, waits.incidents.len()), (11, 2, 1));
        assert_eq!(take_off(&mut waits, 12, None, 0), [(12, 12, RunState::Running)], "behind the last event");
    }

    #[test]
    fn each_state_is_shown_once_at_its_begin() {
        let state = |from, to, state| State { from, to, state };
        let all =
            [state(0, 15, Unknown), state(20, 25, Blocked), state(26, 45, Runnable), state(50, 60, Blocked)];
        let mut waits = Waits { states: all.into(), ..Waits::default() };
        assert_eq!(take_off(&mut waits, 0, Some(10), 0), [], "outside of calls");
        assert_eq!(take_off(&mut waits, 10, Some(12), 1), [(10, 15, Unknown)]);
        assert_eq!(take_off(&mut waits, 12, Some(30), 2), [(20, 25, Blocked), (26, 45, Runnable)]);
        assert_eq!(take_off(&mut waits, 30, Some(47), 1), [], "told before");
        assert_eq!(
            take_off(&mut Waits { states: waits.states.clone(), ..Waits::default() }, 47, None, 0),
            [],
            "behind the last event"
        );
        assert_eq!(take_off(&mut waits, 47, None, 1), [(50, 60, Blocked)]);
    }
}

//! Off-CPU intervals and incidents of threads, printed as lines between those of events.

use crate::error::Error;
use crate::incidents;
use crate::sources::source::Source;
use crate::states::{State, states};
use crate::units::duration;
use calltap_names::printable;
use calltap_trace::{Incident, IncidentKind, RunState, ThreadId, Waking};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// An interval in which a thread did not run or in which its state is unknown, or an incident.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub(super) from: u64,
    pub(super) kind: Kind,
    /// Number of open calls.
    pub(super) depth: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// State of the thread, the end of the interval, and what woke the thread then, if it is known.
    Off(RunState, u64, Option<Waker>),
    Incident(IncidentKind),
}

/// The cause of a wakeup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Waker {
    /// An interrupt: a timer, a device, the network.
    Interrupt,
    /// calltap itself.
    Recorder,
    /// A thread, and the name of its process; empty where that is not known.
    Thread { tid: u32, comm: String },
}

impl Waker {
    /// Returns the waker that a record of the kernel names.
    fn of(source: &dyn Source, waking: Waking) -> Waker {
        let Waking { interrupt, pid, tid, comm, .. } = waking;
        let events = source.meta().kernel_events.as_ref();
        match interrupt {
            true => Waker::Interrupt,
            false if events.is_some_and(|events| events.is_recorder(pid)) => Waker::Recorder,
            false => Waker::Thread { tid, comm },
        }
    }

    fn text(&self) -> String {
        match self {
            Waker::Interrupt => ", woken by an interrupt".to_owned(),
            Waker::Recorder => ", woken by calltap".to_owned(),
            Waker::Thread { tid, comm } if comm.is_empty() => format!(", woken by thread {tid}"),
            Waker::Thread { tid, comm } => format!(", woken by {}-{tid}", printable(comm)),
        }
    }

    /// Returns the waker as a JSON object.
    pub(super) fn json(&self) -> Value {
        match self {
            Waker::Interrupt => json!({ "kind": "interrupt" }),
            Waker::Recorder => json!({ "kind": "calltap" }),
            Waker::Thread { tid, comm } => json!({ "kind": "thread", "comm": comm, "tid": tid }),
        }
    }
}

impl Wait {
    /// Formats the wait: `/* blocked 16.495 ms, woken by worker-2042 */`.
    pub(super) fn text(&self, source: &dyn Source) -> String {
        let (state, to, waker) = match &self.kind {
            Kind::Off(state, to, waker) => (*state, *to, waker),
            Kind::Incident(what) => return format!("/* {} */", incidents::text(what)),
        };
        let length = duration(source.duration_ns(to - self.from));
        match state {
            RunState::Unknown => format!("/* not known when it ran in the next {length} */"),
            RunState::Tracing => format!("/* held by calltap {length} */"),
            state => {
                let waker = waker.as_ref().map_or(String::new(), Waker::text);
                format!("/* {} {length}{waker} */", state.name())
            }
        }
    }
}

/// The waits of a thread that are still to be printed.
#[derive(Default)]
pub(super) struct Waits {
    states: VecDeque<State>,
    /// The wakers of the thread, by time.
    wakers: BTreeMap<u64, Waker>,
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
        let wakings = source.wakings(thread)?.entries;
        let wakers = wakings.into_iter().map(|waking| (waking.at, Waker::of(source, waking))).collect();
        Ok(Waits { states, wakers, incidents, within })
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
                // A wait ends with the wakeup, where the trace has it.
                let waker = self.wakers.get(&to).filter(|_| state == RunState::Blocked).cloned();
                let kind = Kind::Off(state, to, waker);
                waits.push(Wait { from: from.max(now), kind, depth: depth as u32 });
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
            Kind::Off(state, to, _) => (wait.from, to, state),
            Kind::Incident(_) => (wait.from, wait.from, RunState::Running),
        };
        waits.until(now, next, depth).iter().map(off).collect()
    }

    #[test]
    fn incidents_are_shown_at_their_time() {
        let incident = |at| Incident { at, what: IncidentKind::Signal { number: 10 } };
        let mut waits = Waits { incidents: [incident(11), incident(12)].into(), ..Waits::default() };
        assert_eq!(waits.until(5, Some(11), 1), []);
        let [wait] = &waits.until(11, Some(12), 2)[..] else { panic!("one before the next event") };
        assert_eq!((wait.from, wait.depth, waits.incidents.len()), (11, 2, 1));
        assert_eq!(take_off(&mut waits, 12, None, 0), [(12, 12, RunState::Running)], "behind the last event");
    }

    #[test]
    fn only_the_end_of_a_wait_has_a_waker() {
        let state = |from, to, state| State { from, to, state };
        let waker = Waker::Thread { tid: 7, comm: "worker".to_owned() };
        let wakers = [(25, waker.clone()), (40, Waker::Interrupt)].into();
        let states = [state(20, 25, Blocked), state(25, 40, Runnable), state(50, 60, Blocked)].into();
        let mut waits = Waits { states, wakers, ..Waits::default() };
        let shown = waits.until(10, None, 1);
        let shown: Vec<_> = shown.iter().map(|wait| &wait.kind).collect();
        let expected = [
            Kind::Off(Blocked, 25, Some(waker)),
            Kind::Off(Runnable, 40, None),
            Kind::Off(Blocked, 60, None),
        ];
        assert_eq!(shown, expected.iter().collect::<Vec<_>>());
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

//! The kernel's records of one thread, and the states derived from them.

use crate::error::Error;
use crate::sources::source::Source;
use crate::sources::wakeups::Wakeups;
use calltap_trace::{Edge, KernelLog, RunState, Switch, SystemCall, ThreadId, Waking};

/// The kernel's records of a thread. Times are in ticks.
#[derive(Default)]
pub(crate) struct ThreadStates {
    switches: Vec<Switch>,
    wakings: KernelLog<Waking>,
    calls: KernelLog<SystemCall>,
}

/// An interval in which a thread was in one state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Beginning and end, cut to the requested interval.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) state: State,
}

/// The state of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Ran,
    /// Ready to run without a processor: preempted, or woken.
    Runnable,
    Blocked(Wait),
    Unknown,
}

/// A wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    /// Beginning, which may lie before the requested interval.
    pub(crate) since: u64,
    pub(crate) within: Within,
    /// The waking that ended it; `None`: unknown.
    pub(crate) waking: Option<Waking>,
    /// The end of a goroutine's wait, if it was recorded when goroutines were made ready to run.
    pub(crate) readied: Option<Readied>,
    /// Whether calltap had stopped the thread, or the thread waited for calltap.
    pub(crate) is_tracing: bool,
}

/// The place in the kernel where a thread waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Within {
    Unknown,
    /// In no system call: on a page fault, or stopped.
    NoSystemCall,
    /// In a system call; its arguments are unknown if it began before calltap attached.
    SystemCall(u32, Option<[u64; 6]>),
    /// In no system call: the Go runtime has parked the goroutine, for this reason if known.
    Park(Option<GoWaitReason>),
}

/// The end of a goroutine's wait: it was made ready to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readied {
    /// By a goroutine, at this time.
    ByGoroutine(u64, ThreadId),
    /// By the Go runtime on this thread, between two goroutines, at this time.
    ByRuntime(u64, ThreadId),
    /// By the Go runtime, at an unknown time.
    ByPoller,
    /// At this time if that is known, by an unknown goroutine.
    Unknown(Option<u64>),
}

impl Readied {
    /// Returns the time, if known.
    pub(crate) fn at(self) -> Option<u64> {
        match self {
            Readied::ByGoroutine(at, _) | Readied::ByRuntime(at, _) => Some(at),
            Readied::ByPoller => None,
            Readied::Unknown(at) => at,
        }
    }
}

/// The reason of a goroutine's wait, in the words of Go's tracebacks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GoWaitReason(pub(crate) &'static str);

impl GoWaitReason {
    pub(crate) fn text(self) -> &'static str {
        self.0
    }
}

impl Wait {
    /// Returns the time of the waking, or `end` if that is unknown.
    fn woken(&self, end: u64) -> u64 {
        self.waking.as_ref().map_or(end, |waking| waking.at.max(self.since))
    }
}

impl ThreadStates {
    pub(crate) fn new(source: &dyn Source, thread: ThreadId) -> Result<ThreadStates, Error> {
        Ok(ThreadStates {
            switches: source.switches(thread)?.unwrap_or_default(),
            wakings: source.wakings(thread)?,
            calls: source.system_calls(thread)?,
        })
    }

    /// Returns the states of the thread from `from` to `to`, oldest first.
    pub(crate) fn segments(&self, from: u64, to: u64) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut push = |start: u64, end: u64, state: State| {
            let (start, end) = (start.max(from), end.min(to));
            if start < end {
                segments.push(Segment { start, end, state });
            }
        };
        let first = self.switches.partition_point(|switch| switch.at <= from);
        let mut since = first.checked_sub(1).map(|at| self.switches[at]);
        if since.is_none() {
            push(from, self.switches.first().map_or(to, |switch| switch.at), State::Unknown);
        }
        let mut next = first;
        while let Some(switch) = since.or_else(|| {
            let switch = self.switches.get(next).copied();
            next += 1;
            switch
        }) {
            let end = self.switches.get(next).map_or(to.max(switch.at), |next| next.at);
            match switch.to {
                RunState::Running => push(switch.at, end, State::Ran),
                RunState::Runnable => push(switch.at, end, State::Runnable),
                RunState::Unknown => push(switch.at, end, State::Unknown),
                RunState::Tracing => {
                    let wait = Wait { is_tracing: true, ..self.wait(switch.at, end) };
                    push(switch.at, end, State::Blocked(wait));
                }
                RunState::Blocked => {
                    let wait = self.wait(switch.at, end);
                    let woken = wait.woken(end);
                    push(switch.at, woken, State::Blocked(wait));
                    push(woken, end, State::Runnable);
                }
            }
            if end >= to {
                break;
            }
            since = None;
        }
        segments
    }

    /// Returns the wait that began at `since` and ended before the thread ran again at `end`.
    fn wait(&self, since: u64, end: u64) -> Wait {
        let wakeups = Wakeups { switches: &self.switches, wakings: &self.wakings, calls: &self.calls };
        let waking = wakeups.of_wait(since, end).cloned();
        Wait { since, within: self.within(since), waking, readied: None, is_tracing: false }
    }

    /// Returns the system call in which the thread is at a time.
    fn within(&self, at: u64) -> Within {
        let next = self.calls.entries.partition_point(|call| call.at <= at);
        let before = next.checked_sub(1).and_then(|before| self.calls.entries.get(before));
        let after = self.calls.entries.get(next);
        match (before, after) {
            (Some(call), _) if self.calls.knows(call.at, at) => match call.edge {
                Edge::Enter(arguments) => Within::SystemCall(call.number, Some(arguments)),
                Edge::Exit(_) => Within::NoSystemCall,
            },
            (_, Some(call)) if self.calls.knows(at, call.at) => match call.edge {
                Edge::Enter(_) => Within::NoSystemCall,
                Edge::Exit(_) => Within::SystemCall(call.number, None),
            },
            _ => Within::Unknown,
        }
    }

    /// Returns all known waits of the thread, each with its end.
    pub(crate) fn waits(&self) -> Vec<(Wait, u64)> {
        let pairs = self.switches.windows(2);
        let blocked = pairs.filter_map(|pair| match pair {
            [from, to] if from.to == RunState::Blocked && to.to != RunState::Unknown => {
                Some((from.at, to.at))
            }
            _ => None,
        });
        blocked
            .map(|(since, end)| {
                let wait = self.wait(since, end);
                let end = wait.woken(end);
                (wait, end)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::*;

    fn lane() -> ThreadStates {
        let switch = |at, to| Switch { at, to };
        let waking = |at| Waking { at, interrupt: true, pid: 0, tid: 0, comm: String::new() };
        let call = |at, edge| SystemCall { at, number: 0, edge };
        ThreadStates {
            switches: vec![
                switch(10, Running),
                switch(20, Blocked),
                switch(40, Running),
                switch(50, Blocked),
            ],
            wakings: KernelLog { entries: vec![waking(35)], known: vec![(0, 45)] },
            calls: KernelLog {
                entries: vec![call(18, Edge::Enter([7; 6])), call(41, Edge::Exit(1))],
                known: vec![(15, 45)],
            },
        }
    }

    fn blocked(since: u64, within: Within, waking: Option<u64>) -> State {
        let waking = waking.map(|at| Waking { at, interrupt: true, pid: 0, tid: 0, comm: String::new() });
        State::Blocked(Wait { since, within, waking, readied: None, is_tracing: false })
    }

    #[test]
    fn a_wait_ends_where_the_thread_is_woken_and_the_rest_is_unknown() {
        let segment = |start, end, state| Segment { start, end, state };
        let within = Within::SystemCall(0, Some([7; 6]));
        let expected = [
            segment(5, 10, State::Unknown),
            segment(10, 20, State::Ran),
            segment(20, 35, blocked(20, within.clone(), Some(35))),
            segment(35, 40, State::Runnable),
            segment(40, 50, State::Ran),
            // System calls are unknown from then on.
            segment(50, 60, blocked(50, Within::Unknown, None)),
        ];
        assert_eq!(lane().segments(5, 60), expected);
        assert_eq!(lane().segments(25, 30), [segment(25, 30, blocked(20, within, Some(35)))]);
        assert_eq!(lane().segments(36, 38), [segment(36, 38, State::Runnable)]);
        assert_eq!(ThreadStates::default().segments(1, 2), [segment(1, 2, State::Unknown)]);
    }

    #[test]
    fn a_thread_that_is_woken_on_its_way_to_sleep_is_runnable() {
        let mut lane = lane();
        lane.wakings.entries[0].at = 19;
        assert_eq!(lane.segments(20, 40), [Segment { start: 20, end: 40, state: State::Runnable }]);
        assert_eq!(lane.waits()[0].1, 20);
        let is_known = |lane: &ThreadStates| lane.wait(20, 40).waking.is_some();
        // The waking came before the thread entered the system call that it waits in, or ran.
        for earlier in [17, 9] {
            lane.wakings.entries[0].at = earlier;
            assert!(!is_known(&lane), "{earlier}");
        }
        lane.wakings.entries[0].at = 19;
        lane.wakings.known = vec![(0, 19), (30, 45)];
        assert!(!is_known(&lane), "others may be missing");
    }

    #[test]
    fn wait_for_calltap_is_marked_to_its_end() {
        let mut lane = lane();
        lane.switches[1].to = Tracing;
        let State::Blocked(wait) = lane.segments(20, 40).remove(0).state else { panic!("it waits") };
        assert!(wait.is_tracing && lane.segments(20, 40).len() == 1 && lane.waits().is_empty());
    }

    #[test]
    fn a_call_that_began_before_is_known_by_its_return() {
        assert_eq!(lane().within(16), Within::NoSystemCall);
        assert_eq!(lane().within(10), Within::Unknown);
        assert_eq!(lane().within(42), Within::NoSystemCall);
        let mut lane = lane();
        lane.calls.entries.remove(0);
        assert_eq!(lane.within(20), Within::SystemCall(0, None));
    }
}

//! Hands the context switches of the session's threads from the kernel to the consumer.

use crate::output::Output;
use crate::waits::holds::Holds;
use crate::waits::thread_ids::ThreadIds;
use calltap_process::clock;
use calltap_sched::{Change, Refused, Sched};
use calltap_trace::{RunState, Scheduling, Switch, ThreadId};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// Maximum number of switches that are kept of a thread that has recorded nothing yet: more than it
/// makes until its first events are read.
const UNCLAIMED: usize = 4096;
/// Silent threads are forgotten once there are this many more threads than twice those with events.
const UNCLAIMED_THREADS: usize = 1024;
/// Longest time between a stop of a thread by calltap and the note of it.
const NOTED_NS: u64 = 100_000_000;
/// Time without a switch after which such a thread is silent.
const SILENT_NS: u64 = 10_000_000_000;

/// The switches of a thread.
struct ThreadSwitches {
    /// Switches that were not handed over.
    switches: Vec<Switch>,
    /// State after the last switch.
    state: RunState,
    /// Time of the last switch.
    last: u64,
    /// Whether the thread is only assumed to have run when it was first watched. Its first switch
    /// may prove otherwise.
    is_assumed: bool,
    /// Time at which the recorder found that the thread has recorded events.
    claimed: Option<u64>,
    holds: Holds,
}

impl ThreadSwitches {
    fn new(assumed: Option<u64>) -> ThreadSwitches {
        let mut lane = ThreadSwitches {
            switches: Vec::new(),
            state: RunState::Unknown,
            last: 0,
            is_assumed: assumed.is_some(),
            claimed: None,
            holds: Holds::default(),
        };
        if let Some(at) = assumed {
            (lane.state, lane.last) = (RunState::Running, at);
            lane.switches.push(Switch { at, to: RunState::Running });
        }
        lane
    }

    fn push(&mut self, switch: Switch) {
        if std::mem::take(&mut self.is_assumed) && matches!(switch.to, RunState::Running | RunState::Unknown)
        {
            // The thread starts to run, so it did not run before; or it may have done so in lost
            // switches.
            self.switches.clear();
            self.state = RunState::Unknown;
        }
        // A thread with two perf events, its own and an inherited one, reports each switch twice.
        if switch.to != self.state {
            self.switches.push(switch);
            (self.state, self.last) = (switch.to, switch.at.max(self.last));
        }
        if self.claimed.is_none() && self.switches.len() >= 2 * UNCLAIMED {
            self.switches.drain(..UNCLAIMED);
        }
    }

    /// Removes and returns the switches until `at`, unless the first state is only assumed. The
    /// thread goes on from there as another program's.
    fn split(&mut self, at: u64) -> Option<Vec<Switch>> {
        let later = self.switches.split_off(self.switches.partition_point(|switch| switch.at <= at));
        let earlier = self.take(at);
        let mut rest = ThreadSwitches::new(None);
        rest.switches.push(Switch { at, to: self.holds.state() });
        rest.switches.extend(later);
        (rest.state, rest.last) = (self.state, self.last.max(at));
        *self = rest;
        earlier
    }

    /// Removes the last switch until `until`, if with it the thread has left its processor just
    /// before: calltap may have stopped the thread, and notes that a moment later.
    fn hold_back(&mut self, until: u64) -> Option<Switch> {
        let is_new = |last: &&Switch| until.saturating_sub(last.at) < NOTED_NS;
        let is_off = |last: &&Switch| matches!(last.to, RunState::Runnable | RunState::Blocked);
        self.switches.last().filter(is_new).filter(is_off)?;
        self.switches.pop()
    }

    /// Makes all waits unknown.
    fn doubt(&mut self) {
        let unknown = |switch: &mut Switch| {
            if matches!(switch.to, RunState::Runnable | RunState::Blocked) {
                switch.to = RunState::Unknown;
            }
        };
        self.switches.iter_mut().for_each(unknown);
    }

    /// Returns the complete switches until `until`; `None` while the first state is only assumed.
    fn take(&mut self, until: u64) -> Option<Vec<Switch>> {
        // The thread's events were seen after it ran to record them; before that, the assumed state
        // may be wrong.
        if self.is_assumed && self.claimed.is_none_or(|claimed| until < claimed) {
            return None;
        }
        self.is_assumed = false;
        let switches = std::mem::take(&mut self.switches);
        Some(self.holds.tell(switches, until))
    }
}

/// Takes the switches of all threads, and hands those of the session's threads to the consumer.
pub(crate) struct Switches {
    sched: Sched,
    lanes: HashMap<u32, ThreadSwitches>,
    /// Threads that were watched from the start and have made no switch.
    first: BTreeSet<u32>,
    ids: ThreadIds<()>,
    /// Time until which switches were read.
    until: u64,
}

impl Switches {
    pub(crate) fn new(mut sched: Sched) -> Switches {
        let first = sched.stream.take_threads();
        let (until, ids) = (sched.stream.since(), ThreadIds::default());
        Switches { until, sched, lanes: HashMap::new(), first, ids }
    }

    fn lane<'l>(
        lanes: &'l mut HashMap<u32, ThreadSwitches>,
        first: &mut BTreeSet<u32>,
        since: u64,
        tid: u32,
    ) -> &'l mut ThreadSwitches {
        lanes.entry(tid).or_insert_with(|| ThreadSwitches::new(first.remove(&tid).then_some(since)))
    }

    /// Notes that a thread, whose id is `tid` in calltap's pid namespace, has recorded events.
    pub(crate) fn claim(&mut self, thread: ThreadId, tid: u32) {
        self.ids.claim(thread, tid, ());
        let lane = Self::lane(&mut self.lanes, &mut self.first, self.sched.stream.since(), tid);
        lane.claimed = Some(clock::monotonic_ns());
    }

    /// Whether a thread with this id has recorded events.
    pub(crate) fn has_claimed(&self, tid: u32) -> bool {
        self.ids.owner(tid).is_some()
    }

    /// Returns the last name that a thread of the session has got while it was recorded.
    pub(crate) fn name_of(&self, thread: ThreadId) -> Option<String> {
        self.sched.name_of(self.ids.get(thread)?.0)
    }

    /// Hands over the switches of the thread with this id until `at`. Later ones are those of
    /// another program's thread.
    pub(crate) fn replace(&mut self, tid: u32, at: u64, output: &mut Output<'_>) {
        let Some(thread) = self.ids.owner(tid) else { return };
        self.ids.remove(thread);
        if let Some(switches) = self.lanes.get_mut(&tid).and_then(|lane| lane.split(at)) {
            output.switches(thread, &switches, at);
        }
    }

    /// Whether one of the kernel's rings is to be read soon.
    pub(crate) fn is_filling(&self) -> bool {
        self.sched.stream.is_filling()
    }

    /// Reads the kernel's rings.
    pub(crate) fn read(&mut self) {
        let Self { sched, lanes, first, until, .. } = self;
        let since = sched.stream.since();
        *until = sched.stream.read(&mut |change| Self::change(lanes, first, since, change));
        let claimed = lanes.values().filter(|lane| lane.claimed.is_some()).count();
        if lanes.len() > 2 * claimed + UNCLAIMED_THREADS {
            lanes.retain(|_, lane| lane.claimed.is_some() || lane.last + SILENT_NS > *until);
        }
    }

    fn change(
        lanes: &mut HashMap<u32, ThreadSwitches>,
        first: &mut BTreeSet<u32>,
        since: u64,
        change: Change<Switch>,
    ) {
        match change {
            Change::Of(tid, switch) => Self::lane(lanes, first, since, tid).push(switch),
            Change::Lost { from: at, .. } => {
                first.clear();
                lanes.values_mut().for_each(|lane| lane.push(Switch { at, to: RunState::Unknown }));
            }
            Change::LostOf { tid, from: at, .. } => {
                Self::lane(lanes, first, since, tid).push(Switch { at, to: RunState::Unknown });
            }
        }
    }

    /// Notes that calltap held a thread, in nanoseconds of CLOCK_MONOTONIC: it was off its
    /// processor because of that. To be called between reading and handing over; a later call with
    /// the same number replaces the earlier.
    pub(crate) fn hold(&mut self, tid: u32, number: u64, time: RangeInclusive<u64>) {
        let Self { lanes, first, sched, .. } = self;
        Self::lane(lanes, first, sched.stream.since(), tid).holds.add(number, time);
    }

    /// Makes all waits read last unknown: some of them may have been stops by calltap, of which
    /// the notes are missing.
    pub(crate) fn doubt(&mut self) {
        self.lanes.values_mut().for_each(ThreadSwitches::doubt);
    }

    /// Hands over the complete switches; with `all` also those that [a stop](Self::hold) noted
    /// later would change.
    pub(crate) fn hand_over(&mut self, all: bool, output: &mut Output<'_>) {
        for (thread, tid, ()) in self.ids.iter() {
            let Some(lane) = self.lanes.get_mut(&tid) else { continue };
            let held_back = if all { None } else { lane.hold_back(self.until) };
            let until = held_back.map_or(self.until, |switch| switch.at);
            if let Some(switches) = lane.take(until) {
                output.switches(thread, &switches, until);
            }
            lane.switches.extend(held_back);
        }
    }

    /// Hands over the last switches of a thread that has ended.
    pub(crate) fn end(&mut self, thread: ThreadId, output: &mut Output<'_>) {
        let Some((tid, ())) = self.ids.remove(thread) else { return };
        let Self { sched, lanes, first, .. } = self;
        let since = sched.stream.since();
        sched.stream.rest_of(tid, &mut |change| Self::change(lanes, first, since, change));
        if let Some(switches) = self.lanes.remove(&tid).and_then(|mut lane| lane.take(u64::MAX)) {
            output.switches(thread, &switches, clock::monotonic_ns());
        }
    }

    /// Returns the record of how many switches were lost.
    pub(crate) fn outcome(&self) -> Scheduling {
        Scheduling { refused: None, lost: self.sched.stream.lost() }
    }
}

/// Returns the record of why no switches are read.
pub(crate) fn refusal(refused: &Refused) -> Scheduling {
    Scheduling { refused: Some(refused.to_string()), lost: 0 }
}

#[cfg(test)]
mod tests {
    use super::RunState::*;
    use super::*;

    fn lane(assumed: Option<u64>, switches: &[(u64, RunState)]) -> ThreadSwitches {
        let mut lane = ThreadSwitches::new(assumed);
        switches.iter().for_each(|(at, to)| lane.push(Switch { at: *at, to: *to }));
        lane
    }

    fn told(lane: &mut ThreadSwitches, until: u64) -> Option<Vec<(u64, RunState)>> {
        Some(lane.take(until)?.iter().map(|switch| (switch.at, switch.to)).collect())
    }

    #[test]
    fn a_thread_that_first_leaves_was_running_and_one_that_first_comes_was_not() {
        assert_eq!(told(&mut lane(Some(5), &[(9, Blocked)]), 20), Some(vec![(5, Running), (9, Blocked)]));
        assert_eq!(told(&mut lane(Some(5), &[(9, Running)]), 20), Some(vec![(9, Running)]));
        assert_eq!(told(&mut lane(None, &[(9, Runnable)]), 20), Some(vec![(9, Runnable)]));
        let lost = [(9, Unknown), (12, Blocked)];
        assert_eq!(told(&mut lane(Some(5), &lost), 20), Some(vec![(12, Blocked)]));
    }

    #[test]
    fn thread_without_switches_ran_if_events_were_recorded() {
        let mut quiet = lane(Some(5), &[]);
        assert_eq!(told(&mut quiet, 20), None, "it may sleep");
        quiet.claimed = Some(15);
        assert_eq!(told(&mut quiet, 14), None, "it may have come back after that");
        assert_eq!(told(&mut quiet, 15), Some(vec![(5, Running)]));
        assert_eq!(told(&mut quiet, 30), Some(vec![]));
    }

    #[test]
    fn thread_that_executes_another_program_keeps_its_state() {
        let mut old = lane(None, &[(1, Running), (5, Blocked), (9, Running), (12, Blocked)]);
        let earlier = old.split(7).expect("its states are known");
        assert_eq!(earlier.len(), 2);
        assert_eq!(told(&mut old, 20), Some(vec![(7, Blocked), (9, Running), (12, Blocked)]));
    }

    #[test]
    fn state_of_a_thread_that_may_just_have_been_stopped_is_held_back() {
        let mut stopped = lane(None, &[(1, Running), (5, Blocked)]);
        let off = Switch { at: 5, to: Blocked };
        assert_eq!(stopped.hold_back(20), Some(off));
        assert_eq!(told(&mut stopped, 5), Some(vec![(1, Running)]));
        stopped.switches.push(off);
        stopped.holds.add(1, 30..=30);
        stopped.push(Switch { at: 40, to: Running });
        assert_eq!(stopped.hold_back(50), None);
        assert_eq!(told(&mut stopped, 50), Some(vec![(5, Tracing), (40, Running)]));
        stopped.push(Switch { at: 60, to: Blocked });
        assert_eq!(stopped.hold_back(60 + NOTED_NS), None, "it sleeps");
    }

    #[test]
    fn duplicate_switches_count_once() {
        let twice = [(1, Running), (1, Running), (5, Blocked), (6, Blocked), (9, Running)];
        assert_eq!(told(&mut lane(None, &twice), 20), Some(vec![(1, Running), (5, Blocked), (9, Running)]));
    }

    #[test]
    fn a_thread_that_records_nothing_takes_bounded_memory() {
        let many: Vec<(u64, RunState)> =
            (0..100_000).map(|at| (at, RunState::ALL[at as usize % 3])).collect();
        let mut busy = lane(None, &many);
        assert!(busy.switches.len() <= 2 * UNCLAIMED);
        assert_eq!(told(&mut busy, 100_000).unwrap().last(), many.last());
    }
}

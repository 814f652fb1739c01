//! Off-CPU time of calls: how long their threads were blocked, or runnable without a processor.
//!
//! Nearly all calls end before their thread leaves its processor, and cost one comparison here. The
//! time of a context switch counts for the call that is innermost at the time, and when that ends,
//! for the call around it.

use calltap_trace::{RunState, Switch};
use std::collections::VecDeque;
use std::ops::AddAssign;

/// An interval in which a thread did not run, or in which its state is unknown. An interval of
/// unknown state ends at every event of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Beginning, ticks.
    pub from: u64,
    /// End, ticks.
    pub to: u64,
    /// State of the thread.
    pub state: RunState,
    /// Number of open calls.
    pub depth: u32,
}

/// Time in which a thread did not run, by state, or in which its state is unknown. In ticks, or the
/// unit that they were converted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Off {
    /// The thread was runnable but had no processor.
    pub runnable: u64,
    /// The thread slept, or waited for a processor after it was woken.
    pub blocked: u64,
    /// The thread's state was not recorded.
    pub unknown: u64,
    /// calltap had stopped the thread, or the thread waited for calltap.
    pub tracing: u64,
}

impl Off {
    /// Makes a value in which all time is unknown.
    pub(crate) const fn unknown(unknown: u64) -> Off {
        Off { runnable: 0, blocked: 0, unknown, tracing: 0 }
    }

    /// Whether the thread ran all the time.
    pub fn is_none(&self) -> bool {
        *self == Off::default()
    }

    /// Returns the part of `total` in which the thread ran; `None` if any time is unknown.
    pub fn cpu(&self, total: u64) -> Option<u64> {
        (self.unknown == 0).then(|| self.ran(total))
    }

    /// Returns `total` without all off-CPU and unknown time.
    pub fn ran(&self, total: u64) -> u64 {
        let off = [self.runnable, self.blocked, self.tracing, self.unknown];
        off.into_iter().fold(total, u64::saturating_sub)
    }

    /// Returns the time in which the thread did not run, or may not have run.
    pub fn sum(&self) -> u64 {
        let off = [self.runnable, self.blocked, self.tracing, self.unknown];
        off.into_iter().fold(0, u64::saturating_add)
    }

    /// Converts every part.
    pub fn map(self, convert: impl Fn(u64) -> u64) -> Off {
        Off {
            runnable: convert(self.runnable),
            blocked: convert(self.blocked),
            unknown: convert(self.unknown),
            tracing: convert(self.tracing),
        }
    }

    pub(crate) fn add(&mut self, state: RunState, ticks: u64) {
        match state {
            RunState::Running => {}
            RunState::Runnable => self.runnable += ticks,
            RunState::Blocked => self.blocked += ticks,
            RunState::Unknown => self.unknown += ticks,
            RunState::Tracing => self.tracing += ticks,
        }
    }
}

impl AddAssign for Off {
    fn add_assign(&mut self, other: Off) {
        self.runnable = self.runnable.saturating_add(other.runnable);
        self.blocked = self.blocked.saturating_add(other.blocked);
        self.unknown = self.unknown.saturating_add(other.unknown);
        self.tracing = self.tracing.saturating_add(other.tracing);
    }
}

/// An open call during which its thread was off the processor.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Number of open calls up to and including this one.
    depth: usize,
    /// Off-CPU time in the call itself and in its callees that ended.
    total: Off,
    /// Off-CPU time in the call itself.
    own: Off,
}

/// Follows the states of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Offs {
    /// Whether context switches are not recorded at all.
    is_absent: bool,
    /// Time of the next action: the next switch, or 0 if the thread is off the processor.
    due: u64,
    state: RunState,
    since: u64,
    next: VecDeque<Switch>,
    /// Open calls with off-CPU time, innermost last.
    frames: Vec<Frame>,
}

impl Default for Offs {
    fn default() -> Offs {
        Offs { is_absent: true, due: u64::MAX, ..Offs::new(&[]) }
    }
}

impl Offs {
    pub(crate) fn new(switches: &[Switch]) -> Offs {
        Offs {
            is_absent: false,
            due: 0,
            state: RunState::Unknown,
            since: 0,
            next: switches.iter().copied().collect(),
            frames: Vec::new(),
        }
    }

    /// Whether context switches are not recorded at all.
    #[inline(always)]
    pub(crate) fn is_absent(&self) -> bool {
        self.is_absent
    }

    /// Appends later switches.
    pub(crate) fn add(&mut self, switches: &[Switch]) {
        self.next.extend(switches);
        if !self.is_absent && self.state == RunState::Running {
            self.due = self.next.front().map_or(u64::MAX, |switch| switch.at);
        }
    }

    /// Advances to `now`, with `depth` calls open.
    #[inline(always)]
    pub(crate) fn pass(&mut self, now: u64, depth: usize, each: impl FnMut(&Stretch)) {
        if now >= self.due {
            self.switch(now, depth, each);
        }
    }

    #[cold]
    fn switch(&mut self, now: u64, depth: usize, mut each: impl FnMut(&Stretch)) {
        let mut off = Off::default();
        loop {
            let next = self.next.front().copied().filter(|switch| switch.at <= now);
            let until = next.map_or(now, |switch| switch.at);
            off.add(self.state, until.saturating_sub(self.since));
            if self.state != RunState::Running && until > self.since {
                let (from, to, state) = (self.since, until, self.state);
                each(&Stretch { from, to, state, depth: depth as u32 });
            }
            self.since = until.max(self.since);
            let Some(switch) = next else { break };
            self.next.pop_front();
            self.state = switch.to;
        }
        let ahead = self.next.front().map_or(u64::MAX, |switch| switch.at);
        self.due = if self.state == RunState::Running { ahead } else { 0 };
        if depth > 0 && !off.is_none() {
            let frame = self.frame(depth);
            frame.total += off;
            frame.own += off;
        }
    }

    fn frame(&mut self, depth: usize) -> &mut Frame {
        let at = self.frames.partition_point(|frame| frame.depth < depth);
        if self.frames.get(at).is_none_or(|frame| frame.depth != depth) {
            self.frames.insert(at, Frame { depth, total: Off::default(), own: Off::default() });
        }
        &mut self.frames[at]
    }

    /// Closes the innermost of `depth` open calls and returns its off-CPU time, in total and in
    /// itself alone.
    #[inline(always)]
    pub(crate) fn close(&mut self, depth: usize, total: u64, own: u64) -> (Off, Off) {
        if self.is_absent {
            return (Off::unknown(total), Off::unknown(own));
        }
        match self.frames.last() {
            Some(frame) if frame.depth >= depth => {
                let (off, own_off) = self.close_frame(depth);
                // The kernel stamps a switch before it shows it. Where a switch came too late to be
                // counted for its call, the states are not known.
                let fits = |off: Off, time| off.sum() <= time;
                if fits(off, total) && fits(own_off, own) {
                    return (off, own_off);
                }
                (Off::unknown(total), Off::unknown(own))
            }
            _ => (Off::default(), Off::default()),
        }
    }

    #[cold]
    fn close_frame(&mut self, depth: usize) -> (Off, Off) {
        let Some(Frame { total, own, .. }) = self.frames.pop() else { return Default::default() };
        if depth > 1 {
            self.frame(depth - 1).total += total;
        }
        (total, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Call, Ending, Stack, Totals, Visitor};
    use RunState::*;
    use calltap_trace::{Event, EventKind, SiteId, ThreadId};
    use proptest::prelude::*;

    #[derive(Default)]
    struct Seen(Vec<Call>);

    impl Visitor for Seen {
        fn close(&mut self, _: ThreadId, call: &Call) {
            self.0.push(*call);
        }
    }

    fn switches(of: &[(u64, RunState)]) -> Vec<Switch> {
        of.iter().map(|(at, to)| Switch { at: *at, to: *to }).collect()
    }

    /// Returns the calls of one thread: `site > 0` enters that function, 0 returns from the
    /// innermost.
    fn calls(known: Option<&[(u64, RunState)]>, events: &[(u64, u32)]) -> Vec<Call> {
        let mut stack = known.map_or_else(Stack::default, |known| Stack::switching(&switches(known)));
        let (mut seen, mut totals) = (Seen::default(), Totals::default());
        for (ticks, site) in events {
            let top = stack.top().unwrap_or(SiteId(0));
            let event = match site {
                0 => Event { ticks: *ticks, site: top, kind: EventKind::Exit { pops: 1 } },
                site => Event { ticks: *ticks, site: SiteId(*site), kind: EventKind::Entry },
            };
            stack.feed(ThreadId(0), &event, &mut seen, &mut totals);
        }
        stack.finish(ThreadId(0), Ending::Running, &mut seen, &mut totals);
        seen.0
    }

    fn off(runnable: u64, blocked: u64, unknown: u64) -> Off {
        Off { runnable, blocked, unknown, tracing: 0 }
    }

    #[test]
    fn off_cpu_time_counts_for_innermost_and_enclosing_calls() {
        let known = [(0, Running), (25, Blocked), (35, Running), (60, Runnable), (64, Running)];
        let calls = calls(Some(&known), &[(10, 1), (20, 2), (40, 0), (50, 3), (55, 0), (90, 0)]);
        let of: Vec<(u32, Off, Off)> =
            calls.iter().map(|call| (call.site.0, call.off, call.self_off)).collect();
        let inner = off(0, 10, 0);
        assert_eq!(
            of,
            [(2, inner, inner), (3, off(0, 0, 0), off(0, 0, 0)), (1, off(4, 10, 0), off(4, 0, 0))]
        );
        assert_eq!(calls[2].off.cpu(calls[2].total), Some(80 - 14));
    }

    #[test]
    fn time_that_calltap_took_is_neither_the_threads_work_nor_its_waits() {
        let known = [(0, Running), (15, Tracing), (25, Running), (30, Blocked), (33, Running)];
        let calls = calls(Some(&known), &[(10, 1), (20, 2), (40, 0), (50, 0)]);
        let tracing = |blocked, tracing| Off { runnable: 0, blocked, unknown: 0, tracing };
        assert_eq!(
            (calls[0].off, calls[1].off, calls[1].self_off),
            (tracing(3, 5), tracing(3, 10), tracing(0, 5))
        );
        assert_eq!(calls[1].off.cpu(calls[1].total), Some(40 - 3 - 10));
    }

    #[test]
    fn unrecorded_time_is_unknown() {
        let all = calls(None, &[(10, 1), (20, 2), (40, 0), (50, 0)]);
        assert_eq!((all[0].off, all[1].off, all[1].self_off), (off(0, 0, 20), off(0, 0, 40), off(0, 0, 20)));
        assert_eq!(all[1].off.cpu(40), None);
        let late = calls(Some(&[(30, Running), (45, Unknown)]), &[(10, 1), (20, 2), (40, 0), (50, 0)]);
        assert_eq!(
            (late[0].off, late[1].off, late[1].self_off),
            (off(0, 0, 10), off(0, 0, 25), off(0, 0, 15))
        );
    }

    proptest! {
        /// For any calls and switches: the parts of a call are no longer than the call, and contain
        /// those of its callees.
        #[test]
        fn sums_hold(
            steps in proptest::collection::vec((0..50_u64, 0..4_u32), 1..60),
            changes in proptest::collection::vec((0..80_u64, 0..4_usize), 0..40),
        ) {
            let mut at = 0;
            let known: Vec<(u64, RunState)> =
                changes.iter().map(|(step, state)| { at += step; (at, RunState::ALL[*state]) }).collect();
            let mut at = 0;
            let events: Vec<(u64, u32)> = steps.iter().map(|(step, site)| { at += step; (at, *site) }).collect();
            let state_at = |tick: u64| known.iter().rev().find(|(at, _)| *at <= tick).map_or(Unknown, |known| known.1);
            for call in calls(Some(&known), &events) {
                let mut expected = Off::default();
                (call.start..call.end).for_each(|tick| expected.add(state_at(tick), 1));
                prop_assert_eq!(call.off, expected);
                let own = call.self_off;
                prop_assert!(own.runnable + own.blocked + own.unknown <= call.self_ticks);
            }
        }
    }
}

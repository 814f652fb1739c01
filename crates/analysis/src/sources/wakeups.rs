//! Wakeups of threads: where the trace has them, a wait ends with its wakeup, and the thread then
//! waits for a processor.
//!
//! Context switches alone show when a thread sleeps and when it runs again. Every source of events
//! that has wakeups adds them to its context switches by [`Wakeups::divide`], so all views agree.

use calltap_trace::{KernelLog, RunState, Switch, SystemCall, Waking};

/// The kernel's records of one thread. Times are in ticks.
#[derive(Clone, Copy)]
pub(crate) struct Wakeups<'a> {
    pub(crate) switches: &'a [Switch],
    pub(crate) wakings: &'a KernelLog<Waking>,
    pub(crate) calls: &'a KernelLog<SystemCall>,
}

impl<'a> Wakeups<'a> {
    /// Returns the wakeup that ended a wait, if it is known: the wait began at `since`, and the
    /// thread ran again at `end`.
    pub(crate) fn of_wait(self, since: u64, end: u64) -> Option<&'a Waking> {
        let at = self.wakings.entries.partition_point(|waking| waking.at <= since);
        let waking = self.wakings.entries.get(at).filter(|waking| waking.at <= end);
        waking.or_else(|| self.before_sleep(since, at))
    }

    /// Returns the wakeup of a thread that was woken while it was about to leave its processor,
    /// which the kernel reports later: the newest of the `wakings` before, if the thread has
    /// neither run anew since, nor entered or left a system call.
    fn before_sleep(self, since: u64, wakings: usize) -> Option<&'a Waking> {
        let waking = self.wakings.entries.get(wakings.checked_sub(1)?)?;
        let is_between = |at: u64| waking.at < at && at < since;
        let next = self.switches.partition_point(|switch| switch.at <= waking.at);
        let is_other = self.switches.get(next).is_some_and(|switch| is_between(switch.at));
        let next = self.calls.entries.partition_point(|call| call.at <= waking.at);
        let is_other = is_other || self.calls.entries.get(next).is_some_and(|call| is_between(call.at));
        (!is_other && self.wakings.knows(waking.at, since)).then_some(waking)
    }

    /// Returns the context switches with one more for each wakeup: from it on the thread is
    /// runnable.
    pub(crate) fn divide(self) -> Vec<Switch> {
        let mut divided = Vec::with_capacity(2 * self.switches.len());
        for (index, switch) in self.switches.iter().enumerate() {
            let end = self.switches.get(index + 1).map_or(u64::MAX, |next| next.at);
            let waking = (switch.to == RunState::Blocked).then(|| self.of_wait(switch.at, end)).flatten();
            match waking.map(|waking| waking.at) {
                Some(at) if at <= switch.at => divided.push(Switch { to: RunState::Runnable, ..*switch }),
                Some(at) if at < end => divided.extend([*switch, Switch { at, to: RunState::Runnable }]),
                _ => divided.push(*switch),
            }
        }
        divided
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::*;

    fn waking(at: u64) -> Waking {
        Waking { at, interrupt: false, pid: 1, tid: 2, comm: String::new() }
    }

    #[test]
    fn a_thread_is_runnable_from_its_wakeup_on() {
        let states =
            [(10, Running), (20, Blocked), (50, Running), (60, Runnable), (70, Running), (80, Blocked)];
        let switches = states.map(|(at, to)| Switch { at, to });
        let calls = KernelLog::default();
        let divide = |at: &[u64]| {
            let wakings =
                KernelLog { entries: at.iter().map(|at| waking(*at)).collect(), known: vec![(0, 100)] };
            let divided = Wakeups { switches: &switches, wakings: &wakings, calls: &calls }.divide();
            divided.into_iter().map(|switch| (switch.at, switch.to)).collect::<Vec<_>>()
        };
        assert_eq!(divide(&[]), states);
        let mut expected = states.to_vec();
        expected.insert(2, (30, Runnable));
        assert_eq!(divide(&[30]), expected);
        // A wakeup at the moment at which the thread runs again, and one of a thread that runs.
        assert_eq!(divide(&[50, 72]), [&states[..5], &[(80, Runnable)]].concat());
        // Woken on the way to sleep, and while the recording ends.
        expected = states.to_vec();
        expected[1].1 = Runnable;
        expected.push((90, Runnable));
        assert_eq!(divide(&[15, 90]), expected);
    }
}

//! When calltap held threads of the session: it had stopped them, or they waited for the recorder.

use crate::shm::Shared;
use calltap_abi::waits::{self, COUNT};
use calltap_process::clock;
use calltap_process::ptrace::standstill::Watch;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::*;

/// Base of the numbers of standstills, which are moments at which calltap had stopped a thread;
/// numbers below it are those of waits.
const STANDSTILLS: u64 = 1 << 32;

/// A time for which calltap held a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HeldTime {
    /// Index of the process; `None`: `tid` is an id in the recorder's namespace.
    pub(super) process: Option<u32>,
    /// Id of the thread in its process's namespace.
    pub(super) tid: u32,
    /// Number of the standstill or wait. A later `HeldTime` with the same number replaces this one.
    pub(super) number: u64,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub(super) time: RangeInclusive<u64>,
}

/// Finds when threads were held.
pub(super) struct HeldThreads {
    watch: Watch,
    standstills: u64,
    /// Number of the next wait.
    next: u32,
    /// Numbers of waits that have not ended.
    open: Vec<u32>,
}

impl HeldThreads {
    /// Begins to watch. Waits that the table still has are reported, too: a program that is started
    /// waits before its first event.
    pub(super) fn begin(shared: &Shared) -> HeldThreads {
        let begun = shared.control().waits.load(Acquire);
        let next = begun - begun.min(COUNT as u32);
        HeldThreads { watch: Watch::begin(), standstills: STANDSTILLS, next, open: Vec::new() }
    }

    /// Gives each hold that began or changed since the last call. Returns false if more waits have
    /// begun than the table keeps. `ahead`: how far a process's clock is ahead of the machine's, in
    /// nanoseconds, as threads read the clock of their own time namespace.
    pub(super) fn take(
        &mut self,
        shared: &Shared,
        ahead: &dyn Fn(u32) -> i64,
        give: &mut dyn FnMut(HeldTime),
    ) -> bool {
        for moment in self.watch.take() {
            self.standstills += 1;
            let (number, time) = (self.standstills, moment.at..=moment.at);
            give(HeldTime { process: None, tid: moment.tid, number, time });
        }
        let Some(all) = shared.waits() else { return true };
        let (now, end) = (clock::monotonic_ns(), shared.control().waits.load(Acquire));
        let begun = end.wrapping_sub(self.next);
        let kept = begun.min(COUNT as u32);
        self.open.extend((0..kept).map(|back| end.wrapping_sub(kept - back)));
        self.next = end;
        self.open.retain(|number| match waits::slot(all, *number).read(*number) {
            Some(wait) => {
                let here = |ns: u64| ns.saturating_add_signed(-ahead(wait.process));
                let time = here(wait.from)..=here(wait.to);
                let goes_on = *time.end() >= now;
                give(HeldTime {
                    process: Some(wait.process),
                    tid: wait.tid,
                    number: u64::from(*number),
                    time,
                });
                goes_on
            }
            // The thread is filling the slot in, unless a later wait has used it.
            None => end.wrapping_sub(*number) <= COUNT as u32,
        });
        begun == kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_abi::waits::WaitInterval;

    #[test]
    fn wait_is_reported_until_its_end() {
        let shared = Shared::map(&tempfile::tempfile().unwrap(), 8, 8).unwrap();
        let mut held = HeldThreads::begin(&shared);
        let mut take = || {
            let mut all = Vec::new();
            let complete = held.take(&shared, &|_| 0, &mut |held| all.push(held));
            let waits = all.into_iter().filter(|held| held.process.is_some());
            (waits.map(|held| (held.tid, held.number, held.time)).collect::<Vec<_>>(), complete)
        };
        let waits = shared.waits().unwrap();
        let begin = |tid, to| {
            let number = shared.control().waits.fetch_add(1, AcqRel);
            waits[number as usize % COUNT].begin(number, WaitInterval { process: 0, tid, from: 5, to });
        };
        begin(7, u64::MAX);
        assert_eq!(take(), (vec![(7, 0, 5..=u64::MAX)], true));
        assert_eq!(take(), (vec![(7, 0, 5..=u64::MAX)], true), "it goes on");
        waits[0].end(0, 9);
        assert_eq!(take(), (vec![(7, 0, 5..=9)], true));
        assert_eq!(take(), (vec![], true));
        (0..=COUNT as u32).for_each(|tid| begin(tid, 9));
        let (all, complete) = take();
        assert_eq!((all.len(), complete), (COUNT, false));
    }
}

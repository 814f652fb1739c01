//! When this process has found threads of others stopped by it (ptrace): they waited for calltap then, and for nothing of their own.
//!
//! A moment is enough: whatever kept a thread off its processor in that moment was the stop, from its beginning to its end.

use crate::clock::monotonic_ns;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Moments that are kept for readers that are late.
const MOST: usize = 1 << 16;

/// A thread stood still, as it was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standstill {
    /// The thread.
    pub tid: u32,
    /// When, nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
}

struct Log {
    readers: usize,
    /// Number of the first moment.
    first: u64,
    moments: VecDeque<Standstill>,
}

static LOG: Mutex<Log> = Mutex::new(Log { readers: 0, first: 0, moments: VecDeque::new() });

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn end(&self) -> u64 {
        self.first + self.moments.len() as u64
    }
}

/// Notes that a thread stands still now, if that is of interest.
pub(crate) fn note(tid: u32) {
    let mut log = log();
    if log.readers == 0 {
        return;
    }
    if log.moments.len() >= MOST {
        log.moments.pop_front();
        log.first += 1;
    }
    // The time is taken under the lock: what a reader was not told is later than its reading.
    log.moments.push_back(Standstill { tid, at: monotonic_ns() });
}

/// Reads the moments from its beginning on.
#[derive(Debug)]
pub struct Watch {
    next: u64,
}

impl Watch {
    /// From now on, moments are noted.
    pub fn begin() -> Watch {
        let mut log = log();
        log.readers += 1;
        Watch { next: log.end() }
    }

    /// Those since this was last asked.
    pub fn take(&mut self) -> Vec<Standstill> {
        let log = log();
        let known = self.next.saturating_sub(log.first) as usize;
        self.next = log.end();
        log.moments.iter().skip(known).copied().collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut log = log();
        log.readers -= 1;
        if log.readers == 0 {
            log.first = log.end();
            log.moments = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_is_told_once() {
        // No thread has these ids; other tests of this process stop theirs.
        const TID: u32 = 0x7fff_fff0;
        let of = |watch: &mut Watch| -> Vec<u32> {
            watch.take().into_iter().filter_map(|moment| moment.tid.checked_sub(TID)).collect()
        };
        let mut one = Watch::begin();
        note(TID);
        let mut other = Watch::begin();
        note(TID + 1);
        assert_eq!((of(&mut one), of(&mut other)), (vec![0, 1], vec![1]));
        note(TID + 2);
        assert_eq!((of(&mut one), of(&mut one)), (vec![2], vec![]));
    }
}

//! The moments at which this process found threads stopped by ptrace: they were waiting for
//! calltap, not for anything of their own.
//!
//! One moment of a stop is enough: the stop caused the interval off the processor that contains it,
//! from beginning to end.

use crate::clock::monotonic_ns;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of moments kept for late readers.
const MAX_MOMENTS: usize = 1 << 16;

/// A moment at which a stopped thread stood still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standstill {
    /// The thread.
    pub tid: u32,
    /// Time, nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
}

struct Log {
    readers: usize,
    /// Number of the first moment in `moments`.
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

/// Records that a thread stands still now, if there is a reader.
pub(crate) fn note(tid: u32) {
    let mut log = log();
    if log.readers == 0 {
        return;
    }
    if log.moments.len() >= MAX_MOMENTS {
        log.moments.pop_front();
        log.first += 1;
    }
    // The time is read under the lock, so that a moment which a reader has not received is later
    // than its reading.
    log.moments.push_back(Standstill { tid, at: monotonic_ns() });
}

/// A reader of the moments noted since its creation.
#[derive(Debug)]
pub struct Watch {
    next: u64,
}

impl Watch {
    /// Creates a reader. While there is one, moments are noted.
    pub fn begin() -> Watch {
        let mut log = log();
        log.readers += 1;
        Watch { next: log.end() }
    }

    /// Returns the moments since the last call.
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
    fn each_reader_receives_each_stop_once() {
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

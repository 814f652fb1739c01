//! Waits of the program's threads for the recorder: for a chunk, or for an answer. The recorder
//! causes such a delay, not the program.
//!
//! A ring holds the latest waits. A thread takes the next number
//! ([`Control::waits`](crate::Control::waits)), fills in the slot of that number, and finally
//! writes the number into it. At the end of its wait it writes the time, unless the slot belongs to
//! a later wait by then.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Number of waits that are kept.
pub const COUNT: usize = 8192;
/// Bytes of all waits.
pub const SIZE: usize = COUNT * size_of::<Wait>();

const _: () = assert!(size_of::<Wait>() == 32);

/// Slot of a wait in the ring.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Wait {
    /// Number of the wait, plus one; 0 while the slot is filled in.
    number: AtomicU32,
    /// Index of the process.
    process: AtomicU32,
    /// Id of the thread, in the process's pid namespace.
    tid: AtomicU32,
    _pad: AtomicU32,
    /// Beginning of the wait, nanoseconds of CLOCK_MONOTONIC.
    from: AtomicU64,
    /// End of the wait; the latest possible end until the wait has ended.
    to: AtomicU64,
}

/// A wait, as read from a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitInterval {
    /// Index of the process.
    pub process: u32,
    /// Id of the thread, in the process's pid namespace.
    pub tid: u32,
    /// Beginning of the wait, nanoseconds of CLOCK_MONOTONIC.
    pub from: u64,
    /// End of the wait, as far as it is known.
    pub to: u64,
}

/// Returns the slot of a number.
pub fn slot(waits: &[Wait; COUNT], number: u32) -> &Wait {
    &waits[number as usize % COUNT]
}

impl Wait {
    /// Notes the beginning of a wait.
    pub fn begin(&self, number: u32, interval: WaitInterval) {
        self.number.store(0, Release);
        self.process.store(interval.process, Relaxed);
        self.tid.store(interval.tid, Relaxed);
        self.from.store(interval.from, Relaxed);
        self.to.store(interval.to, Relaxed);
        self.number.store(number.wrapping_add(1), Release);
    }

    /// Notes the end of the wait with this number.
    pub fn end(&self, number: u32, at: u64) {
        if self.number.load(Acquire) == number.wrapping_add(1) {
            self.to.store(at, Release);
        }
    }

    /// Returns the wait with this number; None if it is being filled in, or the slot belongs to a
    /// later wait.
    pub fn read(&self, number: u32) -> Option<WaitInterval> {
        let is_it = || self.number.load(Acquire) == number.wrapping_add(1);
        let interval = is_it().then(|| WaitInterval {
            process: self.process.load(Relaxed),
            tid: self.tid.load(Relaxed),
            from: self.from.load(Relaxed),
            to: self.to.load(Acquire),
        });
        interval.filter(|_| is_it())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_until_its_slot_is_used_again() {
        let waits: [Wait; COUNT] = std::array::from_fn(|_| Wait::default());
        let interval = |to| WaitInterval { process: 1, tid: 2, from: 10, to };
        assert_eq!(slot(&waits, 0).read(0), None);
        slot(&waits, 5).begin(5, interval(100));
        assert_eq!(slot(&waits, 5).read(5), Some(interval(100)));
        slot(&waits, 5).end(5, 20);
        assert_eq!(slot(&waits, 5).read(5), Some(interval(20)));
        let later = 5 + COUNT as u32;
        slot(&waits, later).begin(later, interval(200));
        slot(&waits, 5).end(5, 30);
        assert_eq!((slot(&waits, 5).read(5), slot(&waits, later).read(later)), (None, Some(interval(200))));
    }
}

//! When threads of the program wait for the recorder: for a chunk, or for an answer. What they do not do meanwhile is the recorder's doing.
//!
//! A ring of the latest waits. A thread takes the next number ([`Control::waits`](crate::Control::waits)), fills in the slot of that number, and writes the number
//! into it last; at the end of its wait it writes when that was, unless the slot belongs to a later wait by then.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Waits that are kept.
pub const COUNT: usize = 8192;
/// Bytes of all of them.
pub const SIZE: usize = COUNT * size_of::<Wait>();

const _: () = assert!(size_of::<Wait>() == 32);

/// A wait of a thread.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Wait {
    /// Its number, plus one; 0 while it is filled in.
    number: AtomicU32,
    /// Index of the process.
    process: AtomicU32,
    /// The thread, in the process's pid namespace.
    tid: AtomicU32,
    _pad: AtomicU32,
    /// When it began, nanoseconds of CLOCK_MONOTONIC.
    from: AtomicU64,
    /// When it was over; until that is known, when it will be over at the latest.
    to: AtomicU64,
}

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Index of the process.
    pub process: u32,
    /// The thread, in the process's pid namespace.
    pub tid: u32,
    /// When the wait began, nanoseconds of CLOCK_MONOTONIC.
    pub from: u64,
    /// When it is over, as far as that is known.
    pub to: u64,
}

/// The slot of a number.
pub fn slot(waits: &[Wait; COUNT], number: u32) -> &Wait {
    &waits[number as usize % COUNT]
}

impl Wait {
    /// A wait begins.
    pub fn begin(&self, number: u32, told: Told) {
        self.number.store(0, Release);
        self.process.store(told.process, Relaxed);
        self.tid.store(told.tid, Relaxed);
        self.from.store(told.from, Relaxed);
        self.to.store(told.to, Relaxed);
        self.number.store(number.wrapping_add(1), Release);
    }

    /// The wait of this number is over.
    pub fn end(&self, number: u32, at: u64) {
        if self.number.load(Acquire) == number.wrapping_add(1) {
            self.to.store(at, Release);
        }
    }

    /// The wait of this number; None: it is being filled in, or the slot belongs to a later one.
    pub fn read(&self, number: u32) -> Option<Told> {
        let is_it = || self.number.load(Acquire) == number.wrapping_add(1);
        let told = is_it().then(|| Told {
            process: self.process.load(Relaxed),
            tid: self.tid.load(Relaxed),
            from: self.from.load(Relaxed),
            to: self.to.load(Acquire),
        });
        told.filter(|_| is_it())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_until_its_slot_is_used_again() {
        let waits: [Wait; COUNT] = std::array::from_fn(|_| Wait::default());
        let told = |to| Told { process: 1, tid: 2, from: 10, to };
        assert_eq!(slot(&waits, 0).read(0), None);
        slot(&waits, 5).begin(5, told(100));
        assert_eq!(slot(&waits, 5).read(5), Some(told(100)));
        slot(&waits, 5).end(5, 20);
        assert_eq!(slot(&waits, 5).read(5), Some(told(20)));
        let later = 5 + COUNT as u32;
        slot(&waits, later).begin(later, told(200));
        slot(&waits, 5).end(5, 30);
        assert_eq!((slot(&waits, 5).read(5), slot(&waits, later).read(later)), (None, Some(told(200))));
    }
}

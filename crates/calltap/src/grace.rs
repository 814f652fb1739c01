//! Grace periods: after one, no thread uses any more what was removed before it.
//!
//! A thread that enters the trampoline counts itself in one of two columns, and subtracts itself
//! from the same one when it leaves. A thread that has removed something (a combination from its
//! cell, say) directs new threads to the other column and waits until the old one is empty, twice:
//! a thread may have chosen its column long before it counted itself. Then all threads inside have
//! entered later, and cannot have seen what was removed. No list of threads is necessary. Each
//! thread counts in its own line, as far as there are enough: it stores 1 and 0 there, so that a
//! thread that leaves the trampoline for good at any instruction (siglongjmp out of a signal
//! handler) can correct its line. A line stays with its thread pointer, which later threads reuse.
//! Threads without a line of their own share one.
//!
//! A thread that has not counted itself yet (it was interrupted in a gate, or before the first
//! instruction) is not waited for: it will use the present contents of its cell. That is why gates
//! and cells are never freed, and why a cell is read after the count.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

pub(crate) const LINES: usize = 1024;

/// The counters of one thread, or of several that share them.
#[repr(C, align(64))]
pub(crate) struct Line {
    pub readers: [AtomicU64; 2],
    /// Number of calls that were not reported.
    pub recursions: AtomicU64,
    /// Thread pointer of the only thread that counts here.
    pub owner: AtomicU64,
}

impl Line {
    const fn new() -> Line {
        let [first, second, recursions, owner] = [const { AtomicU64::new(0) }; 4];
        Line { readers: [first, second], recursions, owner }
    }
}

pub(crate) static READERS: [Line; LINES] = [const { Line::new() }; LINES];

/// The line of threads whose own line belongs to another thread.
pub(crate) static SHARED: Line = Line::new();

fn lines() -> impl Iterator<Item = &'static Line> {
    READERS.iter().chain([&SHARED])
}

/// The column in which threads count: 0 or 1.
pub(crate) static PHASE: AtomicU64 = AtomicU64::new(0);

/// Guard for readers outside of the trampoline: while it exists, nothing that its thread may see is
/// freed.
pub(crate) struct Reader(&'static AtomicU64);

impl Reader {
    pub(crate) fn enter() -> Reader {
        let counter = &SHARED.readers[PHASE.load(SeqCst) as usize & 1];
        counter.fetch_add(1, SeqCst);
        Reader(counter)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Waits until every thread that was inside has left at least once. One caller at a time, which is
/// not inside itself.
pub(crate) fn synchronize() {
    for _ in 0..2 {
        let old = PHASE.fetch_xor(1, SeqCst) as usize & 1;
        for line in lines() {
            let mut pause = 0;
            while line.readers[old].load(SeqCst) != 0 {
                match pause {
                    0..10 => std::thread::yield_now(),
                    _ => std::thread::sleep(Duration::from_micros(20 * pause.min(100))),
                }
                pause += 1;
            }
        }
    }
}

/// Returns the number of calls that were not reported, as they were made inside a callback or by
/// this library itself.
pub fn recursions() -> u64 {
    lines().map(|line| line.recursions.load(Relaxed)).sum()
}

/// Resets the counts in a forked child, which has no other threads.
pub(crate) fn forget_threads() {
    lines().flat_map(|line| &line.readers).for_each(|readers| readers.store(0, SeqCst));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn waits_for_threads_inside() {
        static LEFT: AtomicBool = AtomicBool::new(false);
        synchronize();
        let reader = Reader::enter();
        let waiter = std::thread::spawn(|| {
            synchronize();
            assert!(LEFT.load(SeqCst), "a grace period ended too early");
        });
        std::thread::sleep(Duration::from_millis(30));
        LEFT.store(true, SeqCst);
        drop(reader);
        waiter.join().expect("the waiter");
    }
}

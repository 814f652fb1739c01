//! A stream of kernel events: reads the rings of all processors, decodes them, and orders the
//! records by time.

use crate::order::{self, Change, Order, Taken, Timed};
use calltap_process::clock::monotonic_ns;
use std::collections::BTreeSet;
use std::time::Duration;

/// Time after which an event is certainly in the result of [`Stream::read`].
pub const SETTLE: Duration = Duration::from_nanos(2 * order::SETTLED_NS);

/// Rings that the kernel writes to, one for each processor.
pub(crate) trait Rings<T>: Send {
    /// Whether a ring is so full that it should be read soon.
    fn is_filling(&self) -> bool;
    /// Empties the rings and returns their contents.
    fn take(&mut self) -> Vec<Taken<T>>;
}

/// A recording of events of threads, which ends when it is dropped.
pub struct Stream<T> {
    rings: Box<dyn Rings<T>>,
    order: Order<T>,
    /// Threads that existed at the start.
    threads: BTreeSet<u32>,
    /// Time from which all of them are watched.
    since: u64,
}

impl<T: Timed + Clone> Stream<T> {
    /// Creates a stream of these threads and those that start later.
    pub(crate) fn new(rings: Box<dyn Rings<T>>, threads: BTreeSet<u32>) -> Stream<T> {
        Stream { rings, order: Order::default(), threads, since: monotonic_ns() }
    }

    /// Takes the threads that are watched from [`Self::since`] on. Their first change implies their
    /// state before it.
    pub fn take_threads(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.threads)
    }

    /// Returns the time from which the first threads are watched, nanoseconds of CLOCK_MONOTONIC.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Whether a ring is so full that it should be read soon.
    pub fn is_filling(&self) -> bool {
        self.rings.is_filling()
    }

    /// Hands out the changes since the last call, oldest first. Returns the time until which they
    /// are complete: about a millisecond ago, nanoseconds of CLOCK_MONOTONIC.
    pub fn read(&mut self, give: &mut dyn FnMut(Change<T>)) -> u64 {
        let now = monotonic_ns();
        let taken = self.rings.take();
        self.order.take(taken, now, monotonic_ns(), give)
    }

    /// Hands out the last changes of a thread that has ended, after [`Self::read`].
    pub fn rest_of(&mut self, tid: u32, give: &mut dyn FnMut(Change<T>)) {
        self.order.rest_of(tid, give);
    }

    /// Returns the number of lost records.
    pub fn lost(&self) -> u64 {
        self.order.lost
    }
}

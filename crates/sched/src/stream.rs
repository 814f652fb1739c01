//! A stream of what the kernel tells: rings of all processors, read, understood and put in order.

use crate::order::{self, Change, Order, Taken, Timed};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::time::Duration;

/// What has happened is complete in [`Stream::read`] after this time.
pub const SETTLE: Duration = Duration::from_nanos(2 * order::SETTLED_NS);

/// Rings that the kernel writes to, one for each processor.
pub(crate) trait Rings<T>: Send {
    /// Whether one of them has so much in it that it is to be read soon.
    fn is_filling(&self) -> bool;
    /// Empties them: what each held.
    fn take(&mut self) -> Vec<Taken<T>>;
}

/// Records something of threads until it is dropped.
pub struct Stream<T> {
    rings: Box<dyn Rings<T>>,
    order: Order<T>,
    /// The threads that were there already,
    threads: BTreeSet<u32>,
    /// and when all of them were watched.
    since: u64,
}

impl<T: Timed + Clone> Stream<T> {
    /// From now on, of these threads and those that begin.
    pub(crate) fn new(rings: Box<dyn Rings<T>>, threads: BTreeSet<u32>) -> Stream<T> {
        Stream { rings, order: Order::default(), threads, since: now() }
    }

    /// The threads that are watched from [`Self::since`] on: what they did before their first change follows from that.
    pub fn take_threads(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.threads)
    }

    /// Since when the threads that were there at first are watched, nanoseconds of CLOCK_MONOTONIC.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Whether a ring has so much in it that it is to be read soon.
    pub fn is_filling(&self) -> bool {
        self.rings.is_filling()
    }

    /// Hands out what has happened since this was last done, oldest first. Until when all of it was: about a millisecond ago, nanoseconds of
    /// CLOCK_MONOTONIC.
    pub fn read(&mut self, give: &mut dyn FnMut(Change<T>)) -> u64 {
        let now = now();
        let taken = self.rings.take();
        self.order.take(taken, now, give)
    }

    /// Hands out the last changes of a thread that has ended, after [`Self::read`].
    pub fn rest_of(&mut self, tid: u32, give: &mut dyn FnMut(Change<T>)) {
        self.order.rest_of(tid, give);
    }

    /// Records that were lost until now.
    pub fn lost(&self) -> u64 {
        self.order.lost
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

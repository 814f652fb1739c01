//! A stream of what the kernel tells: rings of all processors, read, understood and put in order.

use crate::order::{self, Change, Order, Taken, Timed};
use crate::perf::Ring;
use crate::records::Item;
use crate::rings::Opening;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// What has happened is complete in [`Stream::read`] after this time.
pub const SETTLE: Duration = Duration::from_nanos(2 * order::SETTLED_NS);

/// Understands what rings hold.
type Decode<T> = dyn Fn(&[u8], &mut dyn FnMut(Item<T>)) + Send;

/// Records something of threads until it is dropped.
pub struct Stream<T> {
    /// By processor.
    rings: Vec<(u32, Ring)>,
    /// Events that write to another's ring.
    _events: Vec<OwnedFd>,
    order: Order<T>,
    bytes: Vec<u8>,
    decode: Box<Decode<T>>,
    /// Bytes of a record, at most.
    record: usize,
    /// The threads that were there already,
    threads: BTreeSet<u32>,
    /// and when all of them had their events.
    since: u64,
}

impl<T: Timed + Clone> Stream<T> {
    pub(crate) fn new(opening: Opening, record: usize, decode: Box<Decode<T>>) -> Stream<T> {
        let Opening { rings, events, threads, .. } = opening;
        let (order, bytes, since) = (Order::default(), Vec::new(), now());
        Stream { rings, _events: events, order, bytes, decode, record, threads, since }
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
        self.rings.iter().any(|(_, ring)| ring.is_filling())
    }

    /// Hands out what has happened since this was last done, oldest first. Until when all of it was: about a millisecond ago, nanoseconds of
    /// CLOCK_MONOTONIC.
    pub fn read(&mut self, give: &mut dyn FnMut(Change<T>)) -> u64 {
        let now = now();
        let Self { rings, order, bytes, decode, record, .. } = self;
        let mut take = |(_, ring): &mut (u32, Ring)| {
            bytes.clear();
            let was_full = ring.read(bytes, *record);
            let mut items = Vec::new();
            decode(bytes, &mut |item| items.push(item));
            Taken { items, was_full }
        };
        let taken = rings.iter_mut().map(&mut take).collect();
        order.take(taken, now, give)
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

//! Perf events, and the rings that they write to.

use crate::order::Taken;
use crate::perf::Ring;
use crate::records::Item;
use crate::rings::Opening;
use crate::stream::Rings;
use std::os::fd::OwnedFd;

/// Decoder of a ring's bytes.
type Decode<T> = dyn Fn(&[u8], &mut dyn FnMut(Item<T>)) + Send;

/// Events that record until they are dropped.
pub(crate) struct Events<T> {
    /// Rings by processor.
    rings: Vec<(u32, Ring)>,
    /// Events that write to the ring of another.
    _others: Vec<OwnedFd>,
    bytes: Vec<u8>,
    decode: Box<Decode<T>>,
    /// Maximum bytes of a record.
    record: usize,
}

impl<T> Events<T> {
    pub(crate) fn new(opening: Opening, record: usize, decode: Box<Decode<T>>) -> Events<T> {
        let Opening { rings, events, .. } = opening;
        Events { rings, _others: events, bytes: Vec::new(), decode, record }
    }
}

impl<T> Rings<T> for Events<T> {
    fn is_filling(&self) -> bool {
        self.rings.iter().any(|(_, ring)| ring.is_filling())
    }

    fn take(&mut self) -> Vec<Taken<T>> {
        let Self { rings, bytes, decode, record, .. } = self;
        let mut take = |(_, ring): &mut (u32, Ring)| {
            bytes.clear();
            let was_full = ring.read(bytes, *record);
            let mut items = Vec::new();
            decode(bytes, &mut |item| items.push(item));
            Taken { items, was_full }
        };
        rings.iter_mut().map(&mut take).collect()
    }
}

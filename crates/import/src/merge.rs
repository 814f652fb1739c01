//! Merges the events of all processors by time.

use crate::decode::{Decoder, Item};
use crate::error::Error;
use crate::stream::Stream;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Several streams, each in order.
pub(crate) struct Merged<'f> {
    streams: Vec<Stream<'f>>,
    /// Time of the next event of each stream; among equal times, the first stream's event is next.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'f> Merged<'f> {
    pub(crate) fn new(mut streams: Vec<Stream<'f>>, decoder: &mut Decoder) -> Result<Merged<'f>, Error> {
        let mut next = BinaryHeap::new();
        for (place, stream) in streams.iter_mut().enumerate() {
            next.extend(stream.time(decoder)?.map(|time| Reverse((time, place))));
        }
        Ok(Merged { streams, next })
    }

    /// Takes the next event.
    pub(crate) fn take(&mut self, decoder: &mut Decoder) -> Result<Option<Item>, Error> {
        let Some(Reverse((_, place))) = self.next.pop() else { return Ok(None) };
        let Some(stream) = self.streams.get_mut(place) else { return Ok(None) };
        let item = stream.take();
        self.next.extend(stream.time(decoder)?.map(|time| Reverse((time, place))));
        Ok(item)
    }
}

//! Decodes the events of an encoder without a file in between, for views that read them as they
//! come.

use crate::codec::Damage;
use crate::codec::decode::Decoder;
use crate::event::Batch;
use crate::writer::ThreadEncoder;

/// Decoder of encoders' events; it keeps its buffers from one to the next.
#[derive(Default)]
pub struct Unpacker {
    decoder: Decoder,
    raw: Vec<u8>,
    batch: Batch,
}

impl Unpacker {
    /// Empties `encoder`, as [`crate::TraceWriter::events`] does, and hands its events to `take`, a
    /// chunk at a time. An idle encoder frees its memory.
    pub fn events(&mut self, encoder: &mut ThreadEncoder, mut take: impl FnMut(&Batch)) {
        self.batch.thread = encoder.thread();
        for sealed in encoder.take() {
            self.raw.clear();
            self.raw.extend_from_slice(&sealed.structure);
            self.raw.extend_from_slice(&sealed.ticks);
            match self.decoder.decode(&self.raw, &sealed.span, &mut self.batch) {
                Ok(()) => take(&self.batch),
                // The bytes are this encoder's own, and all encoded events can be decoded: a test
                // of the codec checks that.
                Err(Damage(what)) => debug_assert!(false, "{what}"),
            }
            encoder.recycle(sealed);
        }
        encoder.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind};
    use crate::meta::{SiteId, ThreadId};

    #[test]
    fn pushed_events_are_unpacked_once_in_order() {
        let (mut encoder, mut unpacker) = (ThreadEncoder::new(ThreadId(3)), Unpacker::default());
        let event = |n: u64| Event {
            ticks: 1_000 + 7 * n,
            site: SiteId((n / 2 % 5) as u32),
            kind: if n.is_multiple_of(2) { EventKind::Entry } else { EventKind::Exit { pops: 1 } },
        };
        for events in [0..0, 0..2, 2..300_000, 300_000..300_001] {
            events.clone().for_each(|n| encoder.push(event(n)));
            let mut got = Vec::new();
            unpacker.events(&mut encoder, |batch| {
                assert_eq!(batch.thread, ThreadId(3));
                got.extend_from_slice(&batch.events);
            });
            assert!(got == events.clone().map(event).collect::<Vec<_>>(), "{events:?}");
            assert!(encoder.is_empty());
        }
    }
}

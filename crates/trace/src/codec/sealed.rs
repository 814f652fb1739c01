//! The streams of a chunk, and their order in its payload.

use super::callers::Callers;
use super::streams::{put_varint, zigzag};

/// The fields of a chunk's header about its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) events: u32,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) max_site: u32,
}

/// The streams of one chunk. The first two have a byte for each event.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) tokens: Vec<u8>,
    pub(super) ticks: Vec<u8>,
    pub(super) far: Vec<u8>,
    pub(super) spelt: Vec<u8>,
    pub(super) details: Vec<u8>,
    pub(super) values: Vec<u8>,
    /// Place behind the last event that has values.
    pub(super) valued: usize,
}

/// A chunk that is ready to be compressed.
pub(crate) struct Sealed {
    pub(crate) span: Span,
    pub(crate) structure: Vec<u8>,
    pub(crate) ticks: Vec<u8>,
}

impl Streams {
    /// Moves all streams but the ticks to `structure`, one after the other, and leaves them empty
    /// for the next chunk.
    pub(super) fn structure(&mut self, first: u64, callers: &mut Callers, mut structure: Vec<u8>) -> Vec<u8> {
        let Self { tokens, ticks: _, far, spelt, details, values, valued } = self;
        *valued = 0;
        structure.clear();
        structure.reserve(64 + tokens.len() / 4 + spelt.len() + details.len() + far.len() + values.len());
        put_varint(&mut structure, first);
        put_varint(&mut structure, callers.len() as u64);
        for stream in [&*spelt, details, far] {
            put_varint(&mut structure, stream.len() as u64);
        }
        let mut before = 0_u64;
        for caller in callers.drain() {
            put_varint(&mut structure, zigzag(caller.wrapping_sub(before)));
            before = caller;
        }
        tokens.resize(tokens.len().next_multiple_of(4), 0);
        pack(tokens, &mut structure);
        tokens.clear();
        for stream in [spelt, details, far, values] {
            structure.append(stream);
        }
        structure
    }
}

/// Packs tokens of two bits, four to a byte.
fn pack(tokens: &[u8], out: &mut Vec<u8>) {
    let (fours, _) = tokens.as_chunks::<4>();
    out.extend(fours.iter().map(|&four| {
        let word = u32::from_le_bytes(four);
        (word | word >> 6 | word >> 12 | word >> 18) as u8
    }));
}

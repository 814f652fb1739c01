//! A chunk's streams, and how they stand one after the other.

use super::streams::{put_varint, zigzag};
use super::{TICK_FAR_CODE, TICK_LONG, TICK_SHORT};

/// What the header of a chunk says about its events.
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
}

/// A chunk that only waits to be compressed.
pub(crate) struct Sealed {
    pub(crate) span: Span,
    pub(crate) structure: Vec<u8>,
    pub(crate) ticks: Vec<u8>,
}

impl Streams {
    /// All but the ticks as one run of bytes, in `structure`; leaves them empty for the next chunk.
    pub(super) fn structure(
        &mut self,
        first: u64,
        callers: &mut Vec<u64>,
        mut structure: Vec<u8>,
    ) -> Vec<u8> {
        let Self { tokens, ticks: _, far, spelt, details } = self;
        structure.clear();
        structure.reserve(64 + tokens.len() / 4 + spelt.len() + details.len() + far.len());
        put_varint(&mut structure, first);
        put_varint(&mut structure, callers.len() as u64);
        for stream in [&*spelt, details, far] {
            put_varint(&mut structure, stream.len() as u64);
        }
        let mut before = 0_u64;
        for caller in callers.drain(..) {
            put_varint(&mut structure, zigzag(caller.wrapping_sub(before)));
            before = caller;
        }
        tokens.resize(tokens.len().next_multiple_of(4), 0);
        pack(tokens, &mut structure);
        tokens.clear();
        for stream in [spelt, details, far] {
            structure.append(stream);
        }
        structure
    }
}

/// A difference to the event before that is not one byte, or not a step forward.
#[inline(never)]
pub(super) fn put_far(far: &mut Vec<u8>, delta: u64, ticks: u64) -> u8 {
    if (TICK_SHORT..TICK_LONG).contains(&delta) && ticks >= delta {
        let past = delta - TICK_SHORT;
        far.push(past as u8);
        return (TICK_SHORT + (past >> 8)) as u8;
    }
    let (code, bytes) = match delta {
        TICK_LONG..=0xffff => (0, 2),
        0x1_0000..=0xff_ffff => (1, 3),
        0x100_0000..=0xffff_ffff => (2, 4),
        _ => (3, 8),
    };
    far.extend_from_slice(&delta.to_le_bytes()[..bytes]);
    TICK_FAR_CODE + code
}

/// Four two-bit tokens a byte.
fn pack(tokens: &[u8], out: &mut Vec<u8>) {
    let (fours, _) = tokens.as_chunks::<4>();
    out.extend(fours.iter().map(|&four| {
        let word = u32::from_le_bytes(four);
        (word | word >> 6 | word >> 12 | word >> 18) as u8
    }));
}

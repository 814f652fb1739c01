//! Events to bytes and back: prediction, streams, and how time is stored.
//!
//! `docs/trace-format.md` draws the result; [`encode`] and [`decode`] mirror each other around [`predictor`].

pub(crate) mod decode;
pub(crate) mod encode;
mod predictor;
pub(crate) mod sealed;
mod streams;
mod symbol;

/// What is wrong with a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Damage(pub(crate) &'static str);

/// Events after which a chunk is closed.
pub(crate) const CHUNK_EVENTS: usize = 1 << 16;

/// Tick deltas below this are one byte.
const TICK_SHORT: u64 = 224;
/// Up to here the byte holds the high part, and one byte of the far stream the low one.
const TICK_PAGES: u64 = 24;
/// First delta that needs two or more far bytes.
const TICK_LONG: u64 = TICK_SHORT + (TICK_PAGES << 8);
/// Far bytes of the codes from 248 on; the last one holds any difference, backwards too.
const TICK_FAR: [usize; 4] = [2, 3, 4, 8];
/// First code with two or more far bytes.
const TICK_FAR_CODE: u8 = (TICK_SHORT + TICK_PAGES) as u8;

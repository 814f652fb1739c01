//! Converts events to bytes and back: prediction, streams, and the encoding of time.
//!
//! `docs/reference/trace-format.md` draws the result; [`encode`] and [`decode`] mirror each other
//! around [`predictor`].

mod callers;
pub(crate) mod decode;
pub(crate) mod encode;
mod predictor;
pub(crate) mod sealed;
pub(crate) mod streams;
mod symbol;
mod ticks;

/// The damage found in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Damage(pub(crate) &'static str);

/// Number of events after which a chunk is closed.
pub(crate) const CHUNK_EVENTS: usize = 1 << 16;

//! Events to bytes and back: prediction, streams, and how time is stored.
//!
//! `docs/reference/trace-format.md` draws the result; [`encode`] and [`decode`] mirror each other around [`predictor`].

mod callers;
pub(crate) mod decode;
pub(crate) mod encode;
mod predictor;
pub(crate) mod sealed;
pub(crate) mod streams;
mod symbol;
mod ticks;

/// What is wrong with a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Damage(pub(crate) &'static str);

/// Events after which a chunk is closed.
pub(crate) const CHUNK_EVENTS: usize = 1 << 16;

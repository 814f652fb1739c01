//! What the profile tracer keeps: for every thread and site, how often it was called and how long the calls took.
//!
//! A thread's records lie in chunks of the common pool, [`SITES`] to a chunk, linked from [`crate::ThreadEntry::first_profile`] on; the chunk's
//! header says for which sites. Only the thread itself, and its signal handlers, add to them, each field by one instruction. The recorder reads
//! them at any time, and takes them when the thread has ended.
//!
//! Between entry and return, a call's beginning is in the shadow-stack slot of the word below its return slot: `1 | ticks | events`, a bit that tells it from whatever
//! else may lie there, the clock, and whether the return shall be recorded as an event, too. That word is free: frames of functions begin and end at multiples of 16
//! bytes, so no return slot is next to another. Where some code does not keep to that, a call counts, but not its time.

use crate::sizes::{CHUNK_DATA, CHUNK_SIZE};
use crate::stub;
use core::sync::atomic::AtomicU64;

/// Sites (by number of their stubs) of which the records are in one chunk.
pub const SITES: usize = 1024;
/// Chunks that a thread can have.
pub const CHUNKS: usize = stub::COUNT / SITES;

/// What is kept of one site by one thread.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Record {
    /// Calls.
    pub hits: AtomicU64,
    /// Calls that have returned, of which the time is known. Those that were left by longjmp or an exception never do, nor do those entered by a jump:
    /// their time is their caller's.
    pub timed: AtomicU64,
    /// Their time together, in ticks of the session's clock.
    pub total: AtomicU64,
    /// The longest of them.
    pub max: AtomicU64,
    /// The sum of the squares of their times, low half,
    pub squares_low: AtomicU64,
    /// and high half.
    pub squares_high: AtomicU64,
}

const _: () = assert!(size_of::<Record>() == 48);
const _: () = assert!(CHUNK_DATA + SITES * size_of::<Record>() <= CHUNK_SIZE);

/// Set in the shadow stack while a call is timed.
pub const TIMED: u32 = 63;

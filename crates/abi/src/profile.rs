//! Records of the profile tracer: for every thread and site, the number of calls and their
//! durations.
//!
//! A thread's records lie in chunks of the common pool, [`SITES`] to a chunk, linked from
//! [`crate::ThreadEntry::first_profile`] on; the chunk's header says for which sites. Only the
//! thread itself and its signal handlers add to them, each field by one instruction. The recorder
//! reads them at any time, and takes them when the thread has ended.
//!
//! Between entry and return, the shadow-stack slot of the word below the return slot holds
//! `1 | ticks | events`: a bit that distinguishes it from other contents, the clock, and whether
//! the return is to be recorded as an event, too. That word is free, as frames of functions begin
//! and end at multiples of 16 bytes, so no return slot is next to another. Where code breaks that
//! rule, a call counts, but not its time.

use crate::sizes::{CHUNK_DATA, CHUNK_SIZE};
use crate::stub;
use core::sync::atomic::AtomicU64;

/// Sites, by number of their stubs, with records in one chunk.
pub const SITES: usize = 1024;
/// Maximum number of chunks of a thread.
pub const CHUNKS: usize = stub::COUNT / SITES;

/// Record of one site and one thread.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Record {
    /// Number of calls.
    pub hits: AtomicU64,
    /// Calls that have returned, with a known duration. Calls left by longjmp or an exception never
    /// do, nor do calls entered by a jump: their time counts as their caller's.
    pub timed: AtomicU64,
    /// Total duration of these calls, in ticks of the session's clock.
    pub total: AtomicU64,
    /// Longest duration.
    pub max: AtomicU64,
    /// Sum of the squares of the durations, low half.
    pub squares_low: AtomicU64,
    /// Sum of the squares of the durations, high half.
    pub squares_high: AtomicU64,
}

const _: () = assert!(size_of::<Record>() == 48);
const _: () = assert!(CHUNK_DATA + SITES * size_of::<Record>() <= CHUNK_SIZE);

/// Bit set in the shadow stack while a call is timed.
pub const TIMED: u32 = 63;

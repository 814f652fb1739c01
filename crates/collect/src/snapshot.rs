//! Copies the rings of a session in overwrite mode while its threads continue to write to them.
//!
//! A thread writes to its newest chunk. It unlinks its oldest chunk to clear and reuse it, and
//! raises [`ThreadEntry::reuses`] before and after clearing. A chain is copied from its oldest
//! chunk on, faster than its thread clears chunks: the copy of the Nth chunk is whole if no more
//! than N were cleared since the chain was followed. Where more were, the copying thread has waited
//! for a processor, and starts again.
//!
//! Threads are copied one after the other, so each copy ends at another time. All are cut at one
//! moment, [`Copied::until`], from before the first copy: events that are on their way into a ring
//! meanwhile are behind it.

use crate::heartbeat;
use crate::shm::Shared;
use calltap_abi::{CHUNK_DATA, CHUNK_SIZE, CHUNKS_AT, Clock, ThreadEntry};
use calltap_process::clock::{self, monotonic_ns};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use std::thread;
use std::time::Duration;

/// Number of attempts to copy a thread's chain that the thread overtakes, and to copy the chains of
/// all threads.
const TIMES: u32 = 10;
/// Pause for a thread that has begun to clear a chunk, as it may wait for a processor.
const CLEARING: Duration = Duration::from_micros(100);

/// The contents of the rings at one moment.
#[derive(Debug)]
pub struct Copied {
    /// The copy.
    pub rings: Shared,
    /// The moment that the copy shows, in units of the session's clock. The rings may hold later
    /// events.
    pub until: u64,
    /// `until` in nanoseconds of CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// Number of threads that reused their chunks faster than these were copied, each time. The
    /// copy has none of their events.
    pub too_fast: u32,
}

/// Copies the rings of a session whose threads continue to record.
pub fn copy(from: &Shared) -> io::Result<Copied> {
    let rings = copy_tables(from.file())?;
    // The copying thread alone has a raised priority: encoding the copy later need not be fast.
    let copying = || {
        heartbeat::raise_priority();
        let last = (1..TIMES).map(|_| copy_threads(from, &rings)).find(|copied| copied.2 == 0);
        last.unwrap_or_else(|| copy_threads(from, &rings))
    };
    let copied = thread::scope(|scope| scope.spawn(copying).join());
    let (until, monotonic_ns, too_fast) = copied.map_err(|_| io::Error::other("the copying thread ended"))?;
    Ok(Copied { rings, until, monotonic_ns, too_fast })
}

/// Copies the chains of all threads. Returns the moment to cut at, in both units, and the number of
/// threads that were too fast.
fn copy_threads(from: &Shared, to: &Shared) -> (u64, u64, u32) {
    let (until, monotonic_ns) = moment(from);
    let entries = || to.threads().filter_map(|index| from.thread(index).zip(to.thread(index)));
    // A thread that reuses all of its chunks from here on keeps no event from before the moment.
    entries().for_each(|(from, to)| to.reuses.store(from.reuses.load(Acquire), Relaxed));
    let mut too_fast = 0;
    for (from_entry, to_entry) in entries() {
        let mut copies = (0..TIMES).map(|_| copy_thread((from, from_entry), (to, to_entry)));
        if copies.find(|copied| *copied != Copy::Overtaken) != Some(Copy::Whole) {
            to_entry.first_chunk.store(0, Relaxed);
            too_fast += 1;
        }
        // Sums grow in place: their chunks are not reused.
        chain(from, &from_entry.first_profile).into_iter().for_each(|chunk| copy_chunk(from, to, chunk));
    }
    (until, monotonic_ns, too_fast)
}

/// Returns the clock of a session in overwrite mode.
pub fn clock(shared: &Shared) -> Clock {
    match shared.control().clock.load(Relaxed) {
        clock if clock == Clock::Counter as u32 => Clock::Counter,
        clock if clock == Clock::Sparse as u32 => Clock::Sparse,
        _ => Clock::Tsc,
    }
}

/// Returns the present time, in units of the session's clock and in nanoseconds.
fn moment(shared: &Shared) -> (u64, u64) {
    match clock(shared) {
        Clock::Counter => (shared.control().counter.load(Acquire), monotonic_ns()),
        _ => {
            let pair = clock::pair();
            (pair.ticks, pair.monotonic_ns)
        }
    }
}

/// Copies the control file up to the chunks, to a file of the same size.
fn copy_tables(file: &File) -> io::Result<Shared> {
    let mut copy = File::from(memfd_create("calltap", MemfdFlags::CLOEXEC)?);
    let mut from = file.try_clone()?;
    let mut at = 0;
    // Only allocated parts are copied: the owner may have given the file any size.
    while at < CHUNKS_AT as u64
        && let Ok(start) = seek(&from, SeekFrom::Data(at))
        && start < CHUNKS_AT as u64
    {
        at = seek(&from, SeekFrom::Hole(start))?.min(CHUNKS_AT as u64);
        for file in [&mut from, &mut copy] {
            file.seek(io::SeekFrom::Start(start))?;
        }
        io::copy(&mut (&from).take(at.saturating_sub(start)), &mut copy)?;
    }
    copy.set_len(file.metadata()?.len())?;
    Shared::open(&copy)
}

/// Outcome of copying a thread's chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    /// The copy is whole.
    Whole,
    /// The thread has cleared a chunk before it was copied: another copy may be faster.
    Overtaken,
    /// The thread has reused all of its chunks since the moment to cut at: no earlier event is left
    /// to copy.
    Lapped,
}

/// Copies the chain of a thread.
fn copy_thread((from, from_entry): (&Shared, &ThreadEntry), (to, to_entry): (&Shared, &ThreadEntry)) -> Copy {
    let reuses = from_entry.reuses.load(Acquire);
    let cleared = || {
        fence(Acquire);
        from_entry.reuses.load(Relaxed).wrapping_sub(reuses).div_ceil(2) as usize
    };
    let chunks = chain(from, &from_entry.first_chunk);
    let used_again = reuses.wrapping_sub(to_entry.reuses.load(Relaxed)) / 2;
    to_entry.lost_entries.store(from_entry.lost_entries.load(Relaxed), Relaxed);
    to_entry.lost_exits.store(from_entry.lost_exits.load(Relaxed), Relaxed);
    if reuses % 2 == 1 || cleared() > 0 {
        thread::sleep(CLEARING);
        return Copy::Overtaken;
    }
    if used_again > 0 && used_again as usize >= chunks.len() {
        return Copy::Lapped;
    }
    let mut link = &to_entry.first_chunk;
    for (place, chunk) in chunks.into_iter().enumerate() {
        copy_chunk(from, to, chunk);
        let Some(header) = to.chunk_header(chunk).filter(|_| cleared() <= place) else {
            return Copy::Overtaken;
        };
        link.store(chunk + 1, Relaxed);
        link = &header.next;
    }
    // Cuts off chunks that were linked behind the last meanwhile.
    link.store(0, Relaxed);
    Copy::Whole
}

/// Returns the linked chunks, at most as many as the file has: the program can write to the links.
fn chain(shared: &Shared, first: &AtomicU32) -> Vec<u32> {
    let mut chunks = Vec::new();
    let mut link = first;
    while let Some(chunk) = link.load(Acquire).checked_sub(1)
        && let Some(header) = shared.chunk_header(chunk)
        && chunks.len() < shared.chunk_count() as usize
    {
        chunks.push(chunk);
        link = &header.next;
    }
    chunks
}

/// Copies a chunk that its thread may be writing to.
///
/// The first pass goes from the end to the start: a word that it finds was reserved after all words
/// in front of it, which it reads later. The second pass reads empty words up to the last found one
/// again: a thread stores the first word of an event last, so the others are there by then.
fn copy_chunk(from: &Shared, to: &Shared, chunk: u32) {
    let (Some(words), Some(copies)) = (from.chunk(chunk), to.chunk(chunk)) else { return };
    let data = CHUNK_DATA / 8..CHUNK_SIZE / 8;
    let mut end = data.start;
    for place in data.clone().rev() {
        let value = words[place].load(Acquire);
        copies[place].store(value, Relaxed);
        if value != 0 {
            end = end.max(place + 2);
        }
    }
    for place in data.start..end.min(data.end) {
        if has_empty_half(copies[place].load(Relaxed)) {
            copies[place].store(words[place].load(Relaxed), Relaxed);
        }
    }
    if let (Some(header), Some(copy)) = (from.chunk_header(chunk), to.chunk_header(chunk)) {
        copy.next.store(header.next.load(Relaxed), Relaxed);
        copy.part.store(header.part.load(Relaxed), Relaxed);
    }
}

/// Whether a half of the word is empty; the sparse clock's words are halves.
fn has_empty_half(word: u64) -> bool {
    word as u32 == 0 || word >> 32 == 0
}

#[cfg(test)]
mod tests;

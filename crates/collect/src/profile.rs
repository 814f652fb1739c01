//! Adds up the sums of the profile tracer by process and site, from the records of the program's
//! threads.

use crate::shm::Shared;
use calltap_abi::profile::{CHUNKS, SITES};
use calltap_abi::{CHUNK_DATA, ThreadEntry};
use calltap_trace::{ClockPair, Profile, SiteId};
use std::collections::HashMap;
use std::sync::atomic::Ordering::*;

/// Number of words in a record.
const WORDS: usize = size_of::<calltap_abi::profile::Record>() / 8;

/// Sums in ticks, by process and stub.
#[derive(Clone, Debug, Default)]
pub struct Sums(HashMap<(u32, u32), Sum>);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    hits: u64,
    timed: u64,
    total: u64,
    max: u64,
    squares: u128,
}

impl Sums {
    /// Adds the sums of a thread so far.
    pub fn add(&mut self, shared: &Shared, thread: &ThreadEntry) {
        let process = thread.process.load(Relaxed);
        for chunk in chunks(shared, thread) {
            let (Some(header), Some(words)) = (shared.chunk_header(chunk), shared.chunk(chunk)) else {
                continue;
            };
            let part = header.part.load(Relaxed) as usize;
            if part >= CHUNKS {
                continue;
            }
            let records = words[CHUNK_DATA / 8..].as_chunks::<WORDS>().0;
            for (site, record) in (part * SITES..).zip(&records[..SITES]) {
                let [hits, timed, total, max, low, high] = record.each_ref().map(|word| word.load(Relaxed));
                if hits > 0 {
                    let sum = self.0.entry((process, site as u32)).or_default();
                    sum.hits = sum.hits.saturating_add(hits);
                    sum.timed = sum.timed.saturating_add(timed);
                    sum.total = sum.total.saturating_add(total);
                    sum.max = sum.max.max(max);
                    sum.squares = sum.squares.saturating_add(u128::from(high) << 64 | u128::from(low));
                }
            }
        }
    }

    /// Adds the sums of a thread that has ended, and frees their memory.
    pub fn take(&mut self, shared: &Shared, thread: &ThreadEntry) {
        if thread.first_profile.load(Acquire) == 0 {
            return;
        }
        self.add(shared, thread);
        for chunk in chunks(shared, thread) {
            for word in shared.chunk(chunk).into_iter().flatten() {
                word.store(0, Relaxed);
            }
            shared.free_chunk(chunk);
        }
        thread.first_profile.store(0, Relaxed);
    }

    /// Returns the sums of all threads, ended and living.
    pub fn with_living(&self, shared: &Shared) -> Sums {
        let mut sums = self.clone();
        shared.thread_entries().for_each(|thread| sums.add(shared, thread));
        sums
    }

    /// Returns the sums in nanoseconds, by process and site. Two readings of the clock give the
    /// length of its ticks.
    pub fn rows(&self, first: ClockPair, last: ClockPair) -> Vec<Profile> {
        let ticks = last.ticks.saturating_sub(first.ticks);
        let ns = last.monotonic_ns.saturating_sub(first.monotonic_ns);
        let scale = if ticks == 0 { 1.0 } else { ns as f64 / ticks as f64 };
        let mut rows: Vec<Profile> = self
            .0
            .iter()
            .map(|((process, site), sum)| Profile {
                process: *process,
                site: SiteId(*site),
                hits: sum.hits,
                timed: sum.timed,
                total_ns: (sum.total as f64 * scale) as u64,
                max_ns: (sum.max as f64 * scale) as u64,
                squares_ns2: sum.squares as f64 * scale * scale,
            })
            .collect();
        rows.sort_unstable_by_key(|row| (row.process, row.site));
        rows
    }
}

/// Clears the sums of all threads. Calls that are added meanwhile may be lost.
pub fn reset(shared: &Shared) {
    for chunk in shared.thread_entries().flat_map(|thread| chunks(shared, thread)) {
        for word in shared.chunk(chunk).into_iter().flat_map(|words| &words[CHUNK_DATA / 8..]) {
            word.store(0, Relaxed);
        }
    }
}

/// Returns the chunks of a thread's records; none if there are too many, as the program can write
/// to the links.
fn chunks(shared: &Shared, thread: &ThreadEntry) -> Vec<u32> {
    let link = |word: u32| word.checked_sub(1);
    let mut next = link(thread.first_profile.load(Acquire));
    let mut chunks = Vec::new();
    while let Some(header) = next.and_then(|chunk| shared.chunk_header(chunk)) {
        chunks.extend(next);
        if chunks.len() > CHUNKS {
            return Vec::new();
        }
        next = link(header.next.load(Acquire));
    }
    chunks
}

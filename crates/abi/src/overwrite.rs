//! Overwrite mode: how a thread clears its oldest chunk before it writes there again.
//!
//! A word is loaded and stored; an exchange (always locked on x86) would cost three times as much. It has to be shown that no word
//! is written between the two, or that the outcome is one that an exchange has as well:
//!
//! - **The thread, in a signal handler that interrupts it here.** A hook stores where the cursor was. The chunk that is cleared was unlinked and has a successor, so the
//!   cursor is in a later one, and leaves that only for a chunk that follows it or that was free. The handler cannot unlink a chunk of its own: `Thread::busy` is set.
//! - **A hook that a handler has interrupted** between its reservation and its store: it goes on when the handler has returned, hence when this is over. It stores
//!   into a chunk that is another's part by then, as it did with an exchange.
//! - **The recorder** reads a living thread's chunks of this mode at the end only. It loads and stores likewise: that both take a word, or either, is what an
//!   exchange on one side leaves possible too.
//! - **A snapshot** copies chunks of living threads, and stores nothing into them. It sees by [`ThreadEntry::reuses`](crate::ThreadEntry::reuses) which were being cleared.
//!
//! `overwrite/model.rs` goes through all interleavings of a small ring, and finds the write where one of these reasons is taken away. A
//! program that leaves a handler for another context of the same thread while it clears, and comes back later, can store late: that word is then
//! cleared uncounted, where an exchange left it to be taken for an event of the chunk's next round.

use crate::event::{SPARSE_BLOCK, code};
use crate::sizes::{CHUNK_DATA, CHUNK_SIZE};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Codes of events that enter a function, a bit for each; and of those that return.
const ENTRIES: u32 = 1 << code::ENTRY
    | 1 << code::CALL
    | 1 << code::ENTRY_FROM
    | 1 << code::TAIL_ENTRY
    | 1 << code::TAIL_ENTRY_FROM
    | 1 << code::NESTED_ENTRY
    | 1 << code::GO_ENTRY
    | 1 << code::GO_ENTRY_FROM
    | 1 << code::GO_CALL;
const EXITS: u32 = 1 << code::EXIT | 1 << code::GO_EXIT;
/// Words of a cache line, and of a block of the sparse clock.
const LINE: usize = SPARSE_BLOCK / 8;

/// Events that a chunk had.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Forgotten {
    /// Calls.
    pub entries: u64,
    /// Returns.
    pub exits: u64,
}

impl Forgotten {
    #[inline(always)]
    fn count(&mut self, low: u32) {
        let code = low & code::MASK;
        self.entries += u64::from(ENTRIES >> code & 1);
        self.exits += u64::from(EXITS >> code & 1);
    }
}

/// Counts the events of a chunk that its thread has unlinked, and clears it. `sparse`: by that clock.
pub fn forget_events(chunk: &[AtomicU64; CHUNK_SIZE / 8], sparse: bool) -> Forgotten {
    let (_, words) = chunk.split_at(CHUNK_DATA / 8);
    let (lines, _) = words.as_chunks();
    if sparse {
        forget(lines, |forgotten, at, value| {
            if at > 0 {
                forgotten.count(value as u32);
                forgotten.count((value >> 32) as u32);
            }
        })
    } else {
        forget(lines, |forgotten, _, value| forgotten.count(value as u32))
    }
}

/// The same; `count` is told where in its line a word is.
#[inline(always)]
fn forget(lines: &[[AtomicU64; LINE]], count: impl Fn(&mut Forgotten, usize, u64)) -> Forgotten {
    let mut forgotten = Forgotten::default();
    for line in lines {
        for (at, word) in line.iter().enumerate() {
            let value = word.load(Relaxed);
            // Release: it stays behind the load, and behind the unlinking. On x86 that is any store.
            word.store(0, Release);
            count(&mut forgotten, at, value);
        }
    }
    forgotten
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk of these words, from the first one on, and what is forgotten of it.
    fn check(words: &[u64], sparse: bool, entries: u64, exits: u64) {
        let chunk = [const { AtomicU64::new(0) }; CHUNK_SIZE / 8];
        let header = u64::from(code::ENTRY);
        chunk[0].store(header, Relaxed);
        chunk[CHUNK_DATA / 8..].iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
        assert_eq!(forget_events(&chunk, sparse), Forgotten { entries, exits }, "{words:x?}");
        assert!(chunk[CHUNK_DATA / 8..].iter().all(|word| word.load(Relaxed) == 0));
        assert_eq!(chunk[0].load(Relaxed), header, "the header is not the events'");
    }

    #[test]
    fn calls_and_returns_are_counted_and_what_belongs_to_them_is_not() {
        let enters = [
            code::ENTRY,
            code::CALL,
            code::ENTRY_FROM,
            code::TAIL_ENTRY,
            code::TAIL_ENTRY_FROM,
            code::NESTED_ENTRY,
            code::GO_ENTRY,
            code::GO_ENTRY_FROM,
            code::GO_CALL,
        ];
        for low in 0..32 {
            let word = 0x1234_5678_0000_0000 | 77 << 5 | u64::from(low);
            let exits = [code::EXIT, code::GO_EXIT].contains(&low);
            check(&[word; 3], false, 3 * u64::from(enters.contains(&low)), 3 * u64::from(exits));
        }
        let all = [u64::from(code::ENTRY); (CHUNK_SIZE - CHUNK_DATA) / 8];
        check(&all, false, all.len() as u64, 0);
    }

    #[test]
    fn of_the_sparse_clock_both_halves_are_counted_and_times_are_not() {
        let both = u64::from(code::EXIT) << 32 | u64::from(code::ENTRY);
        check(&[both; 1], true, 0, 0);
        check(&[both; 8], true, 7, 7);
        check(&[both; 9], true, 7, 7);
        check(&[both; 10], true, 8, 8);
    }
}

//! Overwrite mode: how a thread clears its oldest chunk before it reuses it.
//!
//! A word is loaded, then stored; an exchange (always locked on x86) would take three times as
//! long. No word may be written between the two, unless an exchange has the same outcome:
//!
//! - **The thread itself, in a signal handler that interrupts the clearing.** A hook stores where
//!   the cursor was. The chunk was unlinked and has a successor, so the cursor is in a later chunk,
//!   and leaves that only for a following or a free one. The handler cannot unlink a chunk of its
//!   own, as `Thread::busy` is set.
//! - **A hook that a handler has interrupted** between its reservation and its store. It continues
//!   when the handler has returned, hence after the clearing. It then stores into a chunk that has
//!   another use, as it would with an exchange.
//! - **The recorder** reads a living thread's chunks only at the end in this mode. It also loads,
//!   then stores. Both sides or either may get the word, as with an exchange on one side.
//! - **A snapshot** copies chunks of living threads without storing into them.
//!   [`ThreadEntry::reuses`](crate::ThreadEntry::reuses) tells it which were being cleared.
//!
//! `overwrite/model.rs` explores all interleavings of a small ring, and finds the forbidden write
//! if one of these reasons is removed. A program may leave a handler for another context of the
//! same thread during the clearing, and return later. Its late store is then cleared uncounted,
//! where an exchange would leave it as an event of the chunk's next use.

use crate::event::{SPARSE_BLOCK, code};
use crate::sizes::{CHUNK_DATA, CHUNK_SIZE};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Codes of events that enter a function, a bit each; [`EXITS`] has those that return.
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

/// Events of a cleared chunk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Forgotten {
    /// Number of calls.
    pub entries: u64,
    /// Number of returns.
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

/// Counts the events of a chunk that its thread has unlinked, and clears it. `sparse`: whether it
/// has the layout of that clock.
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

/// Clears the words of a chunk. `count` receives each word's index in its line, and its value.
#[inline(always)]
fn forget(lines: &[[AtomicU64; LINE]], count: impl Fn(&mut Forgotten, usize, u64)) -> Forgotten {
    let mut forgotten = Forgotten::default();
    for line in lines {
        for (at, word) in line.iter().enumerate() {
            let value = word.load(Relaxed);
            // Release keeps the store behind the load, and behind the unlinking. On x86 every store
            // is one.
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

    /// Checks the counts of a chunk of these words, and that it is cleared.
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
    fn entries_and_returns_are_counted_without_their_operands() {
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
    fn sparse_words_count_both_halves_and_no_times() {
        let both = u64::from(code::EXIT) << 32 | u64::from(code::ENTRY);
        check(&[both; 1], true, 0, 0);
        check(&[both; 8], true, 7, 7);
        check(&[both; 9], true, 7, 7);
        check(&[both; 10], true, 8, 8);
    }
}

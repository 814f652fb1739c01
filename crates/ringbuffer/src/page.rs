//! A page: time of its first event, length of its data, events.
//!
//! An event begins with a word: 5 bits of kind, 27 of nanoseconds since the previous event. Kinds 1
//! to 28 are the number of words that follow; for longer events (kind 0) the next word has the
//! length in bytes, itself included. Kind 30 is not an event but a longer time: its word holds the
//! low 27 bits, the next word the others.

/// Size of a page, in bytes.
pub const PAGE_SIZE: usize = 4096;
/// A page.
pub type Page = [u8; PAGE_SIZE];
/// Length of the longest record that fits into every page.
pub const MAX_RECORD_LEN: usize = PAGE_SIZE - HEADER - COUNT - 3 * WORD;

/// Size of time and length, in bytes.
const HEADER: usize = 16;
const WORD: usize = 4;
/// Size of the number of missed events, which is behind the data.
const COUNT: usize = 8;
/// Flag in the length: events before this page are missing.
const MISSED: u64 = 1 << 31;
/// Flag in the length: the number of missing events follows the data.
const COUNTED: u64 = 1 << 30;
const DELTA_BITS: u32 = 27;
const EXTEND: u32 = 30;
/// Largest number of words that fits into the kind.
const MAX_SHORT_WORDS: usize = 28;
/// Longest time between two events of a page.
const MAX_GAP: u64 = (1 << (DELTA_BITS + 32)) - 1;

/// A page that is being filled.
pub struct SubBuffer {
    bytes: Box<Page>,
    /// Offset of the next event.
    end: usize,
    last: u64,
    missed: u64,
}

impl Default for SubBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl SubBuffer {
    /// Creates an empty page.
    pub fn new() -> Self {
        Self { bytes: Box::new([0; PAGE_SIZE]), end: HEADER, last: 0, missed: 0 }
    }

    /// Whether the page has no event.
    pub fn is_empty(&self) -> bool {
        self.end == HEADER
    }

    /// Notes in the page that events before its first are missing. To be called before the first is
    /// added.
    pub fn miss(&mut self, events: u64) {
        self.missed = self.missed.saturating_add(events);
    }

    /// Adds an event, padded to whole words; returns `false` if there is no room for it. An event
    /// older than the previous one gets that one's time, as a page has no negative times.
    pub fn push(&mut self, time: u64, record: &[u8]) -> bool {
        let words = record.len().div_ceil(WORD).max(1);
        let delta = if self.is_empty() { 0 } else { time.saturating_sub(self.last) };
        let (extended, long) = (delta >> DELTA_BITS != 0, words > MAX_SHORT_WORDS);
        let size = WORD * (1 + words + usize::from(long) + 2 * usize::from(extended));
        let limit = PAGE_SIZE - if self.missed > 0 { COUNT } else { 0 };
        if self.end + size > limit || delta > MAX_GAP {
            return false;
        }
        self.last = if self.is_empty() { time } else { self.last + delta };
        if self.is_empty() {
            self.bytes[..8].copy_from_slice(&time.to_le_bytes());
        }
        let mut delta_here = delta as u32 & ((1 << DELTA_BITS) - 1);
        if extended {
            self.word(EXTEND | delta_here << 5);
            self.word((delta >> DELTA_BITS) as u32);
            delta_here = 0;
        }
        if long {
            self.word(delta_here << 5);
            self.word(((words + 1) * WORD) as u32);
        } else {
            self.word(words as u32 | delta_here << 5);
        }
        self.bytes[self.end..self.end + record.len()].copy_from_slice(record);
        self.end += words * WORD;
        true
    }

    fn word(&mut self, word: u32) {
        self.bytes[self.end..self.end + WORD].copy_from_slice(&word.to_le_bytes());
        self.end += WORD;
    }

    /// Returns the page as it is now.
    pub fn page(&mut self) -> &Page {
        let mut commit = (self.end - HEADER) as u64;
        if self.missed > 0 {
            commit |= MISSED | COUNTED;
            self.bytes[self.end..self.end + COUNT].copy_from_slice(&self.missed.to_le_bytes());
        }
        self.bytes[8..HEADER].copy_from_slice(&commit.to_le_bytes());
        &self.bytes
    }

    /// Empties the page.
    pub fn clear(&mut self) {
        self.bytes.fill(0);
        (self.end, self.last, self.missed) = (HEADER, 0, 0);
    }
}

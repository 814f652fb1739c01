//! Turns the words of a chunk into events. The layouts are drawn in `calltap_abi::event`.
//!
//! A word of 0 was reserved and not yet written: reading stops there and goes on later. Words are cleared as they are read, so that an
//! emptied chunk is ready for its next owner.

use calltap_abi::event::{SPARSE_BLOCK, SPARSE_HIGH, code, has_parent};
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// One event as the agent wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent {
    /// Clock.
    pub ticks: u64,
    /// Stub index.
    pub site: u32,
    /// Seven bits of the stack position.
    pub tag: u8,
    /// One of [`code`].
    pub code: u32,
    /// Return address in the caller, or 0. Sparse clock: its low half.
    pub parent: u64,
}

fn event(low: u32, ticks: u64, parent: u64) -> RawEvent {
    RawEvent { ticks, site: (low & 0x1ff_ffff) >> 5, tag: (low >> 25) as u8, code: low & code::MASK, parent }
}

/// Where reading stands in a thread's current chunk.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Byte offset in the chunk.
    pub offset: usize,
    /// High half of the clock, as of the last EPOCH word.
    high: u64,
    /// An EPOCH word was read and its event not yet. That may lie behind [`CHUNK_LIMIT`], as they were reserved together.
    owed: bool,
    last: u64,
    sparse: Sparse,
}

/// The block of the sparse clock that is being read: its events wait until the next block tells when this one ended.
#[derive(Clone, Debug, Default)]
struct Sparse {
    start: u64,
    low: u32,
    waiting: Vec<RawEvent>,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { offset: CHUNK_DATA, high: 0, owed: false, last: 0, sparse: Sparse::default() }
    }
}

impl Cursor {
    /// Is the chunk read to its end?
    pub fn at_end(&self) -> bool {
        self.offset >= CHUNK_LIMIT && !self.owed
    }

    /// To the start of the next chunk.
    pub fn next_chunk(&mut self) {
        self.offset = CHUNK_DATA;
    }

    /// Steps over a slot that stays empty: its writer was torn away from it for good.
    pub fn skip_hole(&mut self, sparse: bool) {
        self.owed = false;
        self.offset += if sparse { 4 } else { 8 };
    }

    /// Reads 8-byte words until the end of the chunk or an empty slot.
    pub fn read(&mut self, chunk: &[AtomicU64; CHUNK_SIZE / 8], mut each: impl FnMut(RawEvent)) {
        while self.offset < CHUNK_LIMIT || self.owed {
            let at = self.offset / 8;
            let word = chunk[at].load(Relaxed);
            if word == 0 {
                return;
            }
            let low = word as u32;
            match low & code::MASK {
                code::EPOCH => {
                    self.high = word >> 32 << 32;
                    self.owed = true;
                }
                code::PAD => {}
                c => {
                    let mut parent = 0;
                    if has_parent(c) {
                        parent = chunk[at + 1].load(Relaxed);
                        if parent == 0 {
                            return;
                        }
                        chunk[at + 1].store(0, Relaxed);
                        self.offset += 8;
                    }
                    self.owed = false;
                    let ticks = self.high | word >> 32;
                    // Far behind its predecessor: the high half changed in a signal handler that ran just before the store.
                    let late = ticks + (1 << 31) < self.last;
                    self.last = if late { ticks + (1 << 32) } else { ticks };
                    each(event(low, self.last, parent));
                }
            }
            chunk[at].store(0, Relaxed);
            self.offset += 8;
        }
    }

    /// Reads the 4-byte words of the sparse clock likewise.
    pub fn read_sparse(&mut self, chunk: &[AtomicU32; CHUNK_SIZE / 4], mut each: impl FnMut(RawEvent)) {
        while self.offset < CHUNK_LIMIT {
            let at = self.offset / 4;
            let word = chunk[at].load(Relaxed);
            if word == 0 {
                return;
            }
            match self.offset % SPARSE_BLOCK {
                0 => self.sparse.low = word,
                4 => {
                    let start = u64::from(word & !SPARSE_HIGH) << 32 | u64::from(self.sparse.low);
                    self.sparse.flush(start, &mut each);
                    self.sparse.start = start;
                }
                _ => match word & code::MASK {
                    code::PAD => {}
                    c => {
                        let mut parent = 0;
                        if has_parent(c) {
                            parent = u64::from(chunk[at + 1].load(Relaxed));
                            if parent == 0 {
                                return;
                            }
                            chunk[at + 1].store(0, Relaxed);
                            self.offset += 4;
                        }
                        self.sparse.waiting.push(event(word, 0, parent));
                    }
                },
            }
            chunk[at].store(0, Relaxed);
            self.offset += 4;
        }
    }

    /// Hands out the events that wait for a block that may never come.
    pub fn flush_sparse(&mut self, mut each: impl FnMut(RawEvent)) {
        let start = self.sparse.start;
        self.sparse.flush(start, &mut each);
    }
}

impl Sparse {
    fn flush(&mut self, end: u64, each: &mut impl FnMut(RawEvent)) {
        let span = end.saturating_sub(self.start);
        let count = self.waiting.len() as u64;
        for (i, mut event) in self.waiting.drain(..).enumerate() {
            event.ticks = self.start + span / (count + 1) * (i as u64 + 1);
            each(event);
        }
    }
}

//! The words of a thread's present chunk, kept for a child that was forked meanwhile.
//!
//! A child's first event may come when its parent's thread is read far beyond the fork. The agent
//! records behind which event of the thread it forked ([`ProcessEntry::forked_by`]). The open calls
//! at the beginning of a chunk and the chunk's words up to that event give the calls that were open
//! at the fork. They are open in the child.

use crate::pairing::OpenCalls;
use crate::raw::{Cursor, Goroutine, RawEvent, Sink};
use calltap_abi::event::has_parent;
use calltap_abi::{CHUNK_SIZE, NO_EVENTS, ProcessEntry};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The place at which a process was forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fork {
    /// Before the first event of its parent's thread.
    BeforeAll,
    /// Behind this event.
    At(ForkPoint),
}

/// The newest event of a thread when it forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ForkPoint {
    /// Index of the thread's entry.
    pub(crate) thread: u32,
    /// Chunk of the event.
    pub(super) chunk: ChunkOfThread,
    /// Offset of the event in the chunk, in bytes.
    pub(super) offset: usize,
}

/// A chunk while a thread has it: its index, and its number among the thread's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkOfThread {
    pub(crate) index: u32,
    pub(crate) number: u32,
}

impl Fork {
    /// Returns where a process was forked, if its agent knows.
    pub(crate) fn of(process: &ProcessEntry) -> Option<Fork> {
        let by = process.forked_by.load(Relaxed);
        if by == NO_EVENTS {
            return Some(Fork::BeforeAll);
        }
        let thread = by.checked_sub(1)?;
        let [index, number, offset] = [&process.forked_chunk, &process.forked_number, &process.forked_offset]
            .map(|word| word.load(Relaxed));
        Some(Fork::At(ForkPoint { thread, chunk: ChunkOfThread { index, number }, offset: offset as usize }))
    }
}

/// The words of a chunk that were read, and the calls that were open in front of them.
#[derive(Debug)]
pub(crate) struct History {
    chunk: ChunkOfThread,
    begin: Cursor,
    open: OpenCalls,
    words: Vec<u64>,
    /// Whether the open calls no longer follow from the words alone.
    is_closed: bool,
}

impl History {
    /// Begins a history where the cursor stands, with the room of an earlier one for its words.
    /// Returns `None` where the open calls lie on several stacks, which is not followed.
    pub(crate) fn begin(
        chunk: ChunkOfThread,
        cursor: &Cursor,
        open: &OpenCalls,
        room: Vec<u64>,
    ) -> Option<History> {
        Some(History {
            chunk,
            begin: cursor.clone(),
            open: open.of_one_stack()?,
            words: room,
            is_closed: false,
        })
    }

    /// Returns the memory of the words, emptied, for the next history.
    pub(crate) fn into_room(mut self) -> Vec<u64> {
        self.words.clear();
        self.words
    }

    /// Whether the next words of this chunk continue the history.
    pub(crate) fn goes_on_in(&self, chunk: ChunkOfThread) -> bool {
        self.chunk == chunk && !self.is_closed
    }

    /// Returns the buffer for the words that are read next.
    pub(crate) fn words(&mut self) -> Option<&mut Vec<u64>> {
        (!self.is_closed).then_some(&mut self.words)
    }

    /// Ends the history.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns the calls that were open at a fork, if its event is among these words.
    pub(crate) fn open_at(&self, fork: &ForkPoint) -> Option<OpenCalls> {
        let begin = self.begin.offset;
        let place = fork.offset.checked_sub(begin)? / 8;
        let low = *self.words.get(place)? as u32;
        let end = place + if has_parent(low & calltap_abi::event::code::MASK) { 2 } else { 1 };
        if self.chunk != fork.chunk || end > self.words.len() {
            return None;
        }
        let chunk: Vec<AtomicU64> = (0..CHUNK_SIZE / 8).map(|_| AtomicU64::new(0)).collect();
        let read = &chunk[begin / 8..begin / 8 + end];
        read.iter().zip(&self.words).for_each(|(place, word)| place.store(*word, Relaxed));
        let chunk: &[AtomicU64; CHUNK_SIZE / 8] = chunk.as_slice().try_into().ok()?;
        let (mut cursor, mut open) = (self.begin.clone(), self.open.clone());
        cursor.read(chunk, &mut Follow(&mut open));
        if cursor.offset != begin + 8 * end {
            return None;
        }
        open.leave_unrecorded();
        open.of_one_stack()
    }
}

/// Updates open calls by events.
struct Follow<'a>(&'a mut OpenCalls);

impl Sink for Follow<'_> {
    fn take(&mut self, raw: RawEvent, _: &[u8], _: &[u8]) {
        self.0.follow(raw);
    }

    fn take_go(&mut self, raw: RawEvent, goroutine: Goroutine, _: Vec<u8>) {
        if goroutine.number == 0 {
            self.0.follow(raw.on_own_stack(goroutine));
        }
    }

    fn take_go_graph<T>(&mut self, _: &[T], _: Goroutine, _: impl Fn(&T) -> RawEvent) -> usize {
        0
    }

    fn take_graph<T>(&mut self, _: &[T], _: impl Fn(&T) -> RawEvent) -> usize {
        0
    }

    fn take_calls<T>(&mut self, _: &[T], _: impl Fn(&T) -> RawEvent) -> usize {
        0
    }
}

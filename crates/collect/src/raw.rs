//! Decodes the words of a chunk into events. The layouts are drawn in `calltap_abi::event`.
//!
//! A word of 0 is reserved and not written yet: reading stops there and continues later. Words are
//! cleared as they are read, so that an emptied chunk is ready for its next owner.

mod goroutine;

pub use goroutine::{GoEvents, GoStart, Goroutine};

use calltap_abi::event::{
    Context, DATA_BYTES, SPARSE_BLOCK, SPARSE_HIGH, code, data_of_word, has_parent, is_of_go,
    parent_of_halves,
};
use calltap_abi::frames::PIECE_BYTES;
use calltap_abi::values::STORED;
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE, stub};
use calltap_trace::SiteId;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Words of one reservation that may lie behind [`CHUNK_LIMIT`]: all but the first of the context
/// words (EPOCH, STACK, two of GOROUTINE, two of its start), and the event's first one.
const OWED: usize = 6;
/// Number of words that are fetched together.
const FETCH: usize = 512;

/// An event as the agent wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent {
    /// Time, in units of the clock.
    pub ticks: u64,
    /// Site, tag and code, as stored.
    pub low: u32,
    /// Slot of the return address, in units of 8 bytes; with the sparse clock, only the tag.
    pub slot: u64,
    /// Return address of the call; 0 if it was not recorded. Of a nonlocal exit, an address of the
    /// stack where the thread was.
    pub parent: u64,
}

/// Receiver of events. The functions that take many make reading fast: most events come in rows of
/// one sort, and a loop over these alone keeps all its state in registers. They return how many
/// events they took; `event` reads one.
pub trait Sink {
    /// Takes the next event of the thread, with its values and the copied pieces of its stack.
    fn take(&mut self, event: RawEvent, values: &[u8], stack: &[u8]);

    /// Takes the next event, of a Go function, with its values. Its slot is counted from the
    /// beginning of the stack.
    fn take_go(&mut self, event: RawEvent, goroutine: Goroutine, values: Vec<u8>);

    /// Takes the next events, as long as they are entries and returns without values or a parent.
    fn take_graph<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize;

    /// Takes the next events of a goroutine, as long as they are entries and returns of Go
    /// functions without values or a parent.
    fn take_go_graph<T>(
        &mut self,
        words: &[T],
        goroutine: Goroutine,
        event: impl Fn(&T) -> RawEvent,
    ) -> usize;

    /// Takes the next events, as long as they are calls.
    fn take_calls<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize;
}

impl RawEvent {
    /// Decodes an event of one word.
    #[inline(always)]
    fn of_word(context: Context, word: &AtomicU64) -> RawEvent {
        let word = word.load(Relaxed);
        RawEvent { ticks: context.ticks(word), low: word as u32, slot: context.slot(word), parent: 0 }
    }

    /// Decodes an event of two words, or padding if the second is missing.
    #[inline(always)]
    fn of_words(context: Context, [word, parent]: &[AtomicU64; 2]) -> RawEvent {
        let (first, parent) = (RawEvent::of_word(context, word), parent.load(Relaxed));
        let whole = parent as u32 & code::MASK == code::PARENT;
        RawEvent { low: if whole { first.low } else { code::PAD }, parent: parent >> 5, ..first }
    }

    /// Returns the stub index.
    #[inline(always)]
    pub fn site(self) -> SiteId {
        SiteId((self.low & (stub::REGION as u32 - 1)) >> 5)
    }

    /// Returns the event's code, one of [`code`].
    #[inline(always)]
    pub fn code(self) -> u32 {
        self.low & code::MASK
    }

    /// Returns site and tag together: they are the same at the entry and the return of one call.
    #[inline(always)]
    pub fn frame(self) -> u32 {
        self.low & !code::MASK
    }
}

/// The position of reading in a thread's present chunk, and the context there.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Byte offset in the chunk.
    pub offset: usize,
    /// Context of the last EPOCH and STACK words.
    context: Context,
    /// Goroutine of the last GOROUTINE words.
    goroutine: Goroutine,
    /// Whether an EPOCH or STACK word was read and its event not yet. The event may lie behind
    /// [`CHUNK_LIMIT`], as they were reserved together.
    owed: bool,
    last: u64,
    /// Values whose events were not read yet.
    pending_values: Vec<PendingValues>,
    sparse: Sparse,
}

/// Values in front of their event. Events of a signal handler may lie in between.
#[derive(Clone, Debug)]
struct PendingValues {
    /// Site, tag, and the code of values.
    low: u32,
    bytes: Vec<u8>,
    /// Number of other events since.
    others: u32,
}

/// Number of other events after which values are dropped: their own event was lost, as there was no
/// room for it.
const LOST_BEHIND: u32 = 10_000;
/// Maximum number of bytes of all pieces of a copy of the stack.
const MAX_COPY_SIZE: usize = 256 * PIECE_BYTES;
/// Maximum number of values that wait for their events: signal handlers do not interrupt each other
/// deeper.
const AHEAD: usize = 64;

/// The block of the sparse clock that is being read. Its events wait until the next block tells
/// when this one ended.
#[derive(Clone, Debug, Default)]
struct Sparse {
    start: u64,
    low: u32,
    waiting: Vec<RawEvent>,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor {
            offset: CHUNK_DATA,
            context: Context::default(),
            goroutine: Goroutine::default(),
            owed: false,
            last: 0,
            pending_values: Vec::new(),
            sparse: Sparse::default(),
        }
    }
}

impl Cursor {
    /// Returns the time of the newest event that was read.
    pub(crate) fn last_ticks(&self) -> u64 {
        self.last.max(self.sparse.start)
    }

    /// Returns the time of the next event, if it is there.
    pub(crate) fn next_ticks(&self, chunk: &[AtomicU64; CHUNK_SIZE / 8], sparse: bool) -> Option<u64> {
        if sparse {
            // A block begins with a whole reading of the clock.
            let start = chunk.get(self.offset / 8).filter(|_| self.offset.is_multiple_of(SPARSE_BLOCK))?;
            let start = start.load(Relaxed);
            return (start as u32 != 0 && start >> 32 != 0)
                .then_some(start & !(u64::from(SPARSE_HIGH) << 32));
        }
        self.next_event(chunk).map(|raw| raw.ticks)
    }

    /// Returns the next event, if it is there, without its parent.
    pub(crate) fn next_event(&self, chunk: &[AtomicU64; CHUNK_SIZE / 8]) -> Option<RawEvent> {
        let words = chunk[self.offset / 8..].iter().map(|word| word.load(Relaxed));
        let mut context = self.context;
        for word in words.take_while(|word| *word != 0) {
            match word as u32 & code::MASK {
                code::EPOCH => context.high = word & !u64::from(code::MASK),
                code::STACK => context.set_stack(word),
                code::PAD | code::PARENT | code::DATA | code::GOROUTINE | code::GOROUTINE_AT => {}
                code::STARTED_BY | code::STARTED_AT => {}
                code::ARGUMENTS | code::RESULTS | code::FRAMES => {}
                _ => {
                    let (ticks, slot) = (context.ticks(word), context.slot(word));
                    return Some(RawEvent { ticks, low: word as u32, slot, parent: 0 });
                }
            }
        }
        None
    }

    /// Whether the chunk is read to its end.
    pub(crate) fn at_end(&self) -> bool {
        self.offset >= CHUNK_LIMIT + 8 * OWED * usize::from(self.owed)
    }

    /// Moves to the start of the next chunk.
    pub(crate) fn next_chunk(&mut self) {
        self.offset = CHUNK_DATA;
    }

    /// Skips a slot that stays empty, as its writer never completes the event. It held one event.
    pub(crate) fn skip_hole(&mut self, chunk: &[AtomicU64; CHUNK_SIZE / 8], sparse: bool) {
        self.owed = false;
        let (at, half) = (self.offset / 8, self.offset % 8 / 4);
        let low = (chunk[at].load(Relaxed) >> (32 * half)) as u32;
        // The first word of an event whose other words are missing: one event, several words.
        let words = if has_parent(low & code::MASK) { if sparse { 3 } else { 2 } } else { 1 };
        for _ in 0..words {
            let (at, half) = (self.offset / 8, self.offset % 8 / 4);
            if sparse {
                chunk[at].fetch_and(if half == 0 { !0xffff_ffff } else { 0xffff_ffff }, Relaxed);
            } else {
                chunk[at].store(0, Relaxed);
            }
            self.offset += if sparse { 4 } else { 8 };
        }
    }

    /// Whether there are words between the empty slot at the cursor and `end`.
    pub(crate) fn more_behind(&self, chunk: &[AtomicU64; CHUNK_SIZE / 8], end: usize) -> bool {
        let end = (end / 8).min(CHUNK_SIZE / 8);
        chunk[(self.offset / 8 + 1).min(end)..end].iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Reads 8-byte words until the end of the chunk or an empty slot.
    pub fn read(&mut self, chunk: &[AtomicU64; CHUNK_SIZE / 8], sink: &mut impl Sink) {
        self.read_copying(chunk, None, sink);
    }

    /// Reads like [`Cursor::read`], and adds the words to `copy`.
    pub(crate) fn read_copying(
        &mut self,
        chunk: &[AtomicU64; CHUNK_SIZE / 8],
        mut copy: Option<&mut Vec<u64>>,
        sink: &mut impl Sink,
    ) {
        let mut at = self.offset / 8;
        let mut fetched = at;
        while at < CHUNK_LIMIT / 8 + OWED * usize::from(self.owed) {
            if at >= fetched {
                fetched = (at + FETCH).min(CHUNK_LIMIT / 8);
                fetch(&chunk[at.min(fetched)..fetched]);
            }
            // The event of an EPOCH or STACK word may lie behind the limit, so it is read singly.
            // So are events that values may belong to.
            let row = if self.owed || !self.pending_values.is_empty() { &[] } else { &chunk[at..fetched] };
            let kind = row.first().map_or(0, |word| word.load(Relaxed) as u32 & code::MASK);
            let context = self.context;
            let (mut words, size) = match kind {
                code::ENTRY | code::EXIT | code::TAIL_ENTRY | code::NESTED_ENTRY => {
                    (sink.take_graph(row, |word| RawEvent::of_word(context, word)), 1)
                }
                code::GO_ENTRY | code::GO_EXIT => {
                    // The first event behind the words about a goroutine is read singly.
                    let goroutine = Goroutine { begins: false, ..self.goroutine };
                    (sink.take_go_graph(row, goroutine, |word| RawEvent::of_word(context, word)), 1)
                }
                code::CALL => {
                    (2 * sink.take_calls(row.as_chunks().0, |words| RawEvent::of_words(context, words)), 2)
                }
                _ => (0, 0),
            };
            if words > 0 {
                self.last = RawEvent::of_word(context, &row[words - size]).ticks;
            } else {
                words = self.read_one(&chunk[at..], sink);
                if words == 0 {
                    break;
                }
            }
            let done = &chunk[at..at + words];
            if let Some(copy) = &mut copy {
                copy.extend(done.iter().map(|word| word.load(Relaxed)));
            }
            done.iter().for_each(|word| word.store(0, Relaxed));
            at += words;
        }
        self.offset = at * 8;
    }

    /// Reads one event or another word. Returns its number of words; 0 if it is not there yet.
    #[inline(never)]
    fn read_one(&mut self, words: &[AtomicU64], sink: &mut impl Sink) -> usize {
        let word = words[0].load(Relaxed);
        let low = word as u32;
        let mut parent = None;
        match low & code::MASK {
            _ if word == 0 => return 0,
            code::EPOCH => {
                self.context.high = word & !u64::from(code::MASK);
                self.owed = true;
                return 1;
            }
            code::STACK => {
                self.context.set_stack(word);
                self.owed = true;
                return 1;
            }
            code::GOROUTINE => {
                self.goroutine = Goroutine { number: word >> 5, begins: true, ..Goroutine::default() };
                self.owed = true;
                return 1;
            }
            code::STARTED_BY => {
                self.goroutine.start = Some(GoStart { parent: word >> 5, function: 0 });
                self.owed = true;
                return 1;
            }
            code::STARTED_AT => {
                self.goroutine.start.iter_mut().for_each(|start| start.function = word >> 5);
                self.owed = true;
                return 1;
            }
            code::GOROUTINE_AT => {
                self.goroutine.at = word >> 5;
                self.owed = true;
                return 1;
            }
            // A word of an event or of values comes alone only behind a slot that was skipped.
            code::PAD | code::PARENT | code::DATA => return 1,
            code::ARGUMENTS | code::RESULTS | code::FRAMES => return self.read_values(word, &words[1..]),
            kind if has_parent(kind) => {
                let second = words[1].load(Relaxed);
                if second == 0 {
                    return 0;
                }
                parent = (second as u32 & code::MASK == code::PARENT).then_some(second >> 5);
            }
            _ => {}
        }
        self.owed = false;
        self.last = self.context.ticks(word);
        let slot = self.context.slot(word);
        let event = RawEvent { ticks: self.last, low, slot, parent: parent.unwrap_or(0) };
        if is_of_go(event.code()) {
            let code = if event.code() == code::GO_EXIT { code::RESULTS } else { code::ARGUMENTS };
            let values = self.ahead_of(event, code);
            self.pass_one();
            sink.take_go(event, self.goroutine, values);
            self.goroutine.begins = false;
            return 1 + usize::from(parent.is_some());
        }
        let code = if event.code() == code::EXIT { code::RESULTS } else { code::ARGUMENTS };
        let (stack, values) = (self.ahead_of(event, code::FRAMES), self.ahead_of(event, code));
        self.pass_one();
        sink.take(event, &values, &stack);
        1 + usize::from(parent.is_some())
    }

    /// Reads values. Returns their number of words; 0 if they are not all there yet.
    fn read_values(&mut self, head: u64, words: &[AtomicU64]) -> usize {
        let length = (head >> 32) as usize;
        let count = length.div_ceil(DATA_BYTES);
        let Some(words) = words.get(..count).filter(|_| length <= STORED) else { return 1 };
        let words: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        let data = |word: &&u64| **word as u32 & code::MASK == code::DATA;
        if words.contains(&0) {
            return 0;
        }
        let mut bytes: Vec<u8> = words.iter().take_while(data).flat_map(|word| data_of_word(*word)).collect();
        // If words behind a skipped slot have overwritten some, the values belong to no call.
        if bytes.len() < length {
            return 1;
        }
        bytes.truncate(length);
        self.keep(head as u32, bytes);
        1 + count
    }

    /// Keeps values until their event comes. Pieces of a stack are joined: the first begins a copy,
    /// others continue it.
    fn keep(&mut self, low: u32, bytes: Vec<u8>) {
        if low & code::MASK == code::FRAMES && bytes.first().is_some_and(|number| *number > 0) {
            let begun = self.pending_values.iter_mut().rfind(|values| values.low == low);
            // The program can write to the rings: no more is kept than the agent would write.
            let begun =
                begun.filter(|begun| begun.bytes.len() <= MAX_COPY_SIZE - bytes.len().min(MAX_COPY_SIZE));
            begun.into_iter().for_each(|begun| begun.bytes.extend_from_slice(&bytes));
            return;
        }
        if self.pending_values.len() == AHEAD {
            self.pending_values.remove(0);
        }
        self.pending_values.push(PendingValues { low, bytes, others: 0 });
    }

    /// Removes and returns the values of an event.
    fn ahead_of(&mut self, event: RawEvent, code: u32) -> Vec<u8> {
        let found = self.pending_values.iter().rposition(|values| values.low == event.frame() | code);
        found.map(|at| self.pending_values.remove(at).bytes).unwrap_or_default()
    }

    /// Counts an event for the values that remain, and drops those whose event was lost.
    fn pass_one(&mut self) {
        self.pending_values.iter_mut().for_each(|values| values.others += 1);
        self.pending_values.retain(|values| values.others < LOST_BEHIND);
    }

    /// Reads the 4-byte words of the sparse clock until the end of the chunk or an empty slot.
    pub(crate) fn read_sparse(&mut self, chunk: &[AtomicU32; CHUNK_SIZE / 4], sink: &mut impl Sink) {
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
                    self.sparse.flush(start, sink);
                    self.sparse.start = start;
                }
                _ => match word & code::MASK {
                    // The parent words come alone only behind a slot that was skipped.
                    code::PAD | code::PARENT | code::PARENT_HIGH => {}
                    kind => {
                        let mut parent = 0;
                        if has_parent(kind) {
                            let halves = [1, 2].map(|i| chunk[at + i].load(Relaxed));
                            if halves.contains(&0) {
                                return;
                            }
                            if halves.map(|half| half & code::MASK) == [code::PARENT, code::PARENT_HIGH] {
                                parent = parent_of_halves(halves);
                            }
                        }
                        let slot = u64::from(word >> stub::REGION.ilog2());
                        self.sparse.waiting.push(RawEvent { ticks: 0, low: word, slot, parent });
                    }
                },
            }
            chunk[at].store(0, Relaxed);
            self.offset += 4;
        }
    }

    /// Hands out the events that wait for the next block, which may never come.
    pub(crate) fn flush_sparse(&mut self, sink: &mut impl Sink) {
        let start = self.sparse.start;
        self.sparse.flush(start, sink);
    }
}

/// Brings words into the cache. Another processor's cache has them, and many at once arrive sooner
/// than each on its own.
fn fetch(words: &[AtomicU64]) {
    const LINE: usize = 8;
    black_box(words.iter().step_by(LINE).fold(0, |all, word| all | word.load(Relaxed)));
}

impl Sparse {
    /// Hands out the waiting events, their times spread evenly until `end`.
    fn flush(&mut self, end: u64, sink: &mut impl Sink) {
        let span = end.saturating_sub(self.start);
        let count = self.waiting.len() as u64;
        for (event, i) in self.waiting.iter_mut().zip(1..) {
            event.ticks = self.start + span / (count + 1) * i;
        }
        let mut rest = &*self.waiting;
        while let Some(first) = rest.first() {
            let taken = match first.code() {
                code::CALL => sink.take_calls(rest, |event| *event),
                _ => sink.take_graph(rest, |event| *event),
            };
            if taken == 0 {
                sink.take(*first, &[], &[]);
            }
            rest = &rest[taken.max(1)..];
        }
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests;

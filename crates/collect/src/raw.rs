//! Turns the words of a chunk into events. The layouts are drawn in `calltap_abi::event`.
//!
//! A word of 0 was reserved and not yet written: reading stops there and goes on later. Words are cleared as they are read, so that an
//! emptied chunk is ready for its next owner.

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

/// Words of an event's that may lie behind [`CHUNK_LIMIT`]: all but the first of those that say where it belongs, and its own first one.
const OWED: usize = 4;
/// Words that are fetched together.
const FETCH: usize = 512;

/// One event as the agent wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawEvent {
    /// Clock.
    pub ticks: u64,
    /// Site, tag and code, as stored.
    pub low: u32,
    /// Where its return address lies, in units of 8 bytes; with the sparse clock, only the tag.
    pub slot: u64,
    /// Return address in the caller, or 0.
    pub parent: u64,
}

/// Which goroutine an event of a Go function belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Goroutine {
    /// Its number; 0: it was on a stack of the thread's own.
    pub number: u64,
    /// The address of its `g`; if it has no number, where the thread's stack begins, which positions are counted from.
    pub at: u64,
}

/// An event of a Go function, of a goroutine.
#[derive(Clone, Copy, Debug)]
pub struct GoEvent {
    /// The event.
    pub raw: RawEvent,
    /// Which goroutine.
    pub goroutine: Goroutine,
}

/// Takes events. The two that take many are what makes reading fast: most events come in rows of one sort, and a loop over these
/// alone keeps all it needs in registers. They say how many they took; `event` reads one.
pub trait Sink {
    /// The next event of the thread, with what was read of it besides, and the pieces of its stack that were copied.
    fn take(&mut self, event: RawEvent, values: &[u8], stack: &[u8]);

    /// The next event, of a Go function. Its slot is counted from the beginning of the stack.
    fn take_go(&mut self, event: RawEvent, goroutine: Goroutine);

    /// The next events, as long as they are entries and returns without anything behind them.
    fn take_graph<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize;

    /// The next events, as long as they are calls.
    fn take_calls<T>(&mut self, words: &[T], event: impl Fn(&T) -> RawEvent) -> usize;
}

impl RawEvent {
    /// An event of one word.
    #[inline(always)]
    fn of_word(context: Context, word: &AtomicU64) -> RawEvent {
        let word = word.load(Relaxed);
        RawEvent { ticks: context.ticks(word), low: word as u32, slot: context.slot(word), parent: 0 }
    }

    /// An event of two words, or padding if the second is not there.
    #[inline(always)]
    fn of_words(context: Context, [word, parent]: &[AtomicU64; 2]) -> RawEvent {
        let (first, parent) = (RawEvent::of_word(context, word), parent.load(Relaxed));
        let whole = parent as u32 & code::MASK == code::PARENT;
        RawEvent { low: if whole { first.low } else { code::PAD }, parent: parent >> 5, ..first }
    }

    /// Stub index.
    #[inline(always)]
    pub fn site(self) -> SiteId {
        SiteId((self.low & (stub::REGION as u32 - 1)) >> 5)
    }

    /// One of [`code`].
    #[inline(always)]
    pub fn code(self) -> u32 {
        self.low & code::MASK
    }

    /// The same event of a function of any language.
    pub fn plain(self) -> RawEvent {
        let code = match self.code() {
            code::GO_ENTRY => code::ENTRY,
            code::GO_ENTRY_FROM => code::ENTRY_FROM,
            code::GO_EXIT => code::EXIT,
            code::GO_CALL => code::CALL,
            code => code,
        };
        RawEvent { low: self.frame() | code, ..self }
    }

    /// Site and tag together: what is the same at the entry and at the return of one call.
    #[inline(always)]
    pub fn frame(self) -> u32 {
        self.low & !code::MASK
    }
}

/// Where reading stands in a thread's current chunk.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Byte offset in the chunk.
    pub offset: usize,
    /// As of the last EPOCH and STACK words.
    context: Context,
    /// As of the last GOROUTINE word.
    goroutine: Goroutine,
    /// An EPOCH or STACK word was read and its event not yet. That may lie behind [`CHUNK_LIMIT`], as they were reserved together.
    owed: bool,
    last: u64,
    /// Values whose events were not read yet.
    ahead: Vec<Ahead>,
    sparse: Sparse,
}

/// Values, in front of their event. What a signal handler has recorded may be in between.
#[derive(Clone, Debug)]
struct Ahead {
    /// Site and tag, and the code of values.
    low: u32,
    bytes: Vec<u8>,
    /// Events that came since and were not theirs.
    others: u32,
}

/// So many, and the event was lost: there was no room for it.
const LOST_BEHIND: u32 = 10_000;
/// Bytes of all pieces of a copy of the stack.
const LONGEST_COPY: usize = 256 * PIECE_BYTES;
/// Handlers interrupt each other no deeper.
const AHEAD: usize = 64;

/// The block of the sparse clock that is being read: its events wait until the next block tells when this one ended.
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
            ahead: Vec::new(),
            sparse: Sparse::default(),
        }
    }
}

impl Cursor {
    /// Time of the last event that was read.
    pub fn last_ticks(&self) -> u64 {
        self.last.max(self.sparse.start)
    }

    /// The time of the event that is read next, if it is there.
    pub fn next_ticks(&self, chunk: &[AtomicU64; CHUNK_SIZE / 8], sparse: bool) -> Option<u64> {
        if sparse {
            // A block begins with a whole reading of the clock.
            let start = chunk.get(self.offset / 8).filter(|_| self.offset.is_multiple_of(SPARSE_BLOCK))?;
            let start = start.load(Relaxed);
            return (start as u32 != 0 && start >> 32 != 0)
                .then_some(start & !(u64::from(SPARSE_HIGH) << 32));
        }
        self.next_event(chunk).map(|raw| raw.ticks)
    }

    /// The event that is read next, if it is there, without its caller.
    pub fn next_event(&self, chunk: &[AtomicU64; CHUNK_SIZE / 8]) -> Option<RawEvent> {
        let words = chunk[self.offset / 8..].iter().map(|word| word.load(Relaxed));
        let mut context = self.context;
        for word in words.take_while(|word| *word != 0) {
            match word as u32 & code::MASK {
                code::EPOCH => context.high = word & !u64::from(code::MASK),
                code::STACK => context.set_stack(word),
                code::PAD | code::PARENT | code::DATA | code::GOROUTINE | code::GOROUTINE_AT => {}
                code::ARGUMENTS | code::RESULTS | code::FRAMES => {}
                _ => {
                    let (ticks, slot) = (context.ticks(word), context.slot(word));
                    return Some(RawEvent { ticks, low: word as u32, slot, parent: 0 });
                }
            }
        }
        None
    }

    /// Is the chunk read to its end?
    pub fn at_end(&self) -> bool {
        self.offset >= CHUNK_LIMIT + 8 * OWED * usize::from(self.owed)
    }

    /// To the start of the next chunk.
    pub fn next_chunk(&mut self) {
        self.offset = CHUNK_DATA;
    }

    /// Steps over a slot that stays empty: its writer was torn away from it for good. It held one event.
    pub fn skip_hole(&mut self, chunk: &[AtomicU64; CHUNK_SIZE / 8], sparse: bool) {
        self.owed = false;
        let (at, half) = (self.offset / 8, self.offset % 8 / 4);
        let low = (chunk[at].load(Relaxed) >> (32 * half)) as u32;
        // The first word of an event whose other words are missing: one event, several steps.
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

    /// Is there anything behind the empty slot this stands at, up to a place in the chunk?
    pub fn more_behind(&self, chunk: &[AtomicU64; CHUNK_SIZE / 8], end: usize) -> bool {
        let end = (end / 8).min(CHUNK_SIZE / 8);
        chunk[(self.offset / 8 + 1).min(end)..end].iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Reads 8-byte words until the end of the chunk or an empty slot.
    pub fn read(&mut self, chunk: &[AtomicU64; CHUNK_SIZE / 8], sink: &mut impl Sink) {
        self.read_copying(chunk, None, sink);
    }

    /// The same; the words that are read are added to `copy`.
    pub fn read_copying(
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
            // What an EPOCH or STACK word belongs to may lie behind the limit: it is read by itself.
            // So are events that may be those of values.
            let row = if self.owed || !self.ahead.is_empty() { &[] } else { &chunk[at..fetched] };
            let kind = row.first().map_or(0, |word| word.load(Relaxed) as u32 & code::MASK);
            let context = self.context;
            let (mut words, size) = match kind {
                code::ENTRY | code::EXIT | code::TAIL_ENTRY | code::NESTED_ENTRY => {
                    (sink.take_graph(row, |word| RawEvent::of_word(context, word)), 1)
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
            let take = |word: &AtomicU64| {
                let taken = word.load(Relaxed);
                word.store(0, Relaxed);
                taken
            };
            match &mut copy {
                Some(copy) => copy.extend(done.iter().map(take)),
                None => done.iter().for_each(|word| word.store(0, Relaxed)),
            }
            at += words;
        }
        self.offset = at * 8;
    }

    /// Reads one event or another word. Says how many words that were; 0: it is not there yet.
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
                self.goroutine.number = word >> 5;
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
            sink.take_go(event, self.goroutine);
            return 1 + usize::from(parent.is_some());
        }
        let code = if event.code() == code::EXIT { code::RESULTS } else { code::ARGUMENTS };
        let (stack, values) = (self.ahead_of(event, code::FRAMES), self.ahead_of(event, code));
        self.pass_one();
        sink.take(event, &values, &stack);
        1 + usize::from(parent.is_some())
    }

    /// Reads values. Says how many words they take; 0: they are not all there yet.
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
        // If some were overwritten by what came after a skipped slot, they belong to no call.
        if bytes.len() < length {
            return 1;
        }
        bytes.truncate(length);
        self.keep(head as u32, bytes);
        1 + count
    }

    /// Keeps what was read until its event comes. Pieces of a stack become one: the first begins it, another goes on.
    fn keep(&mut self, low: u32, bytes: Vec<u8>) {
        if low & code::MASK == code::FRAMES && bytes.first().is_some_and(|number| *number > 0) {
            let begun = self.ahead.iter_mut().rfind(|ahead| ahead.low == low);
            // The program can write to the rings: no more is kept than the agent would write.
            let begun =
                begun.filter(|begun| begun.bytes.len() <= LONGEST_COPY - bytes.len().min(LONGEST_COPY));
            begun.into_iter().for_each(|begun| begun.bytes.extend_from_slice(&bytes));
            return;
        }
        if self.ahead.len() == AHEAD {
            self.ahead.remove(0);
        }
        self.ahead.push(Ahead { low, bytes, others: 0 });
    }

    /// Takes what was read of an event.
    fn ahead_of(&mut self, event: RawEvent, code: u32) -> Vec<u8> {
        let found = self.ahead.iter().rposition(|ahead| ahead.low == event.frame() | code);
        found.map(|at| self.ahead.remove(at).bytes).unwrap_or_default()
    }

    /// What is left is of other events; some of them will never come.
    fn pass_one(&mut self) {
        self.ahead.iter_mut().for_each(|ahead| ahead.others += 1);
        self.ahead.retain(|ahead| ahead.others < LOST_BEHIND);
    }

    /// Reads the 4-byte words of the sparse clock likewise.
    pub fn read_sparse(&mut self, chunk: &[AtomicU32; CHUNK_SIZE / 4], sink: &mut impl Sink) {
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

    /// Hands out the events that wait for a block that may never come.
    pub fn flush_sparse(&mut self, sink: &mut impl Sink) {
        let start = self.sparse.start;
        self.sparse.flush(start, sink);
    }
}

/// Brings words into the cache. They come from another processor's, and many at once come sooner than each when it is needed.
fn fetch(words: &[AtomicU64]) {
    const LINE: usize = 8;
    black_box(words.iter().step_by(LINE).fold(0, |all, word| all | word.load(Relaxed)));
}

impl Sparse {
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

//! Events to streams: what runs once per event while the traced program runs.

use super::predictor::{Predictor, SMALL_EVENTS, SPELT};
use super::streams::{put_varint, zigzag};
use super::symbol::*;
use super::{CHUNK_EVENTS, TICK_FAR_CODE, TICK_LONG, TICK_SHORT};
use crate::{Event, EventKind, SiteId, ThreadId};

/// Slots of the map from a caller's address to its place in the chunk's list. It forgets on collision: then an
/// address stands in the list twice.
const CALLER_SLOTS: usize = 1 << 10;

/// What the header of a chunk says about its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) events: u32,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) max_site: u32,
}

/// The streams of one chunk.
#[derive(Default)]
struct Streams {
    tokens: Vec<u8>,
    ticks: Vec<u8>,
    far: Vec<u8>,
    spelt: Vec<u8>,
    details: Vec<u8>,
}

/// A chunk that only waits to be compressed.
pub(crate) struct Sealed {
    pub(crate) span: Span,
    pub(crate) structure: Vec<u8>,
    pub(crate) ticks: Vec<u8>,
}

/// Turns the events of one thread into chunks, one event at a time.
///
/// Between chunks it holds no memory but itself; a chunk's buffers come with its first event and grow in two
/// steps, so that thousands of idle or short-lived threads are cheap.
pub struct ThreadEncoder {
    count: usize,
    room: usize,
    last: u64,
    first: u64,
    low: u64,
    high: u64,
    max_site: u32,
    predictor: Predictor,
    streams: Streams,
    callers: Vec<u64>,
    caller_slots: Vec<u32>,
    sealed: Vec<Sealed>,
    thread: ThreadId,
}

impl ThreadEncoder {
    /// For the events of `thread`.
    pub fn new(thread: ThreadId) -> Self {
        Self {
            count: 0,
            room: 0,
            last: 0,
            first: 0,
            low: 0,
            high: 0,
            max_site: 0,
            predictor: Predictor::default(),
            streams: Streams::default(),
            callers: Vec::new(),
            caller_slots: Vec::new(),
            sealed: Vec::new(),
            thread,
        }
    }

    /// Whose events.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Pending events.
    pub fn len(&self) -> usize {
        self.count + self.sealed.iter().map(|chunk| chunk.span.events as usize).sum::<usize>()
    }

    /// Nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.sealed.is_empty()
    }

    /// Time to call [`crate::TraceWriter::events`]. More may be pushed; it is kept as chunks of the usual size.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.count >= CHUNK_EVENTS || !self.sealed.is_empty()
    }

    /// Adds an event.
    #[inline]
    pub fn push(&mut self, event: Event) {
        if self.count == self.room {
            self.make_room(event.ticks);
        }
        let delta = event.ticks.wrapping_sub(self.last);
        let at = self.count;
        // The second half is for a clock that wraps around: a small step that is none.
        if delta < TICK_SHORT && event.ticks >= delta {
            self.streams.ticks[at] = delta as u8;
        } else {
            self.push_far(event.ticks, delta);
        }
        self.last = event.ticks;
        self.count += 1;
        let SiteId(site) = event.site;
        match event.kind {
            EventKind::Entry => {
                self.put(at, symbol(site, ENTRY, 0), site);
                self.predictor.open(site);
            }
            EventKind::Exit { pops: 1 } => {
                let known = site == self.predictor.top();
                self.put(at, if known { EXIT_TOP } else { symbol(site, EXIT, 1) }, site);
                self.predictor.close(1);
            }
            EventKind::Call { parent } => {
                let caller = self.caller(parent);
                self.put(at, symbol(site, CALL, caller), site);
            }
            EventKind::EntryFrom { parent } => {
                let caller = self.caller(parent);
                self.put(at, symbol(site, ENTRY_FROM, caller), site);
                self.predictor.open(site);
            }
            _ => self.push_rare(at, event),
        }
    }

    #[inline(always)]
    fn put(&mut self, at: usize, symbol: Symbol, site: u32) {
        let token = self.predictor.say(symbol);
        self.streams.tokens[at] = token;
        self.predictor.advance(symbol, site);
        if token == SPELT {
            self.spell(symbol);
        }
    }

    #[inline(never)]
    fn push_rare(&mut self, at: usize, event: Event) {
        let SiteId(site) = event.site;
        match event.kind {
            EventKind::TailEntry => {
                self.put(at, symbol(site, TAIL_ENTRY, 0), site);
                self.predictor.open(site);
            }
            EventKind::TailEntryFrom { parent } => {
                let caller = self.caller(parent);
                self.put(at, symbol(site, TAIL_ENTRY_FROM, caller), site);
                self.predictor.open(site);
            }
            EventKind::Exit { pops } => {
                if u64::from(pops) < AUX_END {
                    self.put(at, symbol(site, EXIT, u64::from(pops)), site);
                } else {
                    self.streams.tokens[at] = SPELT;
                    self.spell_head(site, EXIT);
                    put_varint(&mut self.streams.details, u64::from(pops));
                }
                self.predictor.close(pops);
            }
            EventKind::Lost { entries, exits } => {
                self.streams.tokens[at] = SPELT;
                self.spell_head(site, LOST);
                put_varint(&mut self.streams.details, u64::from(entries));
                put_varint(&mut self.streams.details, u64::from(exits));
            }
            EventKind::Entry | EventKind::Call { .. } | EventKind::EntryFrom { .. } => {}
        }
    }

    fn spell_head(&mut self, site: u32, kind: u64) {
        self.max_site = self.max_site.max(site);
        put_varint(&mut self.streams.spelt, u64::from(site) << 3 | kind);
    }

    #[inline(never)]
    fn spell(&mut self, symbol: Symbol) {
        let kind = kind_of(symbol);
        self.spell_head(site_of(symbol), kind);
        match kind {
            ENTRY | TAIL_ENTRY => {}
            _ => put_varint(&mut self.streams.details, aux_of(symbol)),
        }
    }

    /// The place of `parent` in the chunk's list of callers. A new one is stored right here: the symbol that
    /// contains its number cannot have been guessed, so the decoder meets it spelt out.
    #[inline(always)]
    fn caller(&mut self, parent: u64) -> u64 {
        let slot = (parent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % CALLER_SLOTS;
        match self.caller_slots.get(slot) {
            Some(&at) if self.callers.get(at as usize) == Some(&parent) => u64::from(at),
            _ => self.new_caller(parent, slot),
        }
    }

    #[inline(never)]
    fn new_caller(&mut self, parent: u64, slot: usize) -> u64 {
        if self.caller_slots.is_empty() {
            self.caller_slots.resize(CALLER_SLOTS, u32::MAX);
        }
        let at = self.callers.len();
        self.callers.push(parent);
        self.caller_slots[slot] = at as u32;
        at as u64
    }

    #[inline(never)]
    fn push_far(&mut self, ticks: u64, delta: u64) {
        let far = &mut self.streams.far;
        let code = if (TICK_SHORT..TICK_LONG).contains(&delta) && ticks >= delta {
            let past = delta - TICK_SHORT;
            far.push(past as u8);
            (TICK_SHORT + (past >> 8)) as u8
        } else {
            let (code, bytes) = match delta {
                TICK_LONG..=0xffff => (0, 2),
                0x1_0000..=0xff_ffff => (1, 3),
                0x100_0000..=0xffff_ffff => (2, 4),
                _ => (3, 8),
            };
            far.extend_from_slice(&delta.to_le_bytes()[..bytes]);
            TICK_FAR_CODE + code
        };
        if ticks < delta {
            // Only here can time have gone back, so only here the extremes need care.
            self.high = self.high.max(self.last);
            self.low = self.low.min(ticks);
        }
        self.streams.ticks[self.count] = code;
    }

    #[cold]
    fn make_room(&mut self, ticks: u64) {
        if self.count == CHUNK_EVENTS {
            let sealed = self.seal();
            self.sealed.push(sealed);
        }
        if self.count == 0 {
            (self.first, self.last, self.low, self.high) = (ticks, ticks, ticks, ticks);
            self.predictor.start();
            self.room = SMALL_EVENTS;
        } else {
            self.predictor.widen();
            self.room = CHUNK_EVENTS;
        }
        self.streams.tokens.resize(self.room, 0);
        self.streams.ticks.resize(self.room, 0);
    }

    /// Everything pending as chunks, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Sealed> {
        let mut chunks = std::mem::take(&mut self.sealed);
        if self.count > 0 {
            chunks.push(self.seal());
        }
        chunks
    }

    /// Closes the chunk and gives its memory back: the allocator is the pool that threads share.
    fn seal(&mut self) -> Sealed {
        let fresh = Self::new(self.thread);
        let Self { sealed, count, last, first, low, high, max_site, mut streams, callers, .. } =
            std::mem::replace(self, fresh);
        self.sealed = sealed;
        let high = high.max(last);
        streams.ticks.truncate(count);
        let mut structure = Vec::with_capacity(64 + count / 4 + streams.spelt.len() + streams.details.len());
        put_varint(&mut structure, first - low);
        put_varint(&mut structure, callers.len() as u64);
        put_varint(&mut structure, streams.spelt.len() as u64);
        put_varint(&mut structure, streams.details.len() as u64);
        put_varint(&mut structure, streams.far.len() as u64);
        let mut last_caller = 0_u64;
        for caller in callers {
            put_varint(&mut structure, zigzag(caller.wrapping_sub(last_caller)));
            last_caller = caller;
        }
        pack(&streams.tokens[..count.next_multiple_of(4)], &mut structure);
        structure.append(&mut streams.spelt);
        structure.append(&mut streams.details);
        structure.append(&mut streams.far);
        Sealed { span: Span { events: count as u32, low, high, max_site }, structure, ticks: streams.ticks }
    }
}

/// Four two-bit tokens a byte.
fn pack(tokens: &[u8], out: &mut Vec<u8>) {
    let (fours, _) = tokens.as_chunks::<4>();
    out.extend(fours.iter().map(|&four| {
        let word = u32::from_le_bytes(four);
        (word | word >> 6 | word >> 12 | word >> 18) as u8
    }));
}

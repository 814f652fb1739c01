//! Events to streams: what runs once per event while the traced program runs.

use super::predictor::{SMALL_EVENTS, SPELT, Tables, is_graph};
use super::sealed::{Sealed, Span, Streams, put_far};
use super::streams::put_varint;
use super::symbol::*;
use super::{CHUNK_EVENTS, TICK_SHORT};
use crate::{Event, EventKind, SiteId, ThreadId};

/// Slots of the map from a caller's address to its place in the chunk's list. It forgets on collision: then an
/// address stands in the list twice.
const CALLER_SLOTS: usize = 1 << 10;

/// Events wait in this many pairs of ticks and symbol, and are then encoded in one tight loop: what the loop keeps
/// in registers, encoding one event at a time would load and store (measured: 100 instructions an event, not 50).
const WAITING: usize = SMALL_EVENTS;

/// Turns the events of one thread into chunks, one event at a time.
///
/// A chunk's buffers come with its first event and grow in two steps. They stay while the thread fills chunk after
/// chunk and are given back otherwise, so that thousands of idle or short-lived threads are cheap.
pub struct ThreadEncoder {
    waiting: usize,
    stage: Option<Box<[[u64; 2]; WAITING]>>,
    /// Encoded events of the chunk.
    count: usize,
    last: u64,
    first: u64,
    low: u64,
    high: u64,
    max_site: u32,
    tables: Tables,
    streams: Streams,
    callers: Vec<u64>,
    caller_slots: Vec<u32>,
    /// What was last spelt out of each caller.
    usual: Vec<Symbol>,
    structure: Vec<u8>,
    sealed: Vec<Sealed>,
    thread: ThreadId,
}

impl ThreadEncoder {
    /// For the events of `thread`.
    pub fn new(thread: ThreadId) -> Self {
        Self {
            waiting: 0,
            stage: None,
            count: 0,
            last: 0,
            first: 0,
            low: 0,
            high: 0,
            max_site: 0,
            tables: Tables::default(),
            streams: Streams::default(),
            callers: Vec::new(),
            caller_slots: Vec::new(),
            usual: Vec::new(),
            structure: Vec::new(),
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
        self.count + self.waiting + self.sealed.iter().map(|chunk| chunk.span.events as usize).sum::<usize>()
    }

    /// Nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.count + self.waiting == 0 && self.sealed.is_empty()
    }

    /// Time to call [`crate::TraceWriter::events`]. More may be pushed; it is kept as chunks of the usual size.
    #[inline]
    pub fn is_full(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Adds an event.
    #[inline]
    pub fn push(&mut self, event: Event) {
        let SiteId(site) = event.site;
        let symbol = match event.kind {
            EventKind::Entry => symbol(site, ENTRY, 0),
            EventKind::Exit { pops } if u64::from(pops) < AUX_END => symbol(site, EXIT, u64::from(pops)),
            EventKind::TailEntry => symbol(site, TAIL_ENTRY, 0),
            EventKind::Call { parent } => symbol(site, CALL, self.caller(parent)),
            EventKind::EntryFrom { parent } => symbol(site, ENTRY_FROM, self.caller(parent)),
            EventKind::TailEntryFrom { parent } => symbol(site, TAIL_ENTRY_FROM, self.caller(parent)),
            EventKind::Exit { .. } | EventKind::Lost { .. } => return self.push_rare(event),
        };
        self.put(event.ticks, symbol);
    }

    /// Adds [`EventKind::Entry`] or, if it `returns`, [`EventKind::Exit`] of one frame: the same as
    /// [`Self::push`] for whoever has the two as one bit, without a branch on it.
    #[inline]
    pub fn push_graph(&mut self, ticks: u64, site: SiteId, returns: bool) {
        let exit = symbol(0, EXIT, 1) & u64::from(returns).wrapping_neg();
        self.put(ticks, exit | u64::from(site.0));
    }

    #[inline(always)]
    fn put(&mut self, ticks: u64, symbol: Symbol) {
        if let Some(stage) = &mut self.stage {
            stage[self.waiting % WAITING] = [ticks, symbol];
            self.waiting += 1;
            if self.waiting == WAITING {
                self.encode_waiting();
            }
        } else {
            self.put_first(ticks, symbol);
        }
    }

    #[cold]
    fn put_first(&mut self, ticks: u64, symbol: Symbol) {
        let stage = self.stage.insert(Box::new([[0; 2]; WAITING]));
        stage[0] = [ticks, symbol];
        self.waiting = 1;
    }

    /// An event nothing is learnt from: stored by itself, between runs of others.
    #[cold]
    fn push_rare(&mut self, event: Event) {
        self.encode_waiting();
        let at = self.begin(event.ticks, 1);
        self.encode_ticks(at, &[[event.ticks, 0]]);
        self.streams.tokens[at] = SPELT;
        let SiteId(site) = event.site;
        match event.kind {
            EventKind::Exit { pops } => {
                self.spell_head(site, EXIT);
                put_varint(&mut self.streams.details, u64::from(pops));
                self.tables.predictor().close(pops);
            }
            EventKind::Lost { entries, exits } => {
                self.spell_head(site, LOST);
                put_varint(&mut self.streams.details, u64::from(entries));
                put_varint(&mut self.streams.details, u64::from(exits));
            }
            _ => {}
        }
        self.seal_if_full();
    }

    /// Makes room for `events` of a chunk, which may not go past [`SMALL_EVENTS`] from below; returns the place of the first.
    fn begin(&mut self, ticks: u64, events: usize) -> usize {
        let at = self.count;
        if at == 0 {
            (self.first, self.last, self.low, self.high) = (ticks, ticks, ticks, ticks);
            self.tables.start();
        } else if at == SMALL_EVENTS {
            self.tables.widen();
            // In one go: from here on the chunk is expected to become a full one.
            self.streams.tokens.reserve(CHUNK_EVENTS - at);
            self.streams.ticks.reserve(CHUNK_EVENTS - at);
        }
        self.count = at + events;
        self.streams.tokens.resize(self.count, 0);
        self.streams.ticks.resize(self.count, 0);
        at
    }

    #[inline(never)]
    fn encode_waiting(&mut self) {
        let Some(stage) = self.stage.take() else { return };
        let mut rest = &stage[..std::mem::take(&mut self.waiting)];
        while let Some([ticks, _]) = rest.first() {
            let room = if self.count < SMALL_EVENTS { SMALL_EVENTS - self.count } else { WAITING };
            let (run, more) = rest.split_at(rest.len().min(room));
            let at = self.begin(*ticks, run.len());
            self.encode_ticks(at, run);
            self.encode_symbols(at, run);
            rest = more;
        }
        self.stage = Some(stage);
        self.seal_if_full();
    }

    /// Closes the chunk when the next run might not fit. Only here, when nothing waits: what waits may name callers
    /// by their place in this chunk's list.
    fn seal_if_full(&mut self) {
        if self.count > CHUNK_EVENTS - WAITING {
            let sealed = self.seal();
            self.sealed.push(sealed);
        }
    }

    fn encode_ticks(&mut self, at: usize, run: &[[u64; 2]]) {
        let Streams { ticks: codes, far, .. } = &mut self.streams;
        let mut last = self.last;
        for (code, &[ticks, _]) in codes[at..].iter_mut().zip(run) {
            let delta = ticks.wrapping_sub(last);
            // The second half is for a clock that wraps around: a small step that is none.
            *code = if (delta < TICK_SHORT) & (ticks >= delta) {
                delta as u8
            } else {
                put_far(far, delta, ticks)
            };
            if ticks < last {
                self.high = self.high.max(last);
                self.low = self.low.min(ticks);
            }
            last = ticks;
        }
        self.last = last;
    }

    fn encode_symbols(&mut self, at: usize, run: &[[u64; 2]]) {
        let mut spelt = [0; WAITING];
        let mut count = 0;
        let mut predictor = self.tables.predictor();
        for (token, &[_, symbol]) in self.streams.tokens[at..].iter_mut().zip(run) {
            let site = site_of(symbol);
            let said = if is_graph(symbol) {
                let returns = symbol >> 32 != ENTRY;
                let known = returns & (site == predictor.top());
                let symbol = if known { EXIT_TOP } else { symbol };
                let said = predictor.say(symbol);
                predictor.step(symbol, site, returns);
                said
            } else {
                let said = predictor.say(symbol);
                predictor.step_other(symbol);
                said
            };
            *token = said;
            // Stored in any case, kept if spelt: a branch here would be mispredicted.
            spelt[count % WAITING] = symbol;
            count += usize::from(said == SPELT);
        }
        drop(predictor);
        for &symbol in &spelt[..count] {
            self.spell(symbol);
        }
    }

    fn spell(&mut self, symbol: Symbol) {
        let (kind, aux) = (kind_of(symbol), aux_of(symbol));
        if matches!(kind, CALL | ENTRY_FROM | TAIL_ENTRY_FROM) {
            // A place in the program mostly calls one function: then the place says it all.
            let usual = &mut self.usual[aux as usize];
            if *usual == symbol {
                put_varint(&mut self.streams.spelt, aux << 3 | USUAL);
                return;
            }
            *usual = symbol;
        }
        self.spell_head(site_of(symbol), kind);
        if !matches!(kind, ENTRY | TAIL_ENTRY) {
            put_varint(&mut self.streams.details, aux);
        }
    }

    fn spell_head(&mut self, site: u32, kind: u64) {
        self.max_site = self.max_site.max(site);
        put_varint(&mut self.streams.spelt, u64::from(site) << 3 | kind);
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
        self.usual.push(0);
        self.caller_slots[slot] = at as u32;
        at as u64
    }

    /// Everything pending as chunks, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Sealed> {
        self.encode_waiting();
        let mut chunks = std::mem::take(&mut self.sealed);
        if self.count > 0 {
            chunks.push(self.seal());
        }
        chunks
    }

    /// The buffers of a chunk that is in the file. Whoever filled them will again, the others give all memory back.
    pub(crate) fn recycle(&mut self, Sealed { span, structure, ticks }: Sealed) {
        if span.events as usize > CHUNK_EVENTS - WAITING {
            (self.structure, self.streams.ticks) = (structure, ticks);
            self.streams.ticks.clear();
        } else {
            self.release();
        }
    }

    /// Gives the memory back, if nothing is pending.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            *self = Self::new(self.thread);
        }
    }

    /// Closes the chunk.
    fn seal(&mut self) -> Sealed {
        self.usual.clear();
        let count = std::mem::take(&mut self.count);
        let first = self.first - self.low;
        let structure = self.streams.structure(first, &mut self.callers, std::mem::take(&mut self.structure));
        let span = Span {
            events: count as u32,
            low: self.low,
            high: self.high.max(self.last),
            max_site: std::mem::take(&mut self.max_site),
        };
        Sealed { span, structure, ticks: std::mem::take(&mut self.streams.ticks) }
    }
}

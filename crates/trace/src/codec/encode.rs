//! Events to streams: what runs once per event while the traced program runs.

use super::CHUNK_EVENTS;
use super::callers::Callers;
use super::predictor::{FULL_SLOTS, Predictor, SMALL_EVENTS, SMALL_SLOTS, SPELT, Tables};
use super::sealed::{Sealed, Span, Streams};
use super::streams::put_varint;
use super::symbol::*;
use super::ticks::Times;
use crate::event::{Event, EventKind};
use crate::meta::{SiteId, ThreadId};

/// So many events are encoded together, in tight loops: what such a loop keeps in registers, encoding one event at a time
/// would load and store (measured: 100 instructions an event, not 50).
const WAITING: usize = SMALL_EVENTS;

/// A chunk whose values take more is closed, so that no payload comes near its limit.
const VALUES: usize = 4 << 20;

/// Of each of eight tokens the lower bit; only [`SPELT`] has that and the next one.
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;

/// Events that wait to be encoded together. Times and symbols apart, because of what is done with them.
struct Stage {
    ticks: [u64; WAITING],
    symbols: [Symbol; WAITING],
}

/// One end of a call, as [`ThreadEncoder::push_graph`] takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphEvent {
    /// Clock.
    pub ticks: u64,
    /// Function.
    pub site: SiteId,
    /// Whether the call begins or ends.
    pub end: GraphEnd,
}

/// Which end of a call a [`GraphEvent`] is: the bits of its symbol beside the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphEnd(Symbol);

impl GraphEnd {
    /// The function is entered by a call.
    pub const ENTRY: GraphEnd = GraphEnd(symbol(0, ENTRY, 0));
    /// The function is entered by a jump.
    pub const TAIL_ENTRY: GraphEnd = GraphEnd(symbol(0, TAIL_ENTRY, 0));
    /// The function returns; one call ends.
    pub const RETURN: GraphEnd = GraphEnd(RETURN);

    /// The function returns; `pops` calls end, one or more.
    pub fn returns(pops: u8) -> GraphEnd {
        if pops == 1 { GraphEnd::RETURN } else { GraphEnd(symbol(0, EXIT, u64::from(pops))) }
    }
}

impl GraphEvent {
    #[inline(always)]
    fn symbol(self) -> Symbol {
        u64::from(self.site.0) | self.end.0
    }
}

/// Turns the events of one thread into chunks.
///
/// A chunk's buffers come with its first event and grow in two steps. They stay while the thread fills chunk after
/// chunk and are given back otherwise, so that thousands of idle or short-lived threads are cheap.
pub struct ThreadEncoder {
    waiting: usize,
    stage: Option<Box<Stage>>,
    /// Encoded events of the chunk.
    count: usize,
    times: Times,
    max_site: u32,
    tables: Tables,
    streams: Streams,
    callers: Callers,
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
            times: Times::default(),
            max_site: 0,
            tables: Tables::default(),
            streams: Streams::default(),
            callers: Callers::default(),
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
            EventKind::Exit { pops: 1 } => RETURN | u64::from(site),
            EventKind::Exit { pops } if u64::from(pops) < AUX_END => symbol(site, EXIT, u64::from(pops)),
            EventKind::TailEntry => symbol(site, TAIL_ENTRY, 0),
            EventKind::Call { parent } => symbol(site, CALL, self.callers.place(parent)),
            EventKind::EntryFrom { parent } => symbol(site, ENTRY_FROM, self.callers.place(parent)),
            EventKind::TailEntryFrom { parent } => symbol(site, TAIL_ENTRY_FROM, self.callers.place(parent)),
            EventKind::Exit { .. }
            | EventKind::Left { .. }
            | EventKind::Resumed
            | EventKind::Outside { .. }
            | EventKind::SwitchedOff
            | EventKind::ThreadEnded
            | EventKind::Lost { .. } => return self.push_rare(event),
        };
        let count = stage(&mut self.stage).fill(self.waiting, &[()], |()| Some((event.ticks, symbol)));
        self.added(count);
    }

    /// Adds an event of which values were read.
    pub fn push_with(&mut self, event: Event, values: &[u8]) {
        // Then nothing waits, and the event's place in the chunk is known.
        self.encode_waiting();
        if self.streams.values.len() > VALUES {
            let sealed = self.seal();
            self.sealed.push(sealed);
        }
        put_varint(&mut self.streams.values, (self.count - self.streams.valued) as u64);
        put_varint(&mut self.streams.values, values.len() as u64);
        self.streams.values.extend_from_slice(values);
        self.streams.valued = self.count + 1;
        self.push(event);
    }

    /// Adds what `event` makes of `words` until it makes nothing, or until as many events wait as are encoded together. Returns how many it
    /// added.
    ///
    /// The same as [`Self::push`] for many events: one loop, with what `event` captures in registers.
    #[inline(always)]
    pub fn push_graph<T>(&mut self, words: &[T], mut event: impl FnMut(&T) -> Option<GraphEvent>) -> usize {
        let count = stage(&mut self.stage).fill(self.waiting, words, |word| {
            let event = event(word)?;
            Some((event.ticks, event.symbol()))
        });
        self.added(count);
        count
    }

    /// Adds [`EventKind::Call`]s likewise: ticks, function and parent.
    #[inline(always)]
    pub fn push_calls<T>(
        &mut self,
        words: &[T],
        mut call: impl FnMut(&T) -> Option<(u64, SiteId, u64)>,
    ) -> usize {
        let count = stage(&mut self.stage).fill(self.waiting, words, |word| {
            let (ticks, site, parent) = call(word)?;
            Some((ticks, symbol(site.0, CALL, self.callers.place(parent))))
        });
        self.added(count);
        count
    }

    #[inline(always)]
    fn added(&mut self, count: usize) {
        self.waiting += count;
        if self.waiting == WAITING {
            self.encode_waiting();
        }
    }

    /// An event nothing is learnt from: stored by itself, between runs of others.
    #[cold]
    fn push_rare(&mut self, event: Event) {
        self.encode_waiting();
        let at = self.begin(&[event.ticks]);
        self.streams.tokens[at] = SPELT;
        let SiteId(site) = event.site;
        match event.kind {
            EventKind::Exit { pops } => {
                self.spell_head(site, EXIT);
                put_varint(&mut self.streams.details, u64::from(pops));
                self.tables.close(pops);
            }
            EventKind::Lost { entries, exits } if entries | exits != 0 => {
                self.spell_head(site, LOST);
                put_varint(&mut self.streams.details, u64::from(entries));
                put_varint(&mut self.streams.details, u64::from(exits));
            }
            kind => {
                let number = match kind {
                    // The format has no parts: all that is known in the file is that the calls did not return.
                    EventKind::Left { pops } | EventKind::Outside { pops } => FIRST_LEFT + u64::from(pops),
                    EventKind::SwitchedOff => SWITCHED_OFF,
                    EventKind::ThreadEnded => THREAD_ENDED,
                    EventKind::Resumed => RESUMED,
                    _ => NOTHING_LOST,
                };
                self.spell_head(site, LOST);
                self.streams.details.extend([0, 0]);
                put_varint(&mut self.streams.details, number);
                if let EventKind::Left { pops } | EventKind::Outside { pops } = kind {
                    self.tables.close(pops);
                }
            }
        }
        self.seal_if_full();
    }

    /// Begins events of a chunk, which may not go past [`SMALL_EVENTS`] from below, with their ticks; returns the place of the first.
    fn begin(&mut self, ticks: &[u64]) -> usize {
        let at = self.count;
        if at == 0 {
            self.times.start(ticks[0]);
            self.tables.start();
        } else if at == SMALL_EVENTS {
            self.tables.widen();
            // In one go: from here on the chunk is expected to become a full one.
            self.streams.tokens.reserve(CHUNK_EVENTS - at);
            self.streams.ticks.reserve(CHUNK_EVENTS - at);
        }
        self.count = at + ticks.len();
        self.streams.tokens.resize(self.count, 0);
        self.streams.ticks.resize(self.count, 0);
        self.times.encode(ticks, &mut self.streams.ticks[at..], &mut self.streams.far);
        at
    }

    #[inline(never)]
    fn encode_waiting(&mut self) {
        let Some(stage) = self.stage.take() else { return };
        let (mut done, waiting) = (0, std::mem::take(&mut self.waiting));
        while done < waiting {
            let room = if self.count < SMALL_EVENTS { SMALL_EVENTS - self.count } else { WAITING };
            let run = done..waiting.min(done + room);
            let at = self.begin(&stage.ticks[run.clone()]);
            self.encode_symbols(at, &stage.symbols[run.clone()]);
            done = run.end;
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

    fn encode_symbols(&mut self, at: usize, run: &[Symbol]) {
        let tokens = &mut self.streams.tokens[at..];
        if at < SMALL_EVENTS {
            predict(self.tables.predictor::<SMALL_SLOTS>(), run, tokens);
        } else {
            predict(self.tables.predictor::<FULL_SLOTS>(), run, tokens);
        }
        // What is to be spelt, in a loop of its own: whether a symbol is guessed, is not for a processor to guess.
        let (runs, rest) = run.as_chunks::<8>();
        for (at, run) in (at..).step_by(8).zip(runs) {
            let Some(tokens) = self.streams.tokens[at..].first_chunk() else { break };
            let tokens = u64::from_le_bytes(*tokens);
            let mut spelt = tokens & tokens >> 1 & LOWEST_BITS;
            while spelt != 0 {
                self.spell(run[spelt.trailing_zeros() as usize / 8]);
                spelt &= spelt - 1;
            }
        }
        for (place, &symbol) in (at + 8 * runs.len()..).zip(rest) {
            if self.streams.tokens[place] == SPELT {
                self.spell(symbol);
            }
        }
    }

    fn spell(&mut self, symbol: Symbol) {
        let symbol = plain(symbol);
        let (kind, aux) = (kind_of(symbol), aux_of(symbol));
        if matches!(kind, CALL | ENTRY_FROM | TAIL_ENTRY_FROM) {
            // A place in the program mostly calls one function: then the place says it all.
            let usual = self.callers.usual(aux);
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

    /// Everything pending as chunks, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Sealed> {
        self.encode_waiting();
        let mut chunks = std::mem::take(&mut self.sealed);
        if self.count > 0 {
            chunks.push(self.seal());
        }
        chunks
    }

    /// The buffers of a chunk that is in the file. Those that were full will be again, the others give all memory back.
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
        let count = std::mem::take(&mut self.count);
        let first = self.times.first - self.times.low;
        let structure = self.streams.structure(first, &mut self.callers, std::mem::take(&mut self.structure));
        let span = Span {
            events: count as u32,
            low: self.times.low,
            high: self.times.high.max(self.times.last),
            max_site: std::mem::take(&mut self.max_site),
        };
        Sealed { span, structure, ticks: std::mem::take(&mut self.streams.ticks) }
    }
}

/// Makes a token of each symbol.
#[inline(always)]
fn predict<const SLOTS: usize>(mut predictor: Predictor<'_, SLOTS>, run: &[Symbol], tokens: &mut [u8]) {
    for (token, &symbol) in tokens.iter_mut().zip(run) {
        let (site, returns) = (site_of(symbol), symbol >= RETURN);
        // Not 0 for a return that is not from the top of the stack.
        let elsewhere = (site ^ predictor.top()) & u32::from(returns).wrapping_neg();
        let said = if is_graph(symbol) && elsewhere == 0 {
            // One way for entries and returns: which of the two it is, is not for a processor to guess either.
            let symbol = if returns { EXIT_TOP } else { symbol };
            let said = predictor.say(symbol, returns);
            predictor.step(symbol, site, returns);
            said
        } else {
            let symbol = plain(symbol);
            let said = predictor.say(symbol, false);
            predictor.step_other(symbol);
            said
        };
        *token = said;
    }
}

/// The stage, which comes with the first event.
#[inline(always)]
fn stage(stage: &mut Option<Box<Stage>>) -> &mut Stage {
    #[cold]
    fn new() -> Box<Stage> {
        Box::new(Stage { ticks: [0; WAITING], symbols: [0; WAITING] })
    }
    stage.get_or_insert_with(new)
}

impl Stage {
    /// Fills the places from `at` on with what `event` makes of `words`, until it makes nothing. Says how many.
    #[inline(always)]
    fn fill<T>(
        &mut self,
        at: usize,
        words: &[T],
        mut event: impl FnMut(&T) -> Option<(u64, Symbol)>,
    ) -> usize {
        let room = words.len().min(WAITING - at);
        let places = self.ticks[at..at + room].iter_mut().zip(&mut self.symbols[at..at + room]);
        let mut count = 0;
        for ((ticks, symbol), word) in places.zip(&words[..room]) {
            let Some(made) = event(word) else { break };
            (*ticks, *symbol) = made;
            count += 1;
        }
        count
    }
}

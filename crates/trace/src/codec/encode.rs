//! Encodes events to streams: code that runs once per event while the traced program runs.

use super::CHUNK_EVENTS;
use super::callers::Callers;
use super::predictor::{FULL_SLOTS, Predictor, SMALL_EVENTS, SMALL_SLOTS, SPELT, Tables};
use super::sealed::{Sealed, Span, Streams};
use super::streams::put_varint;
use super::symbol::*;
use super::ticks::Times;
use crate::event::{Event, EventKind};
use crate::meta::{SiteId, ThreadId};

/// Number of events that are encoded together, in tight loops: these keep in registers what
/// encoding one event at a time would load and store (measured: 50 instructions an event instead of
/// 100).
const WAITING: usize = SMALL_EVENTS;

/// Bytes of values above which a chunk is closed, so that no payload comes near its limit.
const VALUES: usize = 4 << 20;

/// The lower bit of each of eight tokens; only [`SPELT`] has both that and the next bit.
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;

/// Events that wait to be encoded together. Times and symbols are apart, as they are processed
/// apart.
struct Stage {
    ticks: [u64; WAITING],
    symbols: [Symbol; WAITING],
}

/// An entry or a return, as [`ThreadEncoder::push_graph`] takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphEvent {
    /// Time, in units of the clock.
    pub ticks: u64,
    /// Function of the event.
    pub site: SiteId,
    /// End of a call that the event is.
    pub end: GraphEnd,
}

/// The end of a call that a [`GraphEvent`] is: the bits of its symbol without the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphEnd(Symbol);

impl GraphEnd {
    /// Entry by a call.
    pub const ENTRY: GraphEnd = GraphEnd(symbol(0, ENTRY, 0));
    /// Entry by a jump.
    pub const TAIL_ENTRY: GraphEnd = GraphEnd(symbol(0, TAIL_ENTRY, 0));
    /// Return that ends one call.
    pub const RETURN: GraphEnd = GraphEnd(RETURN);

    /// Return that ends `pops` calls, one or more.
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

/// Encoder of the events of one thread to chunks.
///
/// A chunk's buffers are allocated with its first event and grow in two steps. They stay while the
/// thread fills chunk after chunk and are freed otherwise, so that thousands of idle or short-lived
/// threads are cheap.
pub struct ThreadEncoder {
    waiting: usize,
    stage: Option<Box<Stage>>,
    /// Number of encoded events of the chunk.
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
    /// Creates an encoder of the events of `thread`.
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

    /// Returns the thread of the events.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.count + self.waiting + self.sealed.iter().map(|chunk| chunk.span.events as usize).sum::<usize>()
    }

    /// Returns the time of the newest event that was added; 0 if there was none.
    pub fn last_ticks(&self) -> u64 {
        let newest = self.waiting.checked_sub(1);
        match (newest, &self.stage) {
            (Some(newest), Some(stage)) => stage.ticks[newest],
            _ => self.times.last,
        }
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.count + self.waiting == 0 && self.sealed.is_empty()
    }

    /// Whether it is time to call [`crate::TraceWriter::events`]. More events may be pushed; they
    /// are kept as chunks of the usual size.
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

    /// Adds an event with values.
    pub fn push_with(&mut self, event: Event, values: &[u8]) {
        // Now no event waits, and the event's place in the chunk is known.
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

    /// Adds the events that `event` makes of `words` until it makes none, or until as many events
    /// wait as are encoded together. Returns how many it added.
    ///
    /// It is [`Self::push`] for many events: a single loop, with the variables that `event`
    /// captures in registers.
    #[inline(always)]
    pub fn push_graph<T>(&mut self, words: &[T], mut event: impl FnMut(&T) -> Option<GraphEvent>) -> usize {
        let count = stage(&mut self.stage).fill(self.waiting, words, |word| {
            let event = event(word)?;
            Some((event.ticks, event.symbol()))
        });
        self.added(count);
        count
    }

    /// Adds the [`EventKind::Call`]s that `call` makes of `words`, as ticks, function and parent,
    /// like [`Self::push_graph`].
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

    /// Counts events that were added to the stage, and encodes it when it is full.
    #[inline(always)]
    fn added(&mut self, count: usize) {
        self.waiting += count;
        if self.waiting == WAITING {
            self.encode_waiting();
        }
    }

    /// Encodes an event from which the predictor does not learn, between runs of others.
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
                    EventKind::Left { pops } => FIRST_LEFT + u64::from(pops),
                    EventKind::Outside { pops } => FIRST_OUTSIDE + u64::from(pops),
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

    /// Begins a run of events of a chunk with their ticks; the run may not cross [`SMALL_EVENTS`].
    /// Returns the place of the first.
    fn begin(&mut self, ticks: &[u64]) -> usize {
        let at = self.count;
        if at == 0 {
            self.times.start(ticks[0]);
            self.tables.start();
        } else if at == SMALL_EVENTS {
            self.tables.widen();
            // Reserved at once: from here on the chunk is expected to become full.
            self.streams.tokens.reserve(CHUNK_EVENTS - at);
            self.streams.ticks.reserve(CHUNK_EVENTS - at);
        }
        self.count = at + ticks.len();
        self.streams.tokens.resize(self.count, 0);
        self.streams.ticks.resize(self.count, 0);
        self.times.encode(ticks, &mut self.streams.ticks[at..], &mut self.streams.far);
        at
    }

    /// Encodes the events that wait.
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

    /// Closes the chunk when the next run might not fit. Only called while no event waits: waiting
    /// events name callers by their place in this chunk's list.
    fn seal_if_full(&mut self) {
        if self.count > CHUNK_EVENTS - WAITING {
            let sealed = self.seal();
            self.sealed.push(sealed);
        }
    }

    /// Encodes the symbols of a run, whose first event is at place `at`.
    fn encode_symbols(&mut self, at: usize, run: &[Symbol]) {
        let tokens = &mut self.streams.tokens[at..];
        if at < SMALL_EVENTS {
            predict(self.tables.predictor::<SMALL_SLOTS>(), run, tokens);
        } else {
            predict(self.tables.predictor::<FULL_SLOTS>(), run, tokens);
        }
        // A separate loop spells symbols out: a processor cannot predict whether a symbol is
        // predicted.
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

    /// Spells a symbol out.
    fn spell(&mut self, symbol: Symbol) {
        let symbol = plain(symbol);
        let (kind, aux) = (kind_of(symbol), aux_of(symbol));
        if matches!(kind, CALL | ENTRY_FROM | TAIL_ENTRY_FROM) {
            // A call site mostly calls one function: then the caller's number alone gives the
            // symbol.
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

    /// Writes site and kind of a symbol that is spelt out.
    fn spell_head(&mut self, site: u32, kind: u64) {
        self.max_site = self.max_site.max(site);
        put_varint(&mut self.streams.spelt, u64::from(site) << 3 | kind);
    }

    /// Returns all pending events as chunks, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Sealed> {
        self.encode_waiting();
        let mut chunks = std::mem::take(&mut self.sealed);
        if self.count > 0 {
            chunks.push(self.seal());
        }
        chunks
    }

    /// Takes back the buffers of a chunk that was written. Those of a full chunk are reused, others
    /// are freed.
    pub(crate) fn recycle(&mut self, Sealed { span, structure, ticks }: Sealed) {
        if span.events as usize > CHUNK_EVENTS - WAITING {
            (self.structure, self.streams.ticks) = (structure, ticks);
            self.streams.ticks.clear();
        } else {
            self.release();
        }
    }

    /// Frees the memory, if no event is pending.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            *self = Self { times: self.times, ..Self::new(self.thread) };
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

/// Computes a token for each symbol.
#[inline(always)]
fn predict<const SLOTS: usize>(mut predictor: Predictor<'_, SLOTS>, run: &[Symbol], tokens: &mut [u8]) {
    for (token, &symbol) in tokens.iter_mut().zip(run) {
        let (site, returns) = (site_of(symbol), symbol >= RETURN);
        // Not 0 for a return from a function that is not the top of the stack.
        let elsewhere = (site ^ predictor.top()) & u32::from(returns).wrapping_neg();
        let said = if is_graph(symbol) && elsewhere == 0 {
            // A single branch for entries and returns: the processor cannot predict which of the
            // two comes.
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

/// Returns the stage, allocating it with the first event.
#[inline(always)]
fn stage(stage: &mut Option<Box<Stage>>) -> &mut Stage {
    #[cold]
    fn new() -> Box<Stage> {
        Box::new(Stage { ticks: [0; WAITING], symbols: [0; WAITING] })
    }
    stage.get_or_insert_with(new)
}

impl Stage {
    /// Fills the places from `at` on with the events that `event` makes of `words`, until it makes
    /// none. Returns how many.
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

//! Only what lies beneath slow calls goes on: `record --slow 'f>10ms'`.
//!
//! What happens in such a call is held back until it has taken longer than its limit, and from then on goes on as it comes; if it ends before, it is
//! dropped, and counted. So no more is held back than what a thread does in the time of the limit, and a call that goes on for hours is written like any
//! recording. Where that is still more than there is room for, the beginning of the outermost call is given up: should the call turn out slow, what was
//! given up is lost, and counted as that.

use crate::output::Consumer;
use calltap_names::{Glob, is_named};
use calltap_trace::{
    Batch, Calls, ClockPair, Closing, Error, Event, EventKind, Loss, Record, SiteId, SlowRule, ThreadEncoder,
    ThreadId, TraceWriter, Unpacker,
};
use std::collections::HashMap;
use std::ops::Deref;

/// What is kept.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Which calls, and how slow.
    pub rules: Vec<SlowRule>,
    /// What may be held back, bytes, of all threads together.
    pub memory: u64,
}

/// An event, with what was read of it besides.
#[derive(Clone, Debug)]
struct Told {
    event: Event,
    values: Box<[u8]>,
}

impl Told {
    fn encode(&self, encoder: &mut ThreadEncoder) {
        match &*self.values {
            [] => encoder.push(self.event),
            values => encoder.push_with(self.event, values),
        }
    }
}

impl From<Event> for Told {
    fn from(event: Event) -> Told {
        Told { event, values: Box::default() }
    }
}

impl Deref for Told {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

/// An open call of a function that there is a rule for.
#[derive(Clone, Copy, Debug)]
struct Mark {
    site: SiteId,
    /// Frames below it.
    depth: u64,
    start: u64,
    /// It is slow if it takes longer, ticks.
    limit: u64,
    /// Where its entry is held back.
    at: usize,
}

/// Entries and returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    entries: u64,
    exits: u64,
}

impl Counts {
    fn add(&mut self, event: &Event) {
        self.entries += u64::from(event.kind.begins_call());
        self.exits += u64::from(matches!(event.kind, EventKind::Exit { .. }));
    }

    fn add_all(&mut self, other: Counts) {
        self.entries += other.entries;
        self.exits += other.exits;
    }
}

/// An open call whose beginning was given up, and what was in it.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    mark: Mark,
    events: Counts,
}

/// A part of what is held back that goes on in any case, and the return that ends it if it is not its own.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: usize,
    to: usize,
    end: Option<Event>,
}

/// One thread.
#[derive(Default)]
struct Lane {
    calls: Calls<()>,
    last: u64,
    /// Open calls that there are rules for, outermost first.
    marks: Vec<Mark>,
    /// The outermost of them has taken longer already.
    slow: bool,
    /// What has happened since that one began.
    held: Vec<Told>,
    parts: Vec<Part>,
    given_up: Vec<GivenUp>,
    read: Counts,
    kept: Counts,
    /// Of what was given up.
    lost: Counts,
    /// Calls that were slow and could not be kept.
    too_large: u64,
}

impl Lane {
    /// The next event; if it enters a function with a rule, with its limit. What goes on is handed to `out`. `room` events may still be held back.
    fn take(&mut self, event: Told, limit: Option<u64>, room: &mut usize, out: &mut dyn FnMut(Told)) {
        self.read.add(&event);
        if let Some(tail) = event.kind.enters() {
            self.last = self.last.max(event.ticks);
            self.judge(self.last, room, out);
            if let Some(limit) = limit.filter(|_| !self.slow) {
                let (depth, at) = (self.depth(), self.held.len());
                self.marks.push(Mark { site: event.site, depth, start: self.last, limit, at });
            }
            self.calls.enter(event.site, tail, ());
            return self.inside(event, room, out);
        }
        let before = self.depth();
        let closing = self.calls.end(&event);
        // What is cut was over at some time before.
        let cut = |mark: &Mark| closing.is_some_and(|closing| closing.is_cut(mark.depth as usize));
        let outermost_lives = !self.marks.first().is_some_and(cut);
        if !matches!(event.kind, EventKind::Left { .. }) {
            self.last = self.last.max(event.ticks);
            if outermost_lives {
                self.judge(self.last, room, out);
            }
        }
        match closing {
            Some(closing) => self.end_calls(event, before, &closing, room, out),
            None => self.inside(event, room, out),
        }
    }

    fn depth(&self) -> u64 {
        self.calls.depth() as u64
    }

    /// Has the outermost call taken longer by now?
    fn judge(&mut self, now: u64, room: &mut usize, out: &mut dyn FnMut(Told)) {
        // What may have ended already has not been seen to take so long.
        let is_open =
            |mark: &Mark| self.calls.open().get(mark.depth as usize).is_none_or(|call| call.cut.is_none());
        let is_slow = |mark: &Mark| now.saturating_sub(mark.start) > mark.limit && is_open(mark);
        if !self.slow && self.marks.first().is_some_and(is_slow) {
            self.slow = true;
            *room += self.held.len();
            self.parts.clear();
            let mut held = std::mem::take(&mut self.held);
            held.drain(..).for_each(|event| self.keep(event, out));
            // Its memory is used again, unless it is much.
            if held.capacity() <= 1 << 12 {
                self.held = held;
            }
        }
    }

    fn keep(&mut self, event: Told, out: &mut dyn FnMut(Told)) {
        self.kept.add(&event);
        out(event);
    }

    /// It is not part of anything slow; nor, as far as we know, of a call that was given up.
    fn drop(&mut self, event: &Event) {
        if let Some(given_up) = self.given_up.last_mut() {
            given_up.events.add(event);
        }
    }

    /// Something that opens or closes no call with a rule.
    fn inside(&mut self, event: Told, room: &mut usize, out: &mut dyn FnMut(Told)) {
        let is_loss = matches!(event.kind, EventKind::Lost { .. });
        if self.slow || self.marks.is_empty() && is_loss {
            return self.keep(event, out);
        }
        if self.marks.is_empty() {
            return self.drop(&event);
        }
        self.hold(event, room, out);
        if is_loss && let Some(at) = self.held.len().checked_sub(1) {
            self.parts.push(Part { from: at, to: at + 1, end: None });
        }
    }

    fn hold(&mut self, event: Told, room: &mut usize, out: &mut dyn FnMut(Told)) {
        while *room == 0 && !self.marks.is_empty() {
            self.give_up(room, out);
        }
        if self.marks.is_empty() {
            return self.drop(&event);
        }
        *room -= 1;
        self.held.push(event);
    }

    /// The beginning of the outermost call is not held back any more: only what lies in the next one.
    fn give_up(&mut self, room: &mut usize, out: &mut dyn FnMut(Told)) {
        let mark = self.marks.remove(0);
        let end = self.marks.first().map_or(self.held.len(), |next| next.at);
        self.given_up.push(GivenUp { mark, events: Counts::default() });
        self.release(end, room, out);
    }

    /// What is held back before `end` goes on as far as it is part of something, and is dropped otherwise.
    fn release(&mut self, end: usize, room: &mut usize, out: &mut dyn FnMut(Told)) {
        *room += end;
        let first = self.parts.iter().take_while(|part| part.from < end).count();
        let (mut parts, mut at) = (self.parts.drain(..first).collect::<Vec<_>>().into_iter().peekable(), 0);
        let rest = self.held.split_off(end);
        for event in std::mem::replace(&mut self.held, rest) {
            parts.next_if(|part| {
                let over = part.to <= at;
                if let (true, Some(end)) = (over, part.end) {
                    self.keep(end.into(), out);
                }
                over
            });
            match parts.peek() {
                Some(part) if part.from <= at => self.keep(event, out),
                _ => self.drop(&event),
            }
            at += 1;
        }
        if let Some(end) = parts.next().and_then(|part| part.end) {
            self.keep(end.into(), out);
        }
        self.parts.iter_mut().for_each(|part| (part.from, part.to) = (part.from - end, part.to - end));
        self.marks.iter_mut().for_each(|mark| mark.at -= end);
    }

    /// An event ends calls, of `before` that were open.
    fn end_calls(
        &mut self,
        told: Told,
        before: u64,
        closing: &Closing,
        room: &mut usize,
        out: &mut dyn FnMut(Told),
    ) {
        let event = told.event;
        while self.calls.close(closing).is_some() {}
        let depth = self.depth();
        let closes = move |mark: &Mark| mark.depth >= depth;
        let cut = |mark: &Mark| closing.is_cut(mark.depth as usize);
        // The return of a caller ends calls that were left by longjmp, an exception, or entered by a jump.
        let own = |mark: &Mark| mark.depth == depth;
        let its = |mark: &Mark| {
            let pops = u32::try_from(before - mark.depth).unwrap_or(u32::MAX);
            let kind = match event.kind {
                EventKind::ThreadEnded => EventKind::ThreadEnded,
                _ if cut(mark) => EventKind::Left { pops },
                _ => EventKind::Exit { pops },
            };
            Event { kind, site: mark.site, ..event }
        };
        match self.marks.first().copied().filter(closes) {
            Some(outermost) if self.slow => {
                (self.slow, self.marks) = (false, Vec::new());
                self.keep(if own(&outermost) { told } else { its(&outermost).into() }, out);
            }
            _ => self.inside(told, room, out),
        }
        // What was held back may be given up now: then nothing is left of it.
        while let Some(mark) = self.marks.last().copied().filter(closes) {
            self.marks.pop();
            if !cut(&mark) && self.last.saturating_sub(mark.start) > mark.limit {
                while self.parts.pop_if(|part| part.from >= mark.at).is_some() {}
                let (to, end) = match own(&mark) {
                    true => (self.held.len(), None),
                    false => (self.held.len() - 1, Some(its(&mark))),
                };
                self.parts.push(Part { from: mark.at, to, end });
            }
            if self.marks.is_empty() {
                self.release(self.held.len(), room, out);
            }
        }
        while let Some(given_up) = self.given_up.pop_if(|given_up| closes(&given_up.mark)) {
            let now = if cut(&given_up.mark) { given_up.mark.start } else { self.last };
            self.settle(given_up, now, event.ticks, out);
        }
    }

    /// A call whose beginning was given up has ended.
    fn settle(&mut self, given_up: GivenUp, now: u64, ticks: u64, out: &mut dyn FnMut(Told)) {
        let GivenUp { mark, events } = given_up;
        if now.saturating_sub(mark.start) > mark.limit {
            self.too_large += 1;
            self.lost.add_all(events);
            let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            let kind = EventKind::Lost { entries: bounded(events.entries), exits: bounded(events.exits) };
            out(Event { ticks, site: mark.site, kind }.into());
        } else if let Some(outer) = self.given_up.last_mut() {
            outer.events.add_all(events);
        }
    }

    /// The thread does no more; what is open was open until `now`, or as far as is known.
    fn end(&mut self, now: Option<u64>, room: &mut usize, out: &mut dyn FnMut(Told)) {
        let now = now.unwrap_or(self.last).max(self.last);
        self.judge(now, room, out);
        while !self.slow && !self.marks.is_empty() {
            // Not the outermost one: perhaps the next.
            self.marks.remove(0);
            let end = self.marks.first().map_or(self.held.len(), |next| next.at);
            self.release(end, room, out);
            self.judge(now, room, out);
        }
        while let Some(given_up) = self.given_up.pop() {
            self.settle(given_up, now, self.last, out);
        }
    }

    /// What the thread did in all, given what could be read of it.
    fn loss(&self, read: &Loss) -> Loss {
        let Lane { kept, lost, .. } = self;
        Loss {
            entries: kept.entries,
            exits: kept.exits,
            lost_entries: read.lost_entries + lost.entries,
            lost_exits: read.lost_exits + lost.exits,
            dropped_entries: self.read.entries.saturating_sub(kept.entries + lost.entries),
            dropped_exits: self.read.exits.saturating_sub(kept.exits + lost.exits),
            ..*read
        }
    }
}

/// A thread's lane, and where what goes on is encoded.
struct Kept {
    lane: Lane,
    encoder: ThreadEncoder,
    loss: Loss,
    /// Something went on since its sums were written.
    changed: bool,
}

/// Writes only what lies beneath slow calls.
pub struct SlowWriter {
    writer: TraceWriter,
    rules: Vec<(Glob, u64)>,
    /// By site, nanoseconds.
    limits: Vec<Option<u64>>,
    first: Option<ClockPair>,
    ticks_per_ns: f64,
    /// Events that may still be held back.
    room: usize,
    threads: HashMap<ThreadId, Kept>,
    unpacker: Unpacker,
    /// When the recording ended.
    over: Option<u64>,
    /// Events that were dropped.
    pub dropped: u64,
    too_large: u64,
}

impl SlowWriter {
    /// Into a trace that begins.
    pub fn new(mut writer: TraceWriter, slow: &Slow) -> Result<SlowWriter, Error> {
        writer.record(&Record::Slow { rules: slow.rules.clone() })?;
        Ok(SlowWriter {
            writer,
            rules: slow.rules.iter().map(|rule| (Glob::new(&rule.function), rule.ns)).collect(),
            limits: Vec::new(),
            first: None,
            ticks_per_ns: 1.0,
            room: usize::try_from(slow.memory).unwrap_or(usize::MAX) / size_of::<Told>(),
            threads: HashMap::new(),
            unpacker: Unpacker::default(),
            over: None,
            dropped: 0,
            too_large: 0,
        })
    }

    /// The trace, to be ended; what is to be said is in it.
    pub fn finish(mut self) -> Result<TraceWriter, Error> {
        if self.too_large > 0 {
            let text = format!(
                "{} slow calls had more beneath them than there was room for (--slow-memory): what did not fit is counted as lost",
                self.too_large
            );
            self.writer.record(&Record::Note { text })?;
        }
        Ok(self.writer)
    }

    fn now(&mut self, pair: ClockPair) {
        let first = *self.first.get_or_insert(pair);
        let (ticks, ns) =
            (pair.ticks.saturating_sub(first.ticks), pair.monotonic_ns.saturating_sub(first.monotonic_ns));
        if ns > 0 {
            self.ticks_per_ns = ticks as f64 / ns as f64;
        }
    }

    fn take(&mut self, batch: &Batch) {
        let Self { threads, limits, room, ticks_per_ns, .. } = self;
        let new = || Kept {
            lane: Lane::default(),
            encoder: ThreadEncoder::new(batch.thread),
            loss: Loss { thread: batch.thread, ..Loss::default() },
            changed: false,
        };
        let Kept { lane, encoder, changed, .. } = threads.entry(batch.thread).or_insert_with(new);
        for (place, event) in batch.events.iter().enumerate() {
            let ns = limits.get(event.site.0 as usize).copied().flatten();
            let limit = ns.map(|ns| (ns as f64 * *ticks_per_ns) as u64);
            let told = Told { event: *event, values: batch.values.of(place).into() };
            lane.take(told, limit, room, &mut |told| {
                *changed = true;
                told.encode(encoder);
            });
        }
    }
}

impl Consumer for SlowWriter {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::Clock(pair) => self.now(*pair),
            Record::Sites { sites } => {
                for site in sites {
                    let place = site.id.0 as usize;
                    self.limits.resize(self.limits.len().max(place + 1), None);
                    let is = |glob: &Glob| is_named(glob, site.names());
                    let rules = self.rules.iter().filter(|(glob, _)| is(glob));
                    self.limits[place] = rules.map(|(_, ns)| *ns).min();
                }
            }
            // Of what was read. What was kept of that is said when it is known.
            Record::Loss(loss) => {
                if let Some(kept) = self.threads.get_mut(&loss.thread) {
                    kept.loss = *loss;
                    return Ok(());
                }
            }
            _ => {}
        }
        self.writer.record(record)
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        let thread = encoder.thread();
        let mut unpacker = std::mem::take(&mut self.unpacker);
        unpacker.events(encoder, |batch| self.take(batch));
        self.unpacker = unpacker;
        match self.threads.get_mut(&thread) {
            Some(kept) if kept.encoder.is_full() => self.writer.events(&mut kept.encoder),
            _ => Ok(()),
        }
    }

    fn over(&mut self, at: ClockPair) {
        self.over = Some(at.ticks);
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Some(Kept { mut lane, mut encoder, loss, .. }) = self.threads.remove(&thread) else {
            return Ok(());
        };
        lane.end(self.over, &mut self.room, &mut |told| told.encode(&mut encoder));
        self.writer.events(&mut encoder)?;
        let loss = lane.loss(&loss);
        self.dropped += loss.dropped_entries + loss.dropped_exits;
        self.too_large += lane.too_large;
        self.writer.record(&Record::Loss(loss))
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        self.now(at);
        for Kept { lane, encoder, loss, changed } in self.threads.values_mut() {
            if std::mem::take(changed) {
                self.writer.events(encoder)?;
                self.writer.record(&Record::Loss(lane.loss(loss)))?;
            }
        }
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests;

//! Only calls of some functions and what they call go on, so many levels of them: `--graph f --depth 3` of `record`, `top`, `view` and snapshots.
//!
//! The program records all calls: whether a call lies within another is known where events become calls. What does not go on is dropped, and counted.
//! [Triggers](crate::triggers) decide about the same: then what happens in an interval is held back until all threads were read.

use crate::chosen::Chosen;
use crate::output::Consumer;
use crate::triggers::{Trigger, Triggers};
use calltap_names::Word;
use calltap_trace::{
    Batch, ClockPair, Error, Event, EventKind, Loss, Record, Sieve, Sifting, Switch, SystemCall,
    ThreadEncoder, ThreadId, Unpacker, Waking,
};
use std::collections::HashMap;

/// What is kept.
#[derive(Clone, Debug)]
pub struct Subtree {
    /// Functions, as globs; none: all.
    pub roots: Vec<String>,
    /// Levels from there on.
    pub depth: Option<usize>,
    /// What calls of some functions do to that.
    pub triggers: Vec<Trigger>,
}

impl Subtree {
    /// What a trace says of it.
    pub fn note(&self) -> Record {
        Record::Note { text: format!("only calls {} were kept", self.describe()) }
    }

    /// As a sentence says it: `of handle and what it calls, 3 levels deep`.
    pub fn describe(&self) -> String {
        let roots = if self.roots.is_empty() {
            "of all functions".to_owned()
        } else {
            format!("of {} and what it calls", self.roots.join(", "))
        };
        let levels = match self.depth {
            None => String::new(),
            Some(1) => ", 1 level deep".to_owned(),
            Some(depth) => format!(", {depth} levels deep"),
        };
        let triggers = if self.triggers.is_empty() { "" } else { ", as triggers had it" };
        format!("{roots}{levels}{triggers}")
    }
}

/// Entries and returns.
#[derive(Clone, Copy, Default)]
struct Counts {
    entries: u64,
    exits: u64,
}

impl Counts {
    fn add(&mut self, event: &Event) {
        self.entries += u64::from(event.kind.begins_call());
        self.exits += u64::from(matches!(event.kind, EventKind::Exit { .. }));
    }
}

/// The events of a batch from a place on.
fn rest(batch: &Batch, from: usize) -> Batch {
    let mut rest = Batch { thread: batch.thread, ..Batch::default() };
    for (place, event) in batch.events.iter().enumerate().skip(from) {
        let values = batch.values.of(place);
        if !values.is_empty() {
            rest.values.add(rest.events.len(), values);
        }
        rest.events.push(*event);
    }
    rest
}

/// Which functions matter, and how.
struct Rules {
    roots: Chosen<()>,
    triggers: Triggers,
}

/// A thread.
struct Kept {
    sieve: Sieve,
    encoder: ThreadEncoder,
    loss: Loss,
    read: Counts,
    kept: Counts,
    /// Events were read since its sums were written.
    changed: bool,
    /// What is held back until it is known whether the recording is on.
    held: Vec<Batch>,
    /// The thread has ended.
    is_over: bool,
}

impl Kept {
    fn new(thread: ThreadId, sifting: Sifting) -> Kept {
        Kept {
            sieve: Sieve::new(sifting),
            encoder: ThreadEncoder::new(thread),
            loss: Loss { thread, ..Loss::default() },
            read: Counts::default(),
            kept: Counts::default(),
            changed: false,
            held: Vec::new(),
            is_over: false,
        }
    }

    /// The events of a batch up to a moment, as the recording was off and on meanwhile; the place of the first that came later.
    fn take(
        &mut self,
        batch: &Batch,
        until: u64,
        edges: &mut &[(u64, bool)],
        rules: &Rules,
        passed: &mut Batch,
    ) -> usize {
        passed.events.clear();
        passed.values.clear();
        let mut later = batch.events.len();
        for (place, event) in batch.events.iter().enumerate() {
            if event.ticks > until {
                later = place;
                break;
            }
            self.read.add(event);
            self.pass_edges(event.ticks, edges, passed);
            let is_root = rules.roots.of(event.site).is_some();
            let levels = rules.triggers.levels(event);
            self.sieve.take_limited(event, is_root, levels, batch.values.of(place), passed);
        }
        self.changed = true;
        self.keep(passed);
        later
    }

    /// The recording goes on or pauses. The call that has it paused is part of it.
    fn pass_edges(&mut self, until: u64, edges: &mut &[(u64, bool)], passed: &mut Batch) {
        while let [(at, is_on), rest @ ..] = *edges
            && (*at < until || *at == until && *is_on)
        {
            match is_on {
                true => self.sieve.go_on(*at),
                false => self.sieve.pause(*at, passed),
            }
            *edges = rest;
        }
    }

    /// What was held back, up to a moment until which all is known.
    fn release(&mut self, until: u64, mut edges: &[(u64, bool)], rules: &Rules, passed: &mut Batch) {
        let mut held = std::mem::take(&mut self.held);
        let mut done = 0;
        for batch in &mut held {
            let later = self.take(batch, until, &mut edges, rules, passed);
            if later < batch.events.len() {
                *batch = rest(batch, later);
                break;
            }
            done += 1;
        }
        self.held = held.split_off(done);
        passed.events.clear();
        passed.values.clear();
        self.pass_edges(u64::MAX, &mut edges, passed);
        self.keep(passed);
    }

    /// Encodes what has passed.
    fn keep(&mut self, passed: &Batch) {
        passed.events.iter().for_each(|event| self.kept.add(event));
        for (place, event) in passed.events.iter().enumerate() {
            match passed.values.of(place) {
                [] => self.encoder.push(*event),
                values => self.encoder.push_with(*event, values),
            }
        }
    }

    fn dropped(&self) -> Counts {
        Counts {
            entries: self.read.entries.saturating_sub(self.kept.entries),
            exits: self.read.exits.saturating_sub(self.kept.exits),
        }
    }

    /// What the thread did in all, given what was read of it.
    fn loss(&self) -> Loss {
        let dropped = self.dropped();
        Loss {
            entries: self.kept.entries,
            exits: self.kept.exits,
            dropped_entries: dropped.entries,
            dropped_exits: dropped.exits,
            ..self.loss
        }
    }
}

/// Hands on only what lies beneath some functions, as deep as asked for.
pub struct SubtreeFilter<C> {
    to: C,
    rules: Rules,
    /// Whether the recording is on is known when all threads were read.
    holds: bool,
    sifting: Sifting,
    threads: HashMap<ThreadId, Kept>,
    unpacker: Unpacker,
    passed: Batch,
    /// Events that were dropped.
    pub dropped: u64,
}

impl<C: Consumer> SubtreeFilter<C> {
    /// To a consumer that has taken no events yet.
    pub fn new(to: C, subtree: &Subtree) -> SubtreeFilter<C> {
        let rooted = !subtree.roots.is_empty();
        let depth = subtree.depth.unwrap_or(usize::MAX);
        let triggers = Triggers::new(&subtree.triggers);
        SubtreeFilter {
            to,
            holds: triggers.switch(),
            rules: Rules {
                roots: Chosen::new(subtree.roots.iter().map(|root| (Word::new(root), ()))),
                triggers,
            },
            sifting: Sifting { from: 0, to: u64::MAX, rooted, depth, longer: None },
            threads: HashMap::new(),
            unpacker: Unpacker::default(),
            passed: Batch::default(),
            dropped: 0,
        }
    }

    /// Nothing more comes: hands on what was held back.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.release(u64::MAX)
    }

    /// The consumer, to which everything was handed on.
    pub fn finish(self) -> C {
        self.to
    }

    fn take(&mut self, batch: &Batch) {
        let Self { threads, rules, sifting, passed, holds, .. } = self;
        let is_on = rules.triggers.is_on();
        let kept = threads.entry(batch.thread).or_insert_with(|| {
            let mut kept = Kept::new(batch.thread, *sifting);
            if !is_on {
                kept.sieve.pause(0, passed);
            }
            kept
        });
        if *holds {
            batch.events.iter().for_each(|event| rules.triggers.look(event));
            kept.held.push(batch.clone());
        } else {
            kept.take(batch, u64::MAX, &mut &[][..], rules, passed);
        }
    }

    /// Hands on what was held back up to a moment until which all threads were read.
    fn release(&mut self, until: u64) -> Result<(), Error> {
        if !self.holds {
            return Ok(());
        }
        let edges = self.rules.triggers.settle(until);
        let Self { threads, rules, passed, .. } = self;
        threads.values_mut().for_each(|kept| kept.release(until, &edges, rules, passed));
        let over: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, kept)| kept.is_over && kept.held.is_empty())
            .map(|(id, _)| *id)
            .collect();
        over.into_iter().try_for_each(|thread| self.end_thread(thread))
    }

    fn end_thread(&mut self, thread: ThreadId) -> Result<(), Error> {
        if let Some(mut kept) = self.threads.remove(&thread) {
            self.to.events(&mut kept.encoder)?;
            let dropped = kept.dropped();
            self.dropped += dropped.entries + dropped.exits;
            self.to.record(&Record::Loss(kept.loss()))?;
        }
        self.to.end(thread)
    }
}

impl<C: Consumer> Consumer for SubtreeFilter<C> {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        self.rules.roots.record(record);
        self.rules.triggers.record(record);
        // Of what was read. What was kept of that is said when it is known.
        if let Record::Loss(loss) = record
            && let Some(kept) = self.threads.get_mut(&loss.thread)
        {
            kept.loss = *loss;
            return Ok(());
        }
        self.to.record(record)
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        let thread = encoder.thread();
        let mut unpacker = std::mem::take(&mut self.unpacker);
        unpacker.events(encoder, |batch| self.take(batch));
        self.unpacker = unpacker;
        match self.threads.get_mut(&thread) {
            Some(kept) if kept.encoder.is_full() => self.to.events(&mut kept.encoder),
            _ => Ok(()),
        }
    }

    fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        self.to.switches(thread, switches, until)
    }

    fn wakings(&mut self, thread: ThreadId, from: u64, wakings: &[Waking], until: u64) -> Result<(), Error> {
        self.to.wakings(thread, from, wakings, until)
    }

    fn system_calls(
        &mut self,
        thread: ThreadId,
        from: u64,
        calls: &[SystemCall],
        until: u64,
    ) -> Result<(), Error> {
        self.to.system_calls(thread, from, calls, until)
    }

    fn over(&mut self, at: ClockPair) {
        self.to.over(at);
    }

    fn interval_ends(&mut self, at: ClockPair) {
        self.to.interval_ends(at);
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        match self.threads.get_mut(&thread).filter(|kept| !kept.held.is_empty()) {
            Some(kept) => kept.is_over = true,
            None => self.end_thread(thread)?,
        }
        Ok(())
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        self.release(at.ticks)?;
        for kept in self.threads.values_mut() {
            if std::mem::take(&mut kept.changed) {
                self.to.events(&mut kept.encoder)?;
                self.to.record(&Record::Loss(kept.loss()))?;
            }
        }
        self.to.flush(at)
    }
}

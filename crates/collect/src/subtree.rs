//! Keeps only calls of some functions and what they call, to some depth: `--graph f --depth 3` of
//! `record`, `top`, `view` and snapshots.
//!
//! The program records all calls; whether a call lies within another is known only where events
//! become calls. Calls that are not kept are dropped, and counted.
//! [Triggers](crate::kept::triggers) decide about the same: with them the events of an interval are
//! held back until all threads were read.
//!
//! `set --graph` changes the rules meanwhile. A recording without rules passes all events on
//! unread.

use crate::kept::keeping::{Change, Rules, Subtree};
use crate::kept::triggers::Triggers;
use crate::output::Consumer;
use calltap_trace::{
    Batch, ClockPair, Error, Event, EventKind, GoroutineRun, Incident, Loss, Record, Sieve, SiteId, Switch,
    SystemCall, ThreadEncoder, ThreadId, Unpacker, Waking,
};
use std::collections::{HashMap, HashSet};

/// Numbers of entries and returns.
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

/// Adds an event with its values to a batch.
fn push(batch: &mut Batch, event: Event, values: &[u8]) {
    if !values.is_empty() {
        batch.values.add(batch.events.len(), values);
    }
    batch.events.push(event);
}

/// Returns the events of a batch from a place on.
fn rest(batch: &Batch, from: usize) -> Batch {
    let mut rest = Batch { thread: batch.thread, ..Batch::default() };
    for (place, event) in batch.events.iter().enumerate().skip(from) {
        push(&mut rest, *event, batch.values.of(place));
    }
    rest
}

/// The state of a thread.
struct FilteredThread {
    sieve: Sieve,
    encoder: ThreadEncoder,
    loss: Loss,
    read: Counts,
    kept: Counts,
    /// Whether events were read since its sums were written.
    changed: bool,
    /// Whether events passed before any were left out: they were not counted here.
    has_past: bool,
    /// Number of changes of the rules that it has passed.
    changes: usize,
    /// Batches that are held back until it is known whether the recording is on.
    held: Vec<Batch>,
    /// Whether the thread has ended.
    is_over: bool,
}

impl FilteredThread {
    fn new(thread: ThreadId, rules: &Rules) -> FilteredThread {
        FilteredThread {
            sieve: Sieve::new(rules.sifting),
            encoder: ThreadEncoder::new(thread),
            loss: Loss { thread, ..Loss::default() },
            read: Counts::default(),
            kept: Counts::default(),
            changed: false,
            has_past: false,
            changes: 0,
            held: Vec::new(),
            is_over: false,
        }
    }

    /// Sifts the events of a batch up to a moment, with the pauses and changes of rules until then.
    /// Returns the place of the first later event.
    fn take(
        &mut self,
        batch: &Batch,
        until: u64,
        edges: &mut &[(u64, bool)],
        all: &Phases,
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
            self.pass_changes(event.ticks, all, passed);
            let values = batch.values.of(place);
            if all.keep_all_after(self.changes) {
                push(passed, *event, values);
                self.has_past = true;
            } else {
                self.sieve.take(event, all.rules(self.changes).of(event), values, passed);
            }
        }
        self.changed = true;
        self.keep(passed);
        later
    }

    /// Applies the changes of rules up to a moment.
    fn pass_changes(&mut self, until: u64, all: &Phases, passed: &mut Batch) {
        while let Some((at, rules)) = all.after(self.changes).filter(|(at, _)| *at <= until) {
            if all.keep_all_after(self.changes) && self.has_past {
                // Calls that were open while everything passed are not followed any more.
                push(
                    passed,
                    Event { ticks: until, site: SiteId(0), kind: EventKind::Outside { pops: u32::MAX } },
                    &[],
                );
            }
            self.sieve.begin_anew(rules.sifting, at, passed);
            self.changes += 1;
        }
    }

    /// Resumes or pauses the recording. The call that pauses it is part of it.
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

    /// Sifts the events that were held back, up to a moment until which all are known.
    fn release(&mut self, until: u64, mut edges: &[(u64, bool)], all: &Phases, passed: &mut Batch) {
        let mut held = std::mem::take(&mut self.held);
        let mut done = 0;
        for batch in &mut held {
            let later = self.take(batch, until, &mut edges, all, passed);
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

    /// Encodes the events that have passed.
    fn keep(&mut self, passed: &Batch) {
        passed.events.iter().for_each(|event| self.kept.add(event));
        for (place, event) in passed.events.iter().enumerate() {
            match passed.values.of(place) {
                [] => self.encoder.push(*event),
                values => self.encoder.push_with(*event, values),
            }
        }
    }

    /// Returns how many events were dropped.
    fn dropped(&self) -> Counts {
        Counts {
            entries: self.read.entries.saturating_sub(self.kept.entries),
            exits: self.read.exits.saturating_sub(self.kept.exits),
        }
    }

    /// Returns the totals of the thread, based on what was read of it.
    fn loss(&self) -> Loss {
        let dropped = self.dropped();
        let past = |all: u64, read: u64| if self.has_past { all.saturating_sub(read) } else { 0 };
        Loss {
            entries: past(self.loss.entries, self.read.entries) + self.kept.entries,
            exits: past(self.loss.exits, self.read.exits) + self.kept.exits,
            dropped_entries: dropped.entries,
            dropped_exits: dropped.exits,
            ..self.loss
        }
    }
}

/// The rules of the beginning, and each change of them.
struct Phases {
    first: Rules,
    /// Whether everything is kept at first, and passes unread.
    begins_with_all: bool,
    changes: Vec<Change>,
}

impl Phases {
    /// Returns the rules after this many changes.
    fn rules(&self, changes: usize) -> &Rules {
        let last = changes.checked_sub(1).and_then(|last| self.changes.get(last));
        last.map_or(&self.first, |change| &change.rules)
    }

    /// Whether everything passes unread.
    fn keeps_all(&self) -> bool {
        self.keep_all_after(0) && self.changes.is_empty()
    }

    /// Whether everything passes after this many changes.
    fn keep_all_after(&self, changes: usize) -> bool {
        self.begins_with_all && changes == 0
    }

    /// Returns the change that follows this many.
    fn after(&self, changes: usize) -> Option<(u64, &Rules)> {
        self.changes.get(changes).map(|change| (change.at, &change.rules))
    }

    /// Resolves the functions of all rules as the trace describes them.
    fn record(&mut self, record: &Record) {
        if self.keeps_all() {
            return;
        }
        let changed = self.changes.iter_mut().map(|change| &mut change.rules);
        std::iter::once(&mut self.first).chain(changed).for_each(|rules| rules.record(record));
    }
}

/// Consumer that hands on only calls of some functions and what they call, to some depth.
pub struct SubtreeFilter<C> {
    to: C,
    all: Phases,
    triggers: Triggers,
    /// Whether events are held back: triggers turn the recording on and off, which is known once
    /// all threads were read.
    holds: bool,
    threads: HashMap<ThreadId, FilteredThread>,
    /// Threads of which events passed before any were left out.
    past: HashSet<ThreadId>,
    unpacker: Unpacker,
    passed: Batch,
    /// Number of events that were dropped.
    pub dropped: u64,
}

impl<C: Consumer> SubtreeFilter<C> {
    /// Creates a filter in front of a consumer that has taken no events yet. Without a subtree
    /// everything is kept, until that is changed.
    pub fn new(to: C, subtree: Option<&Subtree>) -> SubtreeFilter<C> {
        let begins_with_all = subtree.is_none();
        let subtree = subtree.cloned().unwrap_or_default();
        let triggers = Triggers::new(&subtree.triggers);
        SubtreeFilter {
            to,
            holds: triggers.switch(),
            triggers,
            all: Phases { first: Rules::new(&subtree), begins_with_all, changes: Vec::new() },
            threads: HashMap::new(),
            past: HashSet::new(),
            unpacker: Unpacker::default(),
            passed: Batch::default(),
            dropped: 0,
        }
    }

    /// Hands on the events that were held back, as no more follow.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.release(u64::MAX)
    }

    /// Returns the consumer, to which everything was handed on.
    pub fn finish(self) -> C {
        self.to
    }

    fn take(&mut self, batch: &Batch) {
        let Self { threads, all, triggers, passed, holds, past, .. } = self;
        let is_on = triggers.is_on();
        let kept = threads.entry(batch.thread).or_insert_with(|| {
            let mut kept = FilteredThread::new(batch.thread, &all.first);
            if !is_on {
                kept.sieve.pause(0, passed);
            }
            FilteredThread { has_past: past.contains(&batch.thread), ..kept }
        });
        if *holds {
            batch.events.iter().for_each(|event| triggers.apply(event));
            kept.held.push(batch.clone());
        } else {
            kept.take(batch, u64::MAX, &mut &[][..], all, passed);
        }
    }

    /// Hands on the events that were held back up to a moment until which all threads were read.
    fn release(&mut self, until: u64) -> Result<(), Error> {
        if !self.holds {
            return Ok(());
        }
        let edges = self.triggers.settle(until);
        let Self { threads, all, passed, .. } = self;
        threads.values_mut().for_each(|kept| kept.release(until, &edges, all, passed));
        let over: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, kept)| kept.is_over && kept.held.is_empty())
            .map(|(id, _)| *id)
            .collect();
        over.into_iter().try_for_each(|thread| self.end_thread(thread))
    }

    /// Hands on the remaining events and the totals of a thread that has ended.
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
        self.all.record(record);
        self.triggers.record(record);
        // The loss counts what was read; the totals of what was kept follow.
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
        if self.all.keeps_all() {
            self.past.insert(thread);
            return self.to.events(encoder);
        }
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

    fn incidents(&mut self, thread: ThreadId, from: u64, all: &[Incident], until: u64) -> Result<(), Error> {
        self.to.incidents(thread, from, all, until)
    }

    fn goroutine_runs(&mut self, goroutine: ThreadId, goroutine_runs: &[GoroutineRun]) -> Result<(), Error> {
        self.to.goroutine_runs(goroutine, goroutine_runs)
    }

    fn change(&mut self, change: &Change) -> Result<(), Error> {
        self.to.record(&change.record)?;
        self.all.changes.push(change.clone());
        Ok(())
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

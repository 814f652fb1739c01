//! Only calls of some functions and what they call go on, so many levels of them: `record --graph f --depth 3`.
//!
//! The program records all calls: whether a call lies within another is known where events become calls. What does not go on is dropped, and counted.

use crate::chosen::Chosen;
use crate::output::Consumer;
use calltap_names::Word;
use calltap_trace::{
    Batch, ClockPair, Error, EventKind, Loss, Record, Sieve, Sifting, Switch, ThreadEncoder, ThreadId,
    TraceWriter, Unpacker,
};
use std::collections::HashMap;

/// What is kept.
#[derive(Clone, Debug)]
pub struct Subtree {
    /// Functions, as globs; none: all.
    pub roots: Vec<String>,
    /// Levels from there on.
    pub depth: Option<usize>,
}

impl Subtree {
    /// As a sentence says it: `of handle and what it calls, 3 levels deep`.
    pub fn describe(&self) -> String {
        let roots = if self.roots.is_empty() {
            "of all functions".to_owned()
        } else {
            format!("of {} and what it calls", self.roots.join(", "))
        };
        match self.depth {
            None => roots,
            Some(1) => format!("{roots}, 1 level deep"),
            Some(depth) => format!("{roots}, {depth} levels deep"),
        }
    }
}

/// Entries and returns.
#[derive(Clone, Copy, Default)]
struct Counts {
    entries: u64,
    exits: u64,
}

impl Counts {
    fn add(&mut self, batch: &Batch) {
        for event in &batch.events {
            self.entries += u64::from(event.kind.begins_call());
            self.exits += u64::from(matches!(event.kind, EventKind::Exit { .. }));
        }
    }
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
}

impl Kept {
    fn new(thread: ThreadId, rules: Sifting) -> Kept {
        Kept {
            sieve: Sieve::new(rules),
            encoder: ThreadEncoder::new(thread),
            loss: Loss { thread, ..Loss::default() },
            read: Counts::default(),
            kept: Counts::default(),
            changed: false,
        }
    }

    /// Encodes what has passed.
    fn keep(&mut self, passed: &Batch) {
        self.kept.add(passed);
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

/// Writes only what lies beneath some functions, as deep as asked for.
pub struct SubtreeWriter {
    writer: TraceWriter,
    roots: Chosen<()>,
    rules: Sifting,
    threads: HashMap<ThreadId, Kept>,
    unpacker: Unpacker,
    passed: Batch,
    /// Events that were dropped.
    pub dropped: u64,
}

impl SubtreeWriter {
    /// Into a trace that begins.
    pub fn new(mut writer: TraceWriter, subtree: &Subtree) -> Result<SubtreeWriter, Error> {
        writer.record(&Record::Note { text: format!("only calls {} were kept", subtree.describe()) })?;
        let rooted = !subtree.roots.is_empty();
        let depth = subtree.depth.unwrap_or(usize::MAX);
        Ok(SubtreeWriter {
            writer,
            roots: Chosen::new(subtree.roots.iter().map(|root| (Word::new(root), ()))),
            rules: Sifting { from: 0, to: u64::MAX, rooted, depth, longer: None },
            threads: HashMap::new(),
            unpacker: Unpacker::default(),
            passed: Batch::default(),
            dropped: 0,
        })
    }

    /// The trace, to be ended.
    pub fn finish(self) -> TraceWriter {
        self.writer
    }

    fn take(&mut self, batch: &Batch) {
        let Self { threads, roots, rules, passed, .. } = self;
        let kept = threads.entry(batch.thread).or_insert_with(|| Kept::new(batch.thread, *rules));
        kept.read.add(batch);
        kept.changed = true;
        passed.events.clear();
        passed.values.clear();
        for (place, event) in batch.events.iter().enumerate() {
            kept.sieve.take(event, roots.of(event.site).is_some(), batch.values.of(place), passed);
        }
        kept.keep(passed);
    }
}

impl Consumer for SubtreeWriter {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        self.roots.record(record);
        // Of what was read. What was kept of that is said when it is known.
        if let Record::Loss(loss) = record
            && let Some(kept) = self.threads.get_mut(&loss.thread)
        {
            kept.loss = *loss;
            return Ok(());
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

    fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        self.writer.switches(thread, switches, until)
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        if let Some(mut kept) = self.threads.remove(&thread) {
            self.writer.events(&mut kept.encoder)?;
            let dropped = kept.dropped();
            self.dropped += dropped.entries + dropped.exits;
            self.writer.record(&Record::Loss(kept.loss()))?;
        }
        self.writer.end(thread)
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        for kept in self.threads.values_mut() {
            if std::mem::take(&mut kept.changed) {
                self.writer.events(&mut kept.encoder)?;
                self.writer.record(&Record::Loss(kept.loss()))?;
            }
        }
        Consumer::flush(&mut self.writer, at)
    }
}

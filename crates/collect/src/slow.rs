//! Only what lies beneath slow calls goes on: `record --slow 'f>10ms'`.
//!
//! What happens in such a call is held back until it has taken longer than its limit, and from then on goes on as it comes; if it ends before, it is
//! dropped, and counted. So no more is held back than what a thread does in the time of the limit, and a call that goes on for hours is written like any
//! recording. Where that is still more than there is room for, the beginning of the outermost call is given up: should the call turn out slow, what was
//! given up is lost, and counted as that.

mod lane;

use crate::kept::chosen::Chosen;
use crate::output::Consumer;
use calltap_names::Word;
use calltap_trace::{
    Batch, ClockPair, Error, Loss, Record, SlowRule, Switch, ThreadEncoder, ThreadId, TraceWriter, Unpacker,
};
use lane::{Lane, Told};
use std::collections::HashMap;

/// What is kept.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Which calls, and how slow.
    pub rules: Vec<SlowRule>,
    /// What may be held back, bytes, of all threads together.
    pub memory: u64,
}

/// A thread's lane, and where what goes on is encoded.
struct Kept {
    lane: Lane,
    encoder: ThreadEncoder,
    loss: Loss,
    /// Something went on since its sums were written.
    changed: bool,
    /// Its context switches since it was last in nothing that may be slow,
    switches: Vec<Switch>,
    /// up to here.
    until: u64,
}

impl Kept {
    fn new(thread: ThreadId) -> Kept {
        Kept {
            lane: Lane::default(),
            encoder: ThreadEncoder::new(thread),
            loss: Loss { thread, ..Loss::default() },
            changed: false,
            switches: Vec::new(),
            until: 0,
        }
    }

    /// The switches so far; what is kept begins with what the thread does now.
    fn take_switches(&mut self) -> Vec<Switch> {
        let now = self.switches.last().map(|switch| Switch { at: self.until.max(switch.at), ..*switch });
        std::mem::replace(&mut self.switches, now.into_iter().collect())
    }
}

/// Writes only what lies beneath slow calls.
pub struct SlowWriter {
    writer: TraceWriter,
    /// Nanoseconds.
    limits: Chosen<u64>,
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
            limits: Chosen::new(slow.rules.iter().map(|rule| (Word::new(&rule.function), rule.ns))),
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
        let kept = threads.entry(batch.thread).or_insert_with(|| Kept::new(batch.thread));
        let Kept { lane, encoder, changed, .. } = kept;
        for (place, event) in batch.events.iter().enumerate() {
            let limit = limits.of(event.site).map(|ns| (ns as f64 * *ticks_per_ns) as u64);
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
        self.limits.record(record);
        match record {
            Record::Clock(pair) => self.now(*pair),
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

    fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        let kept = self.threads.entry(thread).or_insert_with(|| Kept::new(thread));
        kept.switches.extend_from_slice(switches);
        kept.until = until;
        Ok(())
    }

    fn over(&mut self, at: ClockPair) {
        self.over = Some(at.ticks);
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Some(Kept { mut lane, mut encoder, loss, changed, switches, until }) =
            self.threads.remove(&thread)
        else {
            return Ok(());
        };
        lane.end(self.over, &mut self.room, &mut |told| told.encode(&mut encoder));
        if changed || !encoder.is_empty() {
            self.writer.switches(thread, &switches, until)?;
        }
        self.writer.end(thread)?;
        self.writer.events(&mut encoder)?;
        let loss = lane.loss(&loss);
        self.dropped += loss.dropped_entries + loss.dropped_exits;
        self.too_large += lane.too_large;
        self.writer.record(&Record::Loss(loss))
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        self.now(at);
        for (thread, kept) in &mut self.threads {
            if std::mem::take(&mut kept.changed) {
                let switches = kept.take_switches();
                self.writer.switches(*thread, &switches, kept.until)?;
                self.writer.events(&mut kept.encoder)?;
                self.writer.record(&Record::Loss(kept.lane.loss(&kept.loss)))?;
            } else if !kept.lane.may_be_slow() {
                // What lies between two slow calls is not of interest.
                kept.take_switches();
                self.writer.end(*thread)?;
            }
        }
        self.writer.flush()
    }
}

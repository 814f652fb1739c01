//! Keeps only slow calls with what they call: `record --slow 'f>10ms'`.
//!
//! The events of such a call are held back until it has taken longer than its limit, and then pass
//! on as they come; if it ends before, they are dropped, and counted. So no more is held back than
//! a thread records in the time of the limit, and a call that takes hours is written like any
//! recording. Where that still exceeds the memory, the beginning of the outermost call is given up:
//! if the call turns out slow, the events given up are lost, and counted as lost.

mod lane;

use crate::kept::chosen::Chosen;
use crate::output::Consumer;
use calltap_names::Word;
use calltap_trace::{
    Batch, ClockPair, Error, Loss, Record, SlowRule, Switch, ThreadEncoder, ThreadId, TraceWriter, Unpacker,
};
use lane::{EventWithValues, SlowFilter};
use std::collections::HashMap;

/// The rules for slow calls, and the memory for held events.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Functions, with the limit of each.
    pub rules: Vec<SlowRule>,
    /// Maximum number of bytes of held events, of all threads together.
    pub memory: u64,
}

/// The state of a thread, and the encoder of the events that are kept.
struct SlowThread {
    lane: SlowFilter,
    encoder: ThreadEncoder,
    loss: Loss,
    /// Whether events were kept since its sums were written.
    changed: bool,
    /// Context switches since it was last in no call that may be slow.
    switches: Vec<Switch>,
    /// Time until which `switches` is complete.
    until: u64,
}

impl SlowThread {
    fn new(thread: ThreadId) -> SlowThread {
        SlowThread {
            lane: SlowFilter::default(),
            encoder: ThreadEncoder::new(thread),
            loss: Loss { thread, ..Loss::default() },
            changed: false,
            switches: Vec::new(),
            until: 0,
        }
    }

    /// Removes and returns the switches so far, keeping the thread's present state.
    fn take_switches(&mut self) -> Vec<Switch> {
        let now = self.switches.last().map(|switch| Switch { at: self.until.max(switch.at), ..*switch });
        std::mem::replace(&mut self.switches, now.into_iter().collect())
    }
}

/// Consumer that writes only slow calls with what they call.
pub struct SlowWriter {
    writer: TraceWriter,
    /// Limits of functions, in nanoseconds.
    limits: Chosen<u64>,
    first: Option<ClockPair>,
    ticks_per_ns: f64,
    /// Number of events that may still be held back.
    room: usize,
    threads: HashMap<ThreadId, SlowThread>,
    unpacker: Unpacker,
    /// Time at which the recording ended.
    over: Option<u64>,
    /// Number of events that were dropped.
    pub dropped: u64,
    too_large: u64,
}

impl SlowWriter {
    /// Creates a writer to a trace that begins.
    pub fn new(mut writer: TraceWriter, slow: &Slow) -> Result<SlowWriter, Error> {
        writer.record(&Record::Slow { rules: slow.rules.clone() })?;
        Ok(SlowWriter {
            writer,
            limits: Chosen::new(slow.rules.iter().map(|rule| (Word::new(&rule.function), rule.ns))),
            first: None,
            ticks_per_ns: 1.0,
            room: usize::try_from(slow.memory).unwrap_or(usize::MAX) / size_of::<EventWithValues>(),
            threads: HashMap::new(),
            unpacker: Unpacker::default(),
            over: None,
            dropped: 0,
            too_large: 0,
        })
    }

    /// Returns the trace, to be ended, with a note of what did not fit.
    pub fn finish(mut self) -> Result<TraceWriter, Error> {
        if self.too_large > 0 {
            let text = format!(
                "{} slow calls exceeded --slow-memory: their excess events count as lost",
                self.too_large
            );
            self.writer.record(&Record::Note { text })?;
        }
        Ok(self.writer)
    }

    /// Measures the length of a tick.
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
        let kept = threads.entry(batch.thread).or_insert_with(|| SlowThread::new(batch.thread));
        let SlowThread { lane, encoder, changed, .. } = kept;
        for (place, event) in batch.events.iter().enumerate() {
            let limit = limits.of(event.site).map(|ns| (ns as f64 * *ticks_per_ns) as u64);
            let with_values = EventWithValues { event: *event, values: batch.values.of(place).into() };
            lane.take(with_values, limit, room, &mut |with_values| {
                *changed = true;
                with_values.encode(encoder);
            });
        }
    }
}

impl Consumer for SlowWriter {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        self.limits.record(record);
        match record {
            Record::Clock(pair) => self.now(*pair),
            // The loss counts what was read; the totals of what was kept follow.
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
        let kept = self.threads.entry(thread).or_insert_with(|| SlowThread::new(thread));
        kept.switches.extend_from_slice(switches);
        kept.until = until;
        Ok(())
    }

    fn over(&mut self, at: ClockPair) {
        self.over = Some(at.ticks);
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Some(SlowThread { mut lane, mut encoder, loss, changed, switches, until }) =
            self.threads.remove(&thread)
        else {
            return Ok(());
        };
        lane.end(self.over, &mut self.room, &mut |with_values| with_values.encode(&mut encoder));
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
                // Switches between two slow calls are not kept.
                kept.take_switches();
                self.writer.end(*thread)?;
            }
        }
        self.writer.flush()
    }
}

//! Where a view gets its events from.

use crate::error::Error;
use crate::tree::Totals;
use calltap_trace::{Batch, Incident, KernelLog, Meta, Switch, SystemCall, ThreadId, Waking};

/// A stream of batches.
pub trait BatchStream {
    /// Replaces `batch` by the next one; `false` at the end (`batch` is then meaningless).
    /// After an error the next call goes on behind the damage: a stream has finitely many errors.
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error>;

    /// Leaves out so many batches, readable or not.
    fn skip(&mut self, batches: usize) {
        let mut batch = Batch::default();
        for _ in 0..batches {
            if let Ok(false) = self.next_into(&mut batch) {
                return;
            }
        }
    }
}

/// A recording: its metadata, its clock, and its events in two orders.
pub trait Source {
    /// Everything but events.
    fn meta(&self) -> &Meta;
    /// Which part of a recording it is, as a list of clauses; none if it is all of it.
    fn part(&self) -> Option<&str> {
        None
    }
    /// What was wrong with the recording, one sentence each.
    fn complaints(&self) -> &[String];
    /// Number of events stored.
    fn event_count(&self) -> u64;
    /// False when ticks only order events (counter clock).
    fn has_time(&self) -> bool;
    /// Nanoseconds of CLOCK_MONOTONIC at `ticks`; the ticks themselves without a time clock.
    fn to_ns(&self, ticks: u64) -> u64;
    /// Length in nanoseconds of a duration in ticks.
    fn duration_ns(&self, ticks: u64) -> u64;
    /// All batches in file order: ascending within a thread, roughly ascending between threads.
    fn batches(&self) -> Box<dyn BatchStream + '_>;
    /// The batches of one thread.
    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_>;
    /// The batches of some threads, one thread after the other: the stream ends at the end of each of them, and goes on with the next.
    fn batches_of(&self, threads: &[ThreadId]) -> Box<dyn BatchStream + '_> {
        let streams: Vec<_> = threads.iter().rev().map(|thread| self.thread_batches(*thread)).collect();
        Box::new(OneByOne(streams))
    }
    /// Whether it is known of any thread when it ran and when it waited.
    fn has_switches(&self) -> bool;
    /// The context switches of a thread, in ticks; `None` where they were not recorded.
    fn switches(&self, thread: ThreadId) -> Result<Option<Vec<Switch>>, Error>;
    /// Who woke a thread, in ticks; nothing is known where that was not recorded.
    fn wakings(&self, _thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        Ok(KernelLog::default())
    }
    /// The system calls of a thread, likewise.
    fn system_calls(&self, _thread: ThreadId) -> Result<KernelLog<SystemCall>, Error> {
        Ok(KernelLog::default())
    }
    /// What happened to a thread, likewise.
    fn incidents(&self, _thread: ThreadId) -> Result<KernelLog<Incident>, Error> {
        Ok(KernelLog::default())
    }
    /// Ticks of the first and the last event of a thread; `None` when it has none.
    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)>;
    /// The same recording, if several threads may read it at once and it says how many events each thread has.
    fn shared(&self) -> Option<&dyn SharedSource> {
        None
    }
}

/// A recording that several threads read at once.
pub trait SharedSource: Source + Sync {
    /// How many events a thread has.
    fn events_of(&self, thread: ThreadId) -> u64;
}

/// Streams that are read one after the other, the last one first.
struct OneByOne<'a>(Vec<Box<dyn BatchStream + 'a>>);

impl BatchStream for OneByOne<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Some(stream) = self.0.last_mut() else { return Ok(false) };
        let more = stream.next_into(batch)?;
        if !more {
            self.0.pop();
        }
        Ok(more)
    }
}

/// Reads on until a batch is readable; what is not is counted.
pub(crate) fn next_readable(stream: &mut dyn BatchStream, batch: &mut Batch, damage: &mut Damage) -> bool {
    loop {
        match stream.next_into(batch) {
            Ok(more) => return more,
            Err(error) => {
                damage.add(&error);
            }
        }
    }
}

/// Batches that could not be read.
#[derive(Default)]
pub(crate) struct Damage {
    batches: u64,
    /// In those of them of which it is known.
    pub(crate) events: u64,
    first: Option<String>,
}

impl Damage {
    /// Another batch; returns how many events were in it, as far as that is known.
    pub(crate) fn add(&mut self, error: &Error) -> u64 {
        let events = match error {
            Error::Trace(calltap_trace::Error::BadChunk { events, .. }) => u64::from(*events),
            _ => 0,
        };
        self.batches += 1;
        self.events += events;
        self.first.get_or_insert_with(|| error.to_string());
        events
    }

    pub(crate) fn report(self, totals: &mut Totals) {
        (totals.damaged, totals.first_damage) = (self.batches, self.first);
    }
}

/// The threads that recorded anything, in order of their ids.
pub fn threads_with_events(source: &dyn Source) -> Vec<ThreadId> {
    (0..source.meta().threads.len() as u32)
        .map(ThreadId)
        .filter(|&thread| source.thread_span(thread).is_some())
        .collect()
}

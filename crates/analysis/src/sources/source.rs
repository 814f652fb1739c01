//! The interface between views and the recordings that they read.

use crate::error::Error;
use crate::tree::Totals;
use calltap_trace::{Batch, GoroutineRun, Incident, KernelLog, Meta, Switch, SystemCall, ThreadId, Waking};

/// A stream of batches.
pub trait BatchStream {
    /// Replaces `batch` by the next one; returns `false` at the end (`batch` is then meaningless).
    /// After an error the next call continues after the damage: a stream has finitely many errors.
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error>;

    /// Skips `batches` batches, readable or not.
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
    /// Returns the metadata.
    fn meta(&self) -> &Meta;
    /// Describes the part that this is of a recording, as a list of clauses; `None` if it is the
    /// whole.
    fn part(&self) -> Option<&str> {
        None
    }
    /// Returns complaints about the recording, one sentence each.
    fn complaints(&self) -> &[String];
    /// Returns an error for each batch that is unreadable.
    fn unreadable(&self) -> Vec<Error> {
        let (mut stream, mut batch) = (self.batches(), Batch::default());
        let next = || match stream.next_into(&mut batch) {
            Ok(more) => more.then_some(None),
            Err(error) => Some(Some(error)),
        };
        std::iter::from_fn(next).flatten().collect()
    }
    /// Returns the number of stored events.
    fn event_count(&self) -> u64;
    /// Whether ticks measure time; with the counter clock they only order events.
    fn has_time(&self) -> bool;
    /// Converts ticks to nanoseconds of CLOCK_MONOTONIC; returns the ticks themselves without a
    /// time clock.
    fn to_ns(&self, ticks: u64) -> u64;
    /// Converts a duration in ticks to nanoseconds.
    fn duration_ns(&self, ticks: u64) -> u64;
    /// Streams all batches in file order: ascending within a thread, roughly ascending between
    /// threads.
    fn batches(&self) -> Box<dyn BatchStream + '_>;
    /// Streams the batches of one thread.
    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_>;
    /// Streams the batches of several threads, one thread after the other: the stream ends at the
    /// end of each, and continues with the next.
    fn batches_of(&self, threads: &[ThreadId]) -> Box<dyn BatchStream + '_> {
        let streams: Vec<_> = threads.iter().rev().map(|thread| self.thread_batches(*thread)).collect();
        Box::new(OneByOne(streams))
    }
    /// Whether context switches of any thread are recorded.
    fn has_switches(&self) -> bool;
    /// Returns the context switches of a thread, in ticks; `None` if they were not recorded.
    fn switches(&self, thread: ThreadId) -> Result<Option<Vec<Switch>>, Error>;
    /// Returns the wakings of a thread, in ticks; empty if they were not recorded.
    fn wakings(&self, _thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        Ok(KernelLog::default())
    }
    /// Returns the system calls of a thread, in ticks; empty if they were not recorded.
    fn system_calls(&self, _thread: ThreadId) -> Result<KernelLog<SystemCall>, Error> {
        Ok(KernelLog::default())
    }
    /// Returns the incidents of a thread, in ticks; empty if they were not recorded.
    fn incidents(&self, _thread: ThreadId) -> Result<KernelLog<Incident>, Error> {
        Ok(KernelLog::default())
    }
    /// Returns the threads that have run a goroutine, oldest first; empty if they were not
    /// recorded.
    fn goroutine_runs(&self, _goroutine: ThreadId) -> Result<Vec<GoroutineRun>, Error> {
        Ok(Vec::new())
    }
    /// Returns the ticks of a thread's first and last event; `None` if it has no events.
    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)>;
    /// Returns the same recording, if several threads may read it at once and it knows the number
    /// of events of each thread.
    fn shared(&self) -> Option<&dyn SharedSource> {
        None
    }
}

/// A recording that several threads can read at once.
pub trait SharedSource: Source + Sync {
    /// Returns the number of a thread's events.
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

/// Reads until a batch is readable, and counts unreadable ones. Returns `false` at the end.
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

/// Unreadable batches.
#[derive(Default)]
pub(crate) struct Damage {
    batches: u64,
    /// Number of events in them, as far as known.
    pub(crate) events: u64,
    first: Option<String>,
}

impl Damage {
    /// Counts a batch; returns the number of its events, as far as known.
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

/// Returns the threads that have events, in order of their ids.
pub fn threads_with_events(source: &dyn Source) -> Vec<ThreadId> {
    (0..source.meta().threads.len() as u32)
        .map(ThreadId)
        .filter(|&thread| source.thread_span(thread).is_some())
        .collect()
}

//! Implements the source interface for trace files.

use crate::error::Error;
use crate::sources::source::{BatchStream, SharedSource, Source};
use crate::sources::wakeups::Wakeups;
use calltap_trace::{
    Batch, Batches, BatchesOf, GoroutineRun, Incident, KernelLog, Meta, Switch, SystemCall, ThreadBatches,
    ThreadId, TraceReader, Waking,
};

impl Source for TraceReader {
    fn meta(&self) -> &Meta {
        self.meta()
    }

    fn complaints(&self) -> &[String] {
        self.complaints()
    }

    fn unreadable(&self) -> Vec<Error> {
        self.damaged_chunks().map(Error::from).collect()
    }

    fn event_count(&self) -> u64 {
        self.event_count()
    }

    fn has_time(&self) -> bool {
        self.clock().has_time()
    }

    fn to_ns(&self, ticks: u64) -> u64 {
        self.clock().to_ns(ticks)
    }

    fn duration_ns(&self, ticks: u64) -> u64 {
        self.clock().duration_ns(ticks)
    }

    fn batches(&self) -> Box<dyn BatchStream + '_> {
        Box::new(self.batches())
    }

    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_> {
        Box::new(self.thread_batches(thread))
    }

    fn batches_of(&self, threads: &[ThreadId]) -> Box<dyn BatchStream + '_> {
        Box::new(self.batches_of(threads))
    }

    fn has_switches(&self) -> bool {
        self.has_switches() && self.clock().has_time()
    }

    fn switches(&self, thread: ThreadId) -> Result<Option<Vec<Switch>>, Error> {
        if !Source::has_switches(self) {
            return Ok(None);
        }
        let switches = self.switches(thread)?;
        if switches.is_empty() {
            return Ok(None);
        }
        let wakings = &self.wakings(thread)?;
        if wakings.entries.is_empty() {
            return Ok(Some(switches));
        }
        let (switches, calls) = (&switches, &self.system_calls(thread)?);
        Ok(Some(Wakeups { switches, wakings, calls }.divide()))
    }

    fn wakings(&self, thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        Ok(self.wakings(thread)?)
    }

    fn system_calls(&self, thread: ThreadId) -> Result<KernelLog<SystemCall>, Error> {
        Ok(self.system_calls(thread)?)
    }

    fn incidents(&self, thread: ThreadId) -> Result<KernelLog<Incident>, Error> {
        Ok(self.incidents(thread)?)
    }

    fn goroutine_runs(&self, goroutine: ThreadId) -> Result<Vec<GoroutineRun>, Error> {
        Ok(self.goroutine_runs(goroutine)?)
    }

    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        self.thread_span(thread)
    }

    fn shared(&self) -> Option<&dyn SharedSource> {
        Some(self)
    }
}

impl SharedSource for TraceReader {
    fn events_of(&self, thread: ThreadId) -> u64 {
        self.events_of(thread)
    }
}

impl BatchStream for Batches {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        Ok(Batches::next_into(self, batch)?)
    }
}

impl BatchStream for BatchesOf {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        Ok(BatchesOf::next_into(self, batch)?)
    }
}

impl BatchStream for ThreadBatches<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        Ok(ThreadBatches::next_into(self, batch)?)
    }

    fn skip(&mut self, batches: usize) {
        ThreadBatches::skip(self, batches);
    }
}

//! A recording in memory, for tests, benchmarks and small embedded uses.

use crate::error::Error;
use crate::sources::source::{BatchStream, Source};
use crate::sources::wakeups::Wakeups;
use calltap_trace::{Batch, GoroutineRun, Incident, KernelLog, Meta, Switch, SystemCall, ThreadId, Waking};
use std::collections::BTreeMap;

/// Batches and metadata in memory.
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    /// The metadata.
    pub meta: Meta,
    /// The events, ascending within each thread.
    pub batches: Vec<Batch>,
    /// Context switches by thread, in ticks.
    pub switches: BTreeMap<ThreadId, Vec<Switch>>,
    /// Wakings by thread, in ticks.
    pub wakings: BTreeMap<ThreadId, KernelLog<Waking>>,
    /// System calls by thread, in ticks.
    pub system_calls: BTreeMap<ThreadId, KernelLog<SystemCall>>,
    /// Incidents by thread, in ticks.
    pub incidents: BTreeMap<ThreadId, KernelLog<Incident>>,
    /// Threads that have run goroutines, by goroutine.
    pub goroutine_runs: BTreeMap<ThreadId, Vec<GoroutineRun>>,
    /// Complaints of the source.
    pub complaints: Vec<String>,
    /// Nanoseconds per tick; 0: a counter without time.
    pub ns_per_tick: u64,
}

impl Source for MemorySource {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn event_count(&self) -> u64 {
        self.batches.iter().map(|batch| batch.events.len() as u64).sum()
    }

    fn has_time(&self) -> bool {
        self.ns_per_tick != 0
    }

    fn to_ns(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.ns_per_tick.max(1))
    }

    fn duration_ns(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.ns_per_tick.max(1))
    }

    fn batches(&self) -> Box<dyn BatchStream + '_> {
        Box::new(Slice { batches: &self.batches, thread: None })
    }

    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_> {
        let first = self.batches.iter().position(|b| b.thread == thread).unwrap_or(self.batches.len());
        Box::new(Slice { batches: &self.batches[first..], thread: Some(thread) })
    }

    fn has_switches(&self) -> bool {
        !self.switches.is_empty()
    }

    fn switches(&self, thread: ThreadId) -> Result<Option<Vec<Switch>>, Error> {
        let Some(switches) = self.switches.get(&thread) else { return Ok(None) };
        let (wakings, calls) = (&self.wakings(thread)?, &self.system_calls(thread)?);
        Ok(Some(Wakeups { switches, wakings, calls }.divide()))
    }

    fn wakings(&self, thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        Ok(self.wakings.get(&thread).cloned().unwrap_or_default())
    }

    fn system_calls(&self, thread: ThreadId) -> Result<KernelLog<SystemCall>, Error> {
        Ok(self.system_calls.get(&thread).cloned().unwrap_or_default())
    }

    fn incidents(&self, thread: ThreadId) -> Result<KernelLog<Incident>, Error> {
        Ok(self.incidents.get(&thread).cloned().unwrap_or_default())
    }

    fn goroutine_runs(&self, goroutine: ThreadId) -> Result<Vec<GoroutineRun>, Error> {
        Ok(self.goroutine_runs.get(&goroutine).cloned().unwrap_or_default())
    }

    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        let mut events = self.batches.iter().filter(|b| b.thread == thread).flat_map(|b| &b.events);
        let first = events.next()?.ticks;
        let last = self.batches.iter().rfind(|b| b.thread == thread && !b.events.is_empty())?;
        Some((first, last.events.last().map_or(first, |event| event.ticks.max(first))))
    }
}

struct Slice<'a> {
    batches: &'a [Batch],
    thread: Option<ThreadId>,
}

impl BatchStream for Slice<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        while let Some((first, rest)) = self.batches.split_first() {
            self.batches = rest;
            if self.thread.is_none_or(|thread| thread == first.thread) {
                batch.thread = first.thread;
                batch.events.clear();
                batch.events.extend_from_slice(&first.events);
                batch.values.clone_from(&first.values);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

//! Reads a trace, whole or cut off, intact or damaged.

use crate::ahead::Stream;
use crate::chunk::{FILE_HEADER, IndexEntry, Kind, Start, start};
use crate::clock::ClockKind;
use crate::clock::ClockMap;
use crate::codec::Damage;
use crate::error::Error;
use crate::event::Batch;
use crate::event_chunks::EventChunks;
use crate::gather::Gather;
use crate::incidents::Incident;
use crate::kernel_log::{GoroutineRun, KernelLog};
use crate::meta::{Meta, ThreadId};
use crate::source::{Scratch, Source, Spares};
use crate::survey::{Complaints, survey};
use crate::switches::{self, Joined, Switch};
use crate::wakings::{SystemCall, Waking};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The kinds of chunks of the kernel's entries.
const KERNEL: [Kind; 6] =
    [Kind::Switches, Kind::States, Kind::Wakings, Kind::SystemCalls, Kind::Incidents, Kind::GoroutineRuns];

/// An open trace. Only metadata and the places of chunks are in memory.
///
/// It can be shared: any number of threads may run their own [`TraceReader::batches`].
pub struct TraceReader {
    chunks: Arc<EventChunks>,
    meta: Meta,
    complaints: Vec<String>,
    events: u64,
}

/// Returns what the kernel has recorded in a chunk, for messages.
fn kernel_entries(entry: &IndexEntry) -> &'static str {
    let is = |kind: Kind| entry.header.is(kind);
    match () {
        () if is(Kind::Switches) || is(Kind::States) => "context switches",
        () if is(Kind::Wakings) => "wakeups",
        () if is(Kind::SystemCalls) => "system calls",
        () if is(Kind::Incidents) => "page faults, signals or migrations",
        () => "runs of goroutines",
    }
}

impl TraceReader {
    /// Returns whether the file begins like a trace; false if it cannot be read.
    pub fn is_trace(path: &Path) -> bool {
        let mut first = Vec::new();
        // Opening a pipe would wait for its writer.
        let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
        let read = |file: File| file.take(FILE_HEADER as u64).read_to_end(&mut first);
        is_file && File::open(path).and_then(read).is_ok_and(|n| n > 0) && start(&first) != Start::Foreign
    }

    /// Opens a trace and reads everything but its events. System calls are among the events.
    pub fn open(path: &Path) -> Result<Self, Error> {
        TraceReader::read(Source::open(path)?, true)
    }

    /// Reads a trace from an opened file, which messages name by `path`.
    pub fn of_file(file: File, path: &Path) -> Result<Self, Error> {
        TraceReader::read(Source::of(file, path)?, true)
    }

    /// Opens a trace to copy it: its events are those in the file, without system calls.
    pub fn open_stored(path: &Path) -> Result<Self, Error> {
        TraceReader::read(Source::open(path)?, false)
    }

    fn read(source: Source, adds_calls: bool) -> Result<Self, Error> {
        let mut complaints = Complaints::default();
        let mut scratch = Scratch::new(&source)?;
        let all = survey(&source, &mut scratch, &mut complaints)?;
        let mut gather = Gather::new();
        for entry in all.iter().filter(|entry| entry.header.is(Kind::Records)) {
            match source.payload(entry, &mut scratch)? {
                Ok(()) => gather.lines(&scratch.raw, entry.offset, &mut complaints),
                Err(Damage(what)) => {
                    complaints.add(format!("the metadata at byte {} is lost: {what}", entry.offset));
                }
            }
        }
        let is_kernel = |entry: &&IndexEntry| KERNEL.iter().any(|kind| entry.header.is(*kind));
        let kernel: Vec<IndexEntry> = all.iter().filter(is_kernel).copied().collect();
        for entry in &kernel {
            if let Some(Damage(what)) = source.damage(entry, &mut scratch)? {
                let (kind, offset) = (kernel_entries(entry), entry.offset);
                complaints.add(format!("{kind} of a thread at byte {offset} are lost: {what}"));
            }
        }
        let mut chunks = all;
        chunks.retain(|entry| {
            let span = entry.header.span();
            if !entry.header.is(Kind::Events) {
                return false;
            }
            let usable = gather.used(entry.header.thread(), span.max_site);
            if !usable {
                let (events, offset) = (span.events, entry.offset);
                complaints.add(format!(
                    "{events} events at byte {offset} are of a thread or site that is nonsense"
                ));
            }
            usable
        });
        let mut meta = gather.finish(&mut complaints);
        let kind = match &meta.session {
            Some(session) => session.clock,
            None => {
                complaints.add("the record of the session is missing".to_owned());
                ClockKind::Tsc
            }
        };
        let (clock, about_clock) = ClockMap::new(kind, &meta.clock);
        about_clock.into_iter().for_each(|complaint| complaints.add(complaint));
        let events = chunks.iter().map(|entry| u64::from(entry.header.span().events)).sum();
        let mut chunks = EventChunks::new(source, Spares::new(scratch), chunks, kernel, clock);
        if adds_calls {
            chunks.add_system_calls(&mut meta)?;
        }
        Ok(Self { chunks: Arc::new(chunks), meta, complaints: complaints.finish(), events })
    }

    /// Returns the contents of the trace besides events. Ids in them, and those of all events, are
    /// valid indices.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Returns the complaints about the file that can be found without reading the events.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Returns the map from ticks to time.
    pub fn clock(&self) -> &ClockMap {
        self.chunks.clock()
    }

    /// Returns the number of events in the file, by the headers of its chunks.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Returns the lowest and the highest ticks of a thread, by the headers of its chunks; `None`
    /// if it has no events.
    pub fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        self.chunks.span(thread)
    }

    /// Returns the number of events of a thread, by the headers of its chunks.
    pub fn events_of(&self, thread: ThreadId) -> u64 {
        self.chunks.events(thread)
    }

    /// Returns the states of a thread over time, in ticks of the trace's clock; empty where context
    /// switches were not recorded. Times that cannot be read are [`crate::RunState::Unknown`].
    pub fn switches(&self, thread: ThreadId) -> Result<Vec<Switch>, Error> {
        let mut joined = Joined::default();
        // A damaged chunk leaves a gap.
        self.chunks.kernel_chunks(&switches::KINDS, thread, &mut |kind, entry, bytes| {
            let _ = joined.add(kind, &entry.header.span(), bytes);
        })?;
        joined.end();
        let mut switches = joined.switches;
        switches.iter_mut().for_each(|switch| switch.at = self.chunks.clock().from_ns(switch.at));
        Ok(switches)
    }

    /// Returns the wakings of a thread, in ticks of the trace's clock; empty where they were not
    /// recorded.
    pub fn wakings(&self, thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        self.chunks.log_in_ticks(Kind::Wakings, thread)
    }

    /// Returns the system calls of a thread, in ticks of the trace's clock; empty where they were
    /// not recorded.
    pub fn system_calls(&self, thread: ThreadId) -> Result<KernelLog<SystemCall>, Error> {
        self.chunks.log_in_ticks(Kind::SystemCalls, thread)
    }

    /// Returns the incidents of a thread, in ticks of the trace's clock; empty where they were not
    /// recorded.
    pub fn incidents(&self, thread: ThreadId) -> Result<KernelLog<Incident>, Error> {
        self.chunks.log_in_ticks(Kind::Incidents, thread)
    }

    /// Returns the threads that have run a goroutine, oldest first.
    pub fn goroutine_runs(&self, thread: ThreadId) -> Result<Vec<GoroutineRun>, Error> {
        Ok(self.chunks.log::<GoroutineRun>(Kind::GoroutineRuns, thread)?.entries)
    }

    /// Whether there are any context switches.
    pub fn has_switches(&self) -> bool {
        self.chunks.has_kernel(&switches::KINDS)
    }

    /// Returns all events, chunk by chunk, in file order: per thread oldest first, threads
    /// interleaved. If there are many chunks, other threads decode some ahead.
    pub fn batches(&self) -> Batches {
        Batches(Stream::new(&self.chunks, (0..).take(self.chunks.count()).collect()))
    }

    /// Reads the whole file, without decoding it, and returns an error for each chunk of events
    /// that is damaged.
    pub fn damaged_chunks(&self) -> impl Iterator<Item = Error> {
        (0..self.chunks.count()).filter_map(|at| self.chunks.check(at).err())
    }

    /// Returns the events of some threads, one thread after the other, like
    /// [`Self::thread_batches`]. If there are many chunks, other threads decode some ahead.
    pub fn batches_of(&self, threads: &[ThreadId]) -> BatchesOf {
        let (mut list, mut ends) = (Vec::new(), VecDeque::new());
        for thread in threads {
            list.extend_from_slice(self.chunks.of_thread(*thread));
            ends.push_back(list.len());
        }
        BatchesOf { stream: Stream::new(&self.chunks, list), ends }
    }

    /// Returns the events of one thread, oldest first.
    pub fn thread_batches(&self, thread: ThreadId) -> ThreadBatches<'_> {
        ThreadBatches { chunks: &self.chunks, rest: self.chunks.of_thread(thread) }
    }
}

/// See [`TraceReader::batches`]. After an error it continues with the next chunk.
pub struct Batches(Stream);

impl Batches {
    /// Reads the next chunk into `batch`, whose memory is reused; returns `false` at the end. After
    /// an error the next call continues with the next chunk.
    pub fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        self.0.next_into(batch)
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Batch::default();
        self.next_into(&mut batch).map(|more| more.then_some(batch)).transpose()
    }
}

/// See [`TraceReader::batches_of`].
pub struct BatchesOf {
    stream: Stream,
    /// Number of chunks up to the end of each thread.
    ends: VecDeque<usize>,
}

impl BatchesOf {
    /// Reads like [`Batches::next_into`], but returns `false` at the end of each thread; behind
    /// that it continues with the next thread.
    pub fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        if self.ends.front().is_none_or(|end| *end == self.stream.taken()) {
            self.ends.pop_front();
            return Ok(false);
        }
        self.stream.next_into(batch)
    }
}

/// See [`TraceReader::thread_batches`]. After an error it continues with the next chunk.
pub struct ThreadBatches<'a> {
    chunks: &'a EventChunks,
    rest: &'a [u32],
}

impl ThreadBatches<'_> {
    /// Skips `chunks` chunks without reading them.
    pub fn skip(&mut self, chunks: usize) {
        self.rest = self.rest.get(chunks..).unwrap_or_default();
    }

    /// Reads like [`Batches::next_into`].
    pub fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Some((&at, rest)) = self.rest.split_first() else { return Ok(false) };
        self.rest = rest;
        self.chunks.read(at, batch)?;
        Ok(true)
    }
}

impl Iterator for ThreadBatches<'_> {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Batch::default();
        self.next_into(&mut batch).map(|more| more.then_some(batch)).transpose()
    }
}

//! Reads a trace back, whole or cut off, intact or not.

use crate::chunk::{FILE_HEADER, IndexEntry, Kind, Start, start};
use crate::clock::ClockMap;
use crate::codec::Damage;
use crate::error::Error;
use crate::event::Batch;
use crate::gather::Gather;
use crate::kernel_log::{self, Entry, KernelLog};
use crate::meta::{ClockKind, Meta, ThreadId};
use crate::source::{Scratch, Source, Spares};
use crate::survey::{Complaints, survey};
use crate::switches::{self, Joined, Switch};
use crate::wakings::{SystemCall, Waking};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Chunks of what the kernel tells of threads.
const KERNEL: [Kind; 4] = [Kind::Switches, Kind::States, Kind::Wakings, Kind::SystemCalls];

/// An open trace. Only metadata and the places of chunks are in memory.
///
/// It can be shared: any number of threads may run their own [`TraceReader::batches`].
pub struct TraceReader {
    source: Source,
    spares: Spares,
    meta: Meta,
    complaints: Vec<String>,
    clock: ClockMap,
    events: u64,
    /// Chunks of events in file order.
    chunks: Vec<IndexEntry>,
    /// Indices of `chunks`, by thread, then in file order.
    by_thread: Vec<u32>,
    /// Chunks of context switches, wakings and system calls, by thread, then in file order.
    kernel: Vec<IndexEntry>,
}

impl TraceReader {
    /// Does the file begin as traces do? False if it cannot be read.
    pub fn is_trace(path: &Path) -> bool {
        let mut first = Vec::new();
        // A pipe would wait for its writer.
        let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
        let read = |file: File| file.take(FILE_HEADER as u64).read_to_end(&mut first);
        is_file && File::open(path).and_then(read).is_ok_and(|n| n > 0) && start(&first) != Start::Foreign
    }

    /// Opens a trace and reads everything but its events.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let source = Source::open(path)?;
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
        let mut kernel: Vec<IndexEntry> = all.iter().filter(is_kernel).copied().collect();
        kernel.sort_by_key(|entry| entry.header.thread());
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
        let meta = gather.finish(&mut complaints);
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
        let mut by_thread: Vec<u32> = (0..).take(chunks.len()).collect();
        by_thread.sort_by_key(|&at| chunks[at as usize].header.thread());
        let (spares, complaints) = (Spares::new(scratch), complaints.finish());
        Ok(Self { source, spares, meta, complaints, clock, events, chunks, by_thread, kernel })
    }

    /// What the trace says besides events. Ids in it, and those of all events, are valid indices.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// What is wrong with the file, as far as it shows without reading the events.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// From ticks to time.
    pub fn clock(&self) -> &ClockMap {
        &self.clock
    }

    /// Events in the file, by the headers of its chunks.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// The lowest and the highest ticks of a thread, by the headers of its chunks; `None` if it has no events.
    pub fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        let spans = self.of_thread(thread).iter().map(|&at| self.chunks[at as usize].header.span());
        spans.map(|span| (span.low, span.high)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// What a thread did when, in ticks of the trace's clock; empty where context switches were not recorded. What cannot be read is
    /// [`crate::RunState::Unknown`].
    pub fn switches(&self, thread: ThreadId) -> Result<Vec<Switch>, Error> {
        let mut joined = Joined::default();
        // What is missing is seen as a gap.
        self.kernel_chunks(&switches::KINDS, thread, &mut |kind, entry, bytes| {
            let _ = joined.add(kind, &entry.header.span(), bytes);
        })?;
        joined.end();
        let mut switches = joined.switches;
        switches.iter_mut().for_each(|switch| switch.at = self.clock.from_ns(switch.at));
        Ok(switches)
    }

    /// Who woke a thread, in ticks of the trace's clock; empty where that was not recorded.
    pub fn wakings(&self, thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        self.kernel_log(Kind::Wakings, thread)
    }

    /// The system calls of a thread, likewise.
    pub fn system_calls(&self, thread: ThreadId) -> Result<KernelLog<SystemCall>, Error> {
        self.kernel_log(Kind::SystemCalls, thread)
    }

    fn kernel_log<T: Entry>(&self, kind: Kind, thread: ThreadId) -> Result<KernelLog<T>, Error> {
        let mut log = KernelLog::default();
        self.kernel_chunks(&[kind], thread, &mut |_, entry, bytes| {
            // What is missing is not known.
            let _ = kernel_log::add_chunk(&mut log, &entry.header.span(), bytes);
        })?;
        Ok(kernel_log::convert(log, |ns| self.clock.from_ns(ns)))
    }

    /// Shows the readable chunks of some kinds and a thread, oldest first.
    fn kernel_chunks(
        &self,
        kinds: &[Kind],
        thread: ThreadId,
        show: &mut dyn FnMut(Kind, &IndexEntry, &[u8]),
    ) -> Result<(), Error> {
        let start = self.kernel.partition_point(|entry| entry.header.thread() < thread);
        let end = self.kernel.partition_point(|entry| entry.header.thread() <= thread);
        for entry in &self.kernel[start..end] {
            let Some(kind) = kinds.iter().copied().find(|kind| entry.header.is(*kind)) else { continue };
            self.spares.lend(&self.source, |scratch| {
                if self.source.payload(entry, scratch)?.is_ok() {
                    show(kind, entry, &scratch.raw);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether there are any context switches.
    pub fn has_switches(&self) -> bool {
        self.kernel.iter().any(|entry| switches::KINDS.iter().any(|kind| entry.header.is(*kind)))
    }

    /// All events, chunk by chunk, in file order: per thread oldest first, threads interleaved.
    pub fn batches(&self) -> Batches<'_> {
        Batches { reader: self, next: 0 }
    }

    /// The events of one thread, oldest first.
    pub fn thread_batches(&self, thread: ThreadId) -> ThreadBatches<'_> {
        ThreadBatches { reader: self, rest: self.of_thread(thread) }
    }

    fn of_thread(&self, thread: ThreadId) -> &[u32] {
        let id = |&at: &u32| self.chunks[at as usize].header.thread();
        let start = self.by_thread.partition_point(|at| id(at) < thread);
        let end = self.by_thread.partition_point(|at| id(at) <= thread);
        &self.by_thread[start..end]
    }

    fn read(&self, at: usize, batch: &mut Batch) -> Result<bool, Error> {
        let Some(entry) = self.chunks.get(at) else { return Ok(false) };
        self.spares.lend(&self.source, |scratch| self.source.batch(entry, scratch, batch))?;
        Ok(true)
    }
}

/// See [`TraceReader::batches`]. After an error it goes on with the next chunk.
pub struct Batches<'a> {
    reader: &'a TraceReader,
    next: usize,
}

impl Batches<'_> {
    /// The next chunk into `batch`, whose memory is used again; `false` at the end. After an error the next call
    /// goes on with the next chunk.
    pub fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let at = self.next;
        self.next += 1;
        self.reader.read(at, batch)
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Batch::default();
        self.next_into(&mut batch).map(|more| more.then_some(batch)).transpose()
    }
}

/// See [`TraceReader::thread_batches`]. After an error it goes on with the next chunk.
pub struct ThreadBatches<'a> {
    reader: &'a TraceReader,
    rest: &'a [u32],
}

impl ThreadBatches<'_> {
    /// Leaves out so many chunks, unread.
    pub fn skip(&mut self, chunks: usize) {
        self.rest = self.rest.get(chunks..).unwrap_or_default();
    }

    /// As [`Batches::next_into`].
    pub fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Some((&at, rest)) = self.rest.split_first() else { return Ok(false) };
        self.rest = rest;
        self.reader.read(at as usize, batch)
    }
}

impl Iterator for ThreadBatches<'_> {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Batch::default();
        self.next_into(&mut batch).map(|more| more.then_some(batch)).transpose()
    }
}

//! The chunks of events of a file: in the order of the file and by thread, read one by one.

use crate::chunk::{IndexEntry, Kind};
use crate::clock::{ClockKind, ClockMap};
use crate::error::Error;
use crate::event::Batch;
use crate::kernel_log::{self, KernelLog};
use crate::meta::{Meta, Session, ThreadId};
use crate::source::{Source, Spares};
use crate::system_calls::{AddedCalls, Bounds};
use crate::wakings::SystemCall;
use std::collections::BTreeSet;

/// All chunks of events, and the means of reading them, which threads share.
pub(crate) struct EventChunks {
    pub(crate) source: Source,
    pub(crate) spares: Spares,
    /// The chunks in file order.
    chunks: Vec<IndexEntry>,
    /// Indices of `chunks`, by thread, then in file order.
    by_thread: Vec<u32>,
    /// Chunks of the kernel's entries, by thread, then in file order.
    kernel: Vec<IndexEntry>,
    clock: ClockMap,
    /// The system calls that are added to the events.
    added: Option<AddedCalls>,
}

impl EventChunks {
    pub(crate) fn new(
        source: Source,
        spares: Spares,
        chunks: Vec<IndexEntry>,
        mut kernel: Vec<IndexEntry>,
        clock: ClockMap,
    ) -> Self {
        let mut by_thread: Vec<u32> = (0..).take(chunks.len()).collect();
        by_thread.sort_by_key(|&at| chunks[at as usize].header.thread());
        kernel.sort_by_key(|entry| entry.header.thread());
        Self { source, spares, chunks, by_thread, kernel, clock, added: None }
    }

    /// Adds the system calls of threads to their events from now on, and to the functions.
    pub(crate) fn add_system_calls(&mut self, meta: &mut Meta) -> Result<(), Error> {
        // These clocks are not precise enough to place a system call in a call.
        let is_rough = |session: &Session| matches!(session.clock, ClockKind::Sparse | ClockKind::Coarse);
        if meta.session.as_ref().is_some_and(is_rough) {
            return Ok(());
        }
        let mut numbers = BTreeSet::new();
        let calls_in_events: BTreeSet<ThreadId> = meta.calls_in_events().collect();
        let threads: BTreeSet<ThreadId> = self.kernel.iter().map(|entry| entry.header.thread()).collect();
        for thread in
            threads.difference(&calls_in_events).copied().filter(|thread| self.span(*thread).is_some())
        {
            let log: KernelLog<SystemCall> = self.log(Kind::SystemCalls, thread)?;
            numbers.extend(log.entries.iter().map(|call| call.number));
        }
        self.added = (!numbers.is_empty()).then(|| AddedCalls::new(&numbers, calls_in_events, meta));
        Ok(())
    }

    pub(crate) fn clock(&self) -> &ClockMap {
        &self.clock
    }

    /// Whether there are chunks of the kernel's entries of these kinds.
    pub(crate) fn has_kernel(&self, kinds: &[Kind]) -> bool {
        self.kernel.iter().any(|entry| kinds.iter().any(|kind| entry.header.is(*kind)))
    }

    /// Returns the kernel's entries of one kind about a thread, with the times in the file.
    pub(crate) fn log<T: kernel_log::Entry>(
        &self,
        kind: Kind,
        thread: ThreadId,
    ) -> Result<KernelLog<T>, Error> {
        let mut log = KernelLog::default();
        self.kernel_chunks(&[kind], thread, &mut |_, entry, bytes| {
            // The times of a damaged chunk are not known.
            let _ = kernel_log::add_chunk(&mut log, &entry.header.span(), bytes);
        })?;
        Ok(log)
    }

    /// Returns the kernel's entries of one kind about a thread, in ticks of the trace's clock.
    pub(crate) fn log_in_ticks<T: kernel_log::Entry>(
        &self,
        kind: Kind,
        thread: ThreadId,
    ) -> Result<KernelLog<T>, Error> {
        Ok(kernel_log::convert(self.log(kind, thread)?, |ns| self.clock.from_ns(ns)))
    }

    /// Shows the readable chunks of some kinds and a thread, oldest first.
    pub(crate) fn kernel_chunks(
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

    /// Returns the number of chunks.
    pub(crate) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the numbers of a thread's chunks, oldest first.
    pub(crate) fn of_thread(&self, thread: ThreadId) -> &[u32] {
        let id = |&at: &u32| self.chunks[at as usize].header.thread();
        let start = self.by_thread.partition_point(|at| id(at) < thread);
        let end = self.by_thread.partition_point(|at| id(at) <= thread);
        &self.by_thread[start..end]
    }

    /// Returns the lowest and the highest ticks of a thread.
    pub(crate) fn span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        let spans = self.of_thread(thread).iter().map(|&at| self.chunks[at as usize].header.span());
        spans.map(|span| (span.low, span.high)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns the number of a thread's events.
    pub(crate) fn events(&self, thread: ThreadId) -> u64 {
        let chunks = self.of_thread(thread).iter().map(|&at| self.chunks[at as usize].header.span());
        chunks.map(|span| u64::from(span.events)).sum()
    }

    /// Reads the chunk with this number, which must be below the count.
    pub(crate) fn read(&self, at: u32, batch: &mut Batch) -> Result<(), Error> {
        let entry = &self.chunks[at as usize];
        self.spares.lend(&self.source, |scratch| self.source.batch(entry, scratch, batch))?;
        let Some(added) = &self.added else { return Ok(()) };
        let thread = batch.thread;
        added.add(batch, self.bounds(at), || self.log_in_ticks(Kind::SystemCalls, thread))
    }

    /// Checks the checksums of a chunk.
    pub(crate) fn check(&self, at: usize) -> Result<(), Error> {
        self.spares.lend(&self.source, |scratch| self.source.check(&self.chunks[at], scratch))
    }

    /// Returns the times of a chunk for the system calls that belong to it.
    fn bounds(&self, at: u32) -> Bounds {
        let own = self.of_thread(self.chunks[at as usize].header.thread());
        let place = own.partition_point(|other| *other < at);
        let high = |place: usize| self.chunks[own[place] as usize].header.span().high;
        Bounds {
            after: place.checked_sub(1).map(high),
            until: (place + 1 < own.len()).then(|| high(place)),
            last: high(own.len() - 1),
        }
    }
}

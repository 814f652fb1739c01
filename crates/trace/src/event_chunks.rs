//! The chunks of events of a file: in the order of the file and by thread, read one by one.

use crate::chunk::IndexEntry;
use crate::error::Error;
use crate::event::Batch;
use crate::meta::ThreadId;
use crate::source::{Source, Spares};

/// All of them, and what reading them takes. Threads share it.
pub(crate) struct EventChunks {
    pub(crate) source: Source,
    pub(crate) spares: Spares,
    /// In file order.
    chunks: Vec<IndexEntry>,
    /// Indices of `chunks`, by thread, then in file order.
    by_thread: Vec<u32>,
}

impl EventChunks {
    pub(crate) fn new(source: Source, spares: Spares, chunks: Vec<IndexEntry>) -> Self {
        let mut by_thread: Vec<u32> = (0..).take(chunks.len()).collect();
        by_thread.sort_by_key(|&at| chunks[at as usize].header.thread());
        Self { source, spares, chunks, by_thread }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// The numbers of those of a thread, oldest first.
    pub(crate) fn of_thread(&self, thread: ThreadId) -> &[u32] {
        let id = |&at: &u32| self.chunks[at as usize].header.thread();
        let start = self.by_thread.partition_point(|at| id(at) < thread);
        let end = self.by_thread.partition_point(|at| id(at) <= thread);
        &self.by_thread[start..end]
    }

    /// The lowest and the highest ticks of a thread.
    pub(crate) fn span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        let spans = self.of_thread(thread).iter().map(|&at| self.chunks[at as usize].header.span());
        spans.map(|span| (span.low, span.high)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// How many events a thread has.
    pub(crate) fn events(&self, thread: ThreadId) -> u64 {
        let chunks = self.of_thread(thread).iter().map(|&at| self.chunks[at as usize].header.span());
        chunks.map(|span| u64::from(span.events)).sum()
    }

    /// Reads the chunk with this number; that number must be below the count.
    pub(crate) fn read(&self, at: u32, batch: &mut Batch) -> Result<(), Error> {
        let entry = &self.chunks[at as usize];
        self.spares.lend(&self.source, |scratch| self.source.batch(entry, scratch, batch))
    }
}

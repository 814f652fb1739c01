//! The chunks of events of a file: in the order of the file and by thread, read one by one.

use crate::chunk::IndexEntry;
use crate::error::Error;
use crate::event::Batch;
use crate::meta::ThreadId;
use crate::source::{Source, Spares};

/// All chunks of events, and the means of reading them, which threads share.
pub(crate) struct EventChunks {
    pub(crate) source: Source,
    pub(crate) spares: Spares,
    /// The chunks in file order.
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
        self.spares.lend(&self.source, |scratch| self.source.batch(entry, scratch, batch))
    }
}

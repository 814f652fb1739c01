//! Trace files as a source.

use crate::{BatchStream, Error, Source};
use calltap_trace::{Batch, Batches, Meta, ThreadBatches, ThreadId, TraceReader};

impl Source for TraceReader {
    fn meta(&self) -> &Meta {
        self.meta()
    }

    fn complaints(&self) -> &[String] {
        self.complaints()
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

    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        self.thread_span(thread)
    }
}

impl BatchStream for Batches<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        Ok(Batches::next_into(self, batch)?)
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

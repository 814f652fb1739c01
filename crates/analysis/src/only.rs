//! A recording narrowed to some of its threads.

use crate::{BatchStream, Error, Source};
use calltap_trace::{Batch, Meta, Switch, ThreadId};

/// Only these threads of a source: the others look as if they had no events.
pub struct Only<'a> {
    source: &'a dyn Source,
    threads: Vec<ThreadId>,
}

impl<'a> Only<'a> {
    /// The threads of `source` with one of these kernel thread ids (an id may have been used by several).
    pub fn tids(source: &'a dyn Source, tids: &[u32]) -> Only<'a> {
        let threads =
            source.meta().threads.iter().filter(|thread| tids.contains(&thread.tid)).map(|thread| thread.id);
        Only { source, threads: threads.collect() }
    }

    /// Is none of them in the recording?
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }
}

struct Chain<'a> {
    source: &'a dyn Source,
    threads: std::slice::Iter<'a, ThreadId>,
    current: Option<Box<dyn BatchStream + 'a>>,
}

impl BatchStream for Chain<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        loop {
            if let Some(stream) = &mut self.current
                && stream.next_into(batch)?
            {
                return Ok(true);
            }
            let Some(thread) = self.threads.next() else { return Ok(false) };
            self.current = Some(self.source.thread_batches(*thread));
        }
    }
}

impl Source for Only<'_> {
    fn meta(&self) -> &Meta {
        self.source.meta()
    }

    fn complaints(&self) -> &[String] {
        self.source.complaints()
    }

    fn event_count(&self) -> u64 {
        self.source.event_count()
    }

    fn has_time(&self) -> bool {
        self.source.has_time()
    }

    fn to_ns(&self, ticks: u64) -> u64 {
        self.source.to_ns(ticks)
    }

    fn duration_ns(&self, ticks: u64) -> u64 {
        self.source.duration_ns(ticks)
    }

    fn batches(&self) -> Box<dyn BatchStream + '_> {
        Box::new(Chain { source: self.source, threads: self.threads.iter(), current: None })
    }

    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_> {
        self.source.thread_batches(thread)
    }

    fn has_switches(&self) -> bool {
        self.source.has_switches()
    }

    fn switches(&self, thread: ThreadId) -> Result<Option<Vec<Switch>>, Error> {
        self.source.switches(thread)
    }

    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        self.threads.contains(&thread).then(|| self.source.thread_span(thread))?
    }
}

//! Merges the events of one output thread from one recording or two.

use super::clocks::Timeline;
use super::tables::{Part, Tables};
use super::{Joined, Recording, Refused};
use calltap_trace::{Batch, Event, EventKind, SiteId, ThreadBatches, ThreadEncoder, TraceWriter};

/// The events of a part of a recording, oldest first.
struct Events<'r> {
    batches: ThreadBatches<'r>,
    batch: Batch,
    at: usize,
    timeline: &'r Timeline,
    tables: &'r Tables,
    part: Part,
    /// Whether events before the next one could not be read.
    is_damaged: bool,
    damaged: u64,
}

impl<'r> Events<'r> {
    fn new(
        recordings: &'r [Recording],
        timeline: &'r Timeline,
        tables: &'r Tables,
        part: Part,
    ) -> Events<'r> {
        let batches = recordings[part.recording].reader.thread_batches(part.thread);
        let batch = Batch::default();
        Events { batches, batch, at: 0, timeline, tables, part, is_damaged: false, damaged: 0 }
    }

    /// Returns the time of the next event.
    fn time(&mut self) -> Result<Option<u64>, Refused> {
        loop {
            while self.at >= self.batch.events.len() {
                self.at = 0;
                match self.batches.next_into(&mut self.batch) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.batch.events.clear();
                        return Ok(None);
                    }
                    Err(calltap_trace::Error::BadChunk { .. }) => {
                        self.batch.events.clear();
                        self.is_damaged = true;
                        self.damaged += 1;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let time = self.timeline.ticks(self.part.recording, self.batch.events[self.at].ticks);
            if (self.part.from..self.part.until).contains(&time) {
                return Ok(Some(time));
            }
            self.at += 1;
        }
    }

    /// Takes the next event, whose time [`Self::time`] returned, with its captured values.
    fn take(&mut self, time: u64) -> (Event, &[u8]) {
        let (at, event) = (self.at, self.batch.events[self.at]);
        self.at += 1;
        let site = self.tables.ids[self.part.recording].site(event.site);
        (Event { ticks: time, site, ..event }, self.batch.values.of(at))
    }
}

/// Numbers of entries and returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) entries: u64,
    pub(super) exits: u64,
}

/// An output thread.
pub(super) struct MergedThread<'r> {
    own: Events<'r>,
    /// The kernel's calls of the same thread.
    kernel: Option<Events<'r>>,
    /// Number of open calls of the kernel.
    open: u32,
    cut: u64,
    count: u64,
    /// Numbers of written calls and returns of the kernel.
    of_kernel: Counts,
    encoder: ThreadEncoder,
}

impl<'r> MergedThread<'r> {
    /// Makes the lane of the thread with this number.
    pub(super) fn new(
        recordings: &'r [Recording],
        timeline: &'r Timeline,
        tables: &'r Tables,
        thread: usize,
    ) -> MergedThread<'r> {
        let row = &tables.threads[thread];
        let events = |part| Events::new(recordings, timeline, tables, part);
        let kernel = row.beside.filter(|_| row.is_nested).map(events);
        let encoder = ThreadEncoder::new(row.thread.id);
        MergedThread {
            own: events(row.own),
            kernel,
            open: 0,
            cut: 0,
            count: 0,
            of_kernel: Counts::default(),
            encoder,
        }
    }

    /// Returns the time of the next event, if there is one.
    pub(super) fn time(&mut self) -> Result<Option<u64>, Refused> {
        let kernel = self.kernel.as_mut().map(Events::time).transpose()?.flatten();
        Ok(self.own.time()?.into_iter().chain(kernel).min())
    }

    /// Writes the next event.
    pub(super) fn step(&mut self) -> Result<(), Refused> {
        let own = self.own.time()?;
        let kernel = self.kernel.as_mut().map(Events::time).transpose()?.flatten();
        match (own, kernel) {
            // At equal times, a thread in the kernel leaves it first, and a thread outside enters
            // it last.
            (own, Some(kernel)) if own.is_none_or(|own| kernel < own || kernel == own && self.open > 0) => {
                self.take_kernel(kernel);
            }
            (Some(own), _) => self.take_own(own),
            (None, _) => {}
        }
        Ok(())
    }

    fn take_own(&mut self, time: u64) {
        if std::mem::take(&mut self.own.is_damaged) {
            let kind = EventKind::Lost { entries: 0, exits: 0 };
            self.encoder.push(Event { ticks: time, site: SiteId(0), kind });
            self.open = 0;
        }
        let (mut event, values) = self.own.take(time);
        // An event of the program's code ends all calls of the kernel.
        let open = std::mem::take(&mut self.open);
        self.cut += u64::from(open);
        match &mut event.kind {
            EventKind::Exit { pops } | EventKind::Left { pops } if *pops > 0 => *pops += open,
            _ if open > 0 => {
                let kind = EventKind::Left { pops: open };
                self.encoder.push(Event { kind, ..event });
            }
            _ => {}
        }
        self.count += u64::from(event.kind.begins_call() || matches!(event.kind, EventKind::Exit { .. }));
        match values {
            [] => self.encoder.push(event),
            values => self.encoder.push_with(event, values),
        }
    }

    fn take_kernel(&mut self, time: u64) {
        let Some(kernel) = &mut self.kernel else { return };
        let (mut event, _) = kernel.take(time);
        match &mut event.kind {
            EventKind::Exit { pops } | EventKind::Left { pops } => {
                *pops = (*pops).min(self.open);
                self.open -= *pops;
                if *pops == 0 {
                    // The call was cut, or its entry is unknown.
                    return;
                }
            }
            // The kernel lost events of any thread: in this one, only calls of the kernel may have
            // ended.
            EventKind::Lost { .. } => {
                let pops = std::mem::take(&mut self.open);
                if pops == 0 {
                    return;
                }
                event.kind = EventKind::Left { pops };
            }
            kind => self.open += u32::from(kind.enters().is_some()),
        }
        let (begins, ends) = (event.kind.begins_call(), matches!(event.kind, EventKind::Exit { .. }));
        self.of_kernel.entries += u64::from(begins);
        self.of_kernel.exits += u64::from(ends);
        self.count += u64::from(begins || ends);
        self.encoder.push(event);
    }

    /// Writes the waiting events, if there are many.
    pub(super) fn relieve(&mut self, trace: &mut TraceWriter) -> Result<(), Refused> {
        if self.encoder.is_full() {
            trace.events(&mut self.encoder)?;
        }
        Ok(())
    }

    /// Writes all waiting events at the end. Returns the counts of the kernel's calls if they are
    /// nested in the program's.
    pub(super) fn finish(
        &mut self,
        trace: &mut TraceWriter,
        joined: &mut Joined,
    ) -> Result<Option<Counts>, Refused> {
        trace.events(&mut self.encoder)?;
        joined.events += self.count;
        joined.cut += self.cut;
        joined.nested += u64::from(self.kernel.is_some());
        joined.damaged += self.own.damaged + self.kernel.as_ref().map_or(0, |kernel| kernel.damaged);
        joined.of_kernel += self.of_kernel.entries;
        Ok(self.kernel.as_ref().map(|_| self.of_kernel))
    }
}

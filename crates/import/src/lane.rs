//! Output of one thread that is not in the trace yet.

use crate::frames::Frames;
use crate::states::{Complete, States};
use calltap_trace::{
    Error, Event, EventKind, Loss, SiteId, SystemCall, ThreadEncoder, ThreadId, TraceWriter, Waking,
};

/// Number of waiting entries from which on they are written.
const WAITING: usize = 4096;

/// The kernel's entries about a thread, complete since `from`.
pub(crate) struct Log<T> {
    /// The time up to which entries are written, if the log is complete since then.
    from: Option<u64>,
    entries: Vec<(u64, T)>,
}

impl<T> Default for Log<T> {
    fn default() -> Log<T> {
        Log { from: None, entries: Vec::new() }
    }
}

impl<T> Log<T> {
    pub(crate) fn push(&mut self, at: u64, entry: T) {
        self.from.get_or_insert(at);
        self.entries.push((at, entry));
    }

    /// Takes the waiting entries, with the times from and until which they are complete.
    fn take(&mut self) -> Option<(u64, Vec<T>, u64)> {
        let (from, until) = (self.from?, self.entries.last()?.0);
        self.from = Some(until);
        Some((from, self.entries.drain(..).map(|(_, entry)| entry).collect(), until))
    }
}

/// The output of one thread.
pub(crate) struct ThreadOutput {
    pub(crate) id: ThreadId,
    pub(crate) frames: Frames,
    encoder: ThreadEncoder,
    loss: Loss,
    /// A `function` event, which is merged with a following entry of the same function and time.
    held: Option<(u64, SiteId, u64)>,
    /// Whether the call whose exit follows ended at an unknown time.
    pub(crate) is_left: bool,
    pub(crate) states: States,
    pub(crate) wakings: Log<Waking>,
    pub(crate) system_calls: Log<SystemCall>,
    /// Whether system calls are among its events.
    pub(crate) has_calls: bool,
}

impl ThreadOutput {
    pub(crate) fn new(id: ThreadId) -> ThreadOutput {
        ThreadOutput {
            id,
            frames: Frames::default(),
            encoder: ThreadEncoder::new(id),
            loss: Loss { thread: id, ..Loss::default() },
            held: None,
            is_left: false,
            states: States::default(),
            wakings: Log::default(),
            system_calls: Log::default(),
            has_calls: false,
        }
    }

    pub(crate) fn push(&mut self, ticks: u64, site: SiteId, kind: EventKind) {
        let kind = match (self.held.take(), kind) {
            (Some((at, of, parent)), EventKind::Entry) if (at, of) == (ticks, site) => {
                EventKind::EntryFrom { parent }
            }
            (Some((at, of, parent)), kind) => {
                self.add(at, of, EventKind::Call { parent });
                kind
            }
            (None, kind) => kind,
        };
        self.add(ticks, site, kind);
    }

    /// Holds a call back that the following entry may repeat, as files written by calltap have
    /// both.
    pub(crate) fn hold(&mut self, ticks: u64, site: SiteId, parent: u64) {
        self.release();
        self.held = Some((ticks, site, parent));
    }

    fn release(&mut self) {
        if let Some((at, of, parent)) = self.held.take() {
            self.add(at, of, EventKind::Call { parent });
        }
    }

    fn add(&mut self, ticks: u64, site: SiteId, kind: EventKind) {
        match kind {
            EventKind::Exit { .. } => self.loss.exits += 1,
            EventKind::Lost { entries, exits } => {
                self.loss.lost_entries += u64::from(entries);
                self.loss.lost_exits += u64::from(exits);
            }
            kind => self.loss.entries += u64::from(kind.begins_call()),
        }
        self.encoder.push(Event { ticks, site, kind });
    }

    /// Marks a gap: from `at` on, nanoseconds, events are missing.
    pub(crate) fn gap(&mut self, at: u64, trace: &mut TraceWriter) -> Result<(), Error> {
        self.states.gap(at);
        self.write_logs(trace)?;
        (self.wakings.from, self.system_calls.from) = (None, None);
        Ok(())
    }

    fn write_logs(&mut self, trace: &mut TraceWriter) -> Result<(), Error> {
        if let Some((from, entries, until)) = self.wakings.take() {
            trace.wakings(self.id, from, &entries, until)?;
        }
        if let Some((from, entries, until)) = self.system_calls.take() {
            trace.system_calls(self.id, from, &entries, until)?;
        }
        Ok(())
    }

    /// Writes the waiting output, if there is much of it.
    pub(crate) fn relieve(&mut self, trace: &mut TraceWriter) -> Result<(), Error> {
        if self.encoder.is_full() {
            trace.events(&mut self.encoder)?;
        }
        if self.states.switches.len() > WAITING {
            let settled = self.states.take_settled();
            let until = self.states.switches.first().map_or(0, |rest| rest.at);
            trace.switches(self.id, &settled, until)?;
        }
        if self.wakings.entries.len().max(self.system_calls.entries.len()) > WAITING {
            self.write_logs(trace)?;
        }
        Ok(())
    }

    /// Writes all output at the end. The thread's last state lasts until `until`, nanoseconds.
    pub(crate) fn finish(
        &mut self,
        trace: &mut TraceWriter,
        until: u64,
        complete: Complete,
    ) -> Result<u64, Error> {
        self.release();
        trace.events(&mut self.encoder)?;
        self.states.finish(complete);
        trace.switches(self.id, &self.states.switches, until)?;
        self.write_logs(trace)?;
        trace.end(self.id)?;
        trace.record(&calltap_trace::Record::Loss(self.loss))?;
        Ok(self.loss.entries + self.loss.exits)
    }
}

//! Forked children: which calls of the forking thread are open in the child's first thread.

use super::history::{ChunkOfThread, ForkPoint, History};
use super::paired_output::PairedOutput;
use super::{Extent, Reader};
use crate::callers::Unwinding;
use crate::output::Output;
use crate::pairing::OpenCalls;
use crate::shm::Shared;
use calltap_trace::{Event, EventKind, Process, Record};
use std::sync::atomic::Ordering::Acquire;

/// A search for a fork in the events of a thread.
#[derive(Debug)]
pub(super) struct Sought {
    fork: ForkPoint,
    found: Option<OpenCalls>,
}

impl Reader {
    /// Keeps the words that are read for children that are forked.
    pub(crate) fn keeping_history(self, keeps_history: bool) -> Reader {
        Reader { keeps_history: keeps_history && !self.sparse, ..self }
    }

    /// Makes this the reader of a forked process's first thread, in which the calls in `open` are
    /// open.
    pub(crate) fn copied(self, open: OpenCalls, process: Process) -> Reader {
        let copied = (!open.is_empty()).then_some(process);
        Reader { open, copied, ..self }
    }

    /// Returns the calls that were open at a fork. Reads up to the fork if that has not happened:
    /// all events that the thread recorded before it are in the ring by the time the child exists.
    pub(crate) fn open_at(
        &mut self,
        fork: ForkPoint,
        shared: &Shared,
        output: &mut Output<'_>,
        unwinding: &mut Unwinding,
    ) -> Option<OpenCalls> {
        self.sought = Some(Sought { fork, found: None });
        self.seek_fork();
        if !self.has_found() {
            self.read(shared, Extent::Partial, u32::MAX, output, unwinding);
        }
        self.sought.take()?.found
    }

    /// Returns the history of the present chunk, for children whose first event comes after the
    /// thread has ended.
    pub(crate) fn into_history(self) -> Option<History> {
        self.history
    }

    /// Ends the history: the open calls do not follow from the words alone from here on.
    pub(super) fn close_history(&mut self) {
        self.history.iter_mut().for_each(History::close);
    }

    /// Looks for the sought fork in the history.
    pub(super) fn seek_fork(&mut self) {
        let Some(sought) = self.sought.as_mut().filter(|sought| sought.found.is_none()) else { return };
        sought.found = self.history.as_ref().and_then(|history| history.open_at(&sought.fork));
    }

    /// Whether the sought fork was found.
    pub(super) fn has_found(&self) -> bool {
        self.sought.as_ref().is_some_and(|sought| sought.found.is_some())
    }

    /// Begins or continues the history with the words that are read next, if all earlier events are
    /// settled.
    pub(super) fn follow(&mut self, shared: &Shared, chunk: u32, unwinding: &mut Unwinding) {
        if !self.keeps_history {
            return;
        }
        if self.is_waiting() {
            return self.close_history();
        }
        if !self.switching.is_empty() {
            // Functions that were disabled long before the next event are settled now.
            let next = shared.chunk(chunk).and_then(|words| self.cursor.next_ticks(words, false));
            let unwinding = Some((unwinding, self.process));
            let mut pairs = PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding };
            next.into_iter().for_each(|next| self.switching.end_before(next, &mut pairs));
            self.close_history();
        }
        let Some(header) = shared.chunk_header(chunk) else { return };
        let chunk = ChunkOfThread { index: chunk, number: header.number.load(Acquire) };
        let goes_on = self.history.as_ref().is_some_and(|history| history.goes_on_in(chunk));
        if self.switching.is_empty() && !goes_on {
            let room = self.history.take().map(History::into_room).unwrap_or_default();
            self.history = if self.may_have_open_calls() {
                History::begin(chunk, &self.cursor, &self.open, room)
            } else {
                None
            };
        }
    }

    /// Whether a child may be forked in calls of this thread. In a thread of which only entries are
    /// recorded none is ever open.
    fn may_have_open_calls(&self) -> bool {
        let is_new = self.totals.entries == 0;
        is_new || self.totals.exits > 0 || !self.open.is_empty()
    }

    /// Writes that the calls from the fork are open, in front of the first event, unless that event
    /// shows the thread on another stack, or events are missing. Returns false if the first event
    /// is not there yet.
    pub(super) fn go_on_from_fork(&mut self, shared: &Shared, chunk: u32, output: &mut Output<'_>) -> bool {
        let Some(process) = self.copied.take() else { return true };
        let Some(first) = shared.chunk(chunk).and_then(|words| self.cursor.next_event(words)) else {
            self.copied = Some(process);
            return false;
        };
        if (self.totals.lost_entries, self.totals.lost_exits) == (0, 0) && self.open.is_stack_of(first) {
            for site in self.open.sites() {
                self.encoder.push(Event { ticks: first.ticks, site, kind: EventKind::Resumed });
            }
        } else {
            self.open = OpenCalls::new(true);
            output.record(&Record::Process(Process { resumed: false, ..process }));
        }
        true
    }
}

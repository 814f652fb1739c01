//! The decoded events of a thread, from which every view is computed.

use crate::meta::{SiteId, ThreadId};

/// An event of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Clock ticks since the clock's own zero ([`crate::ClockMap`] makes nanoseconds of them).
    /// Almost always ascending within a thread; a signal handler that ran between reading the clock
    /// and storing the event can make one event up to the handler's duration older than its
    /// predecessor.
    pub ticks: u64,
    /// Function of the event.
    pub site: SiteId,
    /// Kind of the event.
    pub kind: EventKind,
}

/// The kind of an event of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// function_graph: entered; an [`EventKind::Exit`] follows unless the frame is left by longjmp,
    /// an exception, or the end of the thread.
    Entry,
    /// function_graph: entered by a jump (a tail call): it shares its caller's frame, and the
    /// caller's exit closes both.
    TailEntry,
    /// function: entered, from `parent` (a return address in the traced program; 0 when unknown).
    /// No exit follows.
    Call {
        /// Return address in the caller.
        parent: u64,
    },
    /// Both tracers at once: [`EventKind::Entry`] that also knows its caller.
    EntryFrom {
        /// Return address in the caller.
        parent: u64,
    },
    /// Both tracers at once: [`EventKind::TailEntry`] that also knows its caller.
    TailEntryFrom {
        /// Return address in the caller.
        parent: u64,
    },
    /// Returned. It closes the newest `pops` open frames of the thread: 1, more where tail calls
    /// share the frame or where inner frames were left without returning, 0 when its entry was not
    /// recorded.
    Exit {
        /// Number of open frames that end here.
        pops: u32,
    },
    /// The newest `pops` open frames of the thread ended at some earlier time without returning:
    /// longjmp, an exception or a switch to another stack left them, and the entry that follows (of
    /// the same site) lies where they cannot be open any more.
    Left {
        /// Number of open frames that were left.
        pops: u32,
    },
    /// The function's frame is open again, on top of the open ones: its thread is back on the
    /// frame's stack, which it had left for another one. It is not a call: that was entered before,
    /// and was [`EventKind::Left`] at the latest where the thread was seen on another stack.
    Resumed,
    /// The newest `pops` open frames of the thread began before, or continue after, the part of the
    /// trace that is read: at this time they leave it. No file has such events: a reader of a part
    /// makes them.
    Outside {
        /// Number of open frames that leave the part.
        pops: u32,
    },
    /// Tracing of this function was disabled: its open calls in this thread may have returned since
    /// without a record.
    SwitchedOff,
    /// The thread ended, and its process continued: its open calls ended with it, by pthread_exit,
    /// cancellation or the return of its first function. No event of the thread follows.
    ThreadEnded,
    /// Events were lost right here, as the buffer was full.
    Lost {
        /// Entries not recorded.
        entries: u32,
        /// Exits not recorded.
        exits: u32,
    },
}

impl EventKind {
    /// Whether a call begins with the event, whether it returns or not.
    #[inline(always)]
    pub fn begins_call(self) -> bool {
        self.enters().is_some() || matches!(self, EventKind::Call { .. })
    }

    /// Whether a frame is open from the event on, of a call that begins or continues.
    pub fn opens_frame(self) -> bool {
        self == EventKind::Resumed || self.enters().is_some()
    }

    /// For an event that opens a call, returns whether it was entered by a jump.
    #[inline(always)]
    pub fn enters(self) -> Option<bool> {
        match self {
            EventKind::Entry | EventKind::EntryFrom { .. } => Some(false),
            EventKind::TailEntry | EventKind::TailEntryFrom { .. } => Some(true),
            EventKind::Call { .. }
            | EventKind::Exit { .. }
            | EventKind::Left { .. }
            | EventKind::Resumed
            | EventKind::Outside { .. }
            | EventKind::SwitchedOff
            | EventKind::ThreadEnded
            | EventKind::Lost { .. } => None,
        }
    }
}

/// Events of one thread, in order, as one chunk of the file held them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Thread of the events.
    pub thread: ThreadId,
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Values of the events.
    pub values: Values,
}

impl Batch {
    /// Adds an event with its values.
    pub fn push(&mut self, event: Event, values: &[u8]) {
        if !values.is_empty() {
            self.values.add(self.events.len(), values);
        }
        self.events.push(event);
    }
}

/// Arguments and results: the stored bytes of some events of a [`Batch`] ([`crate::Captured`] tells
/// their meaning).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Values {
    /// Place of each event with values, ascending, and the end of its bytes.
    places: Vec<(u32, u32)>,
    bytes: Vec<u8>,
}

impl Values {
    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the values of the event at a place; nearly always there are none.
    pub fn of(&self, event: usize) -> &[u8] {
        if self.places.is_empty() {
            return &[];
        }
        let place = u32::try_from(event).unwrap_or(u32::MAX);
        let Ok(n) = self.places.binary_search_by_key(&place, |(event, _)| *event) else { return &[] };
        let start = n.checked_sub(1).map_or(0, |before| self.places[before].1);
        &self.bytes[start as usize..self.places[n].1 as usize]
    }

    /// Adds the values of an event, which comes behind all that have some.
    pub fn add(&mut self, event: usize, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.places.push((event as u32, self.bytes.len() as u32));
    }

    /// Removes all values, and keeps the memory.
    pub fn clear(&mut self) {
        self.places.clear();
        self.bytes.clear();
    }
}

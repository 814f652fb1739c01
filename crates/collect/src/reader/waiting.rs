//! Events that wait until the other threads of their process are read, where threads continue on
//! each other's stacks.
//!
//! A scheduler may resume a coroutine on any of its threads. The frames on the coroutine's stack
//! are open calls of the thread that ran it last, and have to be found when another thread resumes
//! it. So from the first event on that shows a thread far from its own frames, the events of the
//! process's threads are paired in the order of their times (`collector/moves.rs`).

use super::delayed::DelayedEvent;
use super::paired_output::PairedOutput;
use crate::raw::RawEvent;
use calltap_trace::Event;
use std::collections::VecDeque;

/// An entry of the queue.
#[derive(Debug)]
pub(super) enum Item {
    Event(DelayedEvent),
    /// A loss of events, and the number of open calls whose returns were lost.
    Lost(Event, u32),
}

impl Item {
    pub(super) fn ticks(&self) -> u64 {
        match self {
            Item::Event(event) => event.raw.ticks,
            Item::Lost(event, _) => event.ticks,
        }
    }
}

/// The events of a thread that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Whether other threads may continue on this thread's stacks.
    pub(super) is_watched: bool,
    /// Whether events wait from here on.
    pub(super) is_on: bool,
    /// Time of the newest event that was paired without waiting.
    pub(super) since: u64,
    pub(super) items: VecDeque<Item>,
}

impl Waiting {
    /// Whether events wait from here on.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Makes events wait from here on. `now`: the time until which they were paired.
    pub(super) fn begin(&mut self, now: u64) {
        if !std::mem::replace(&mut self.is_on, true) {
            self.since = now;
        }
    }

    /// Whether no event waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Queues an event, if it has to wait. Returns whether it does.
    pub(crate) fn hold(
        &mut self,
        raw: RawEvent,
        values: &[u8],
        stack: &[u8],
        pairs: &PairedOutput<'_>,
    ) -> bool {
        // Once events wait, the open calls are those before the queue, and say nothing of this
        // event.
        if self.is_watched && !self.is_on && pairs.open.is_far(raw) {
            self.begin(pairs.encoder.last_ticks());
        }
        if self.is_on {
            self.items.push_back(Item::Event(DelayedEvent::new(raw, values, stack)));
        }
        self.is_on
    }
}

//! Events that wait until the other threads of their process are read, where threads go on on each other's stacks.
//!
//! A scheduler may have any of its threads go on with a coroutine. The frames on the coroutine's stack are open calls of the thread that was there last, and
//! have to be found when another thread comes there. So from the first event on that shows a thread far from its own frames, the events of the process's threads
//! are paired in the order of their times (`collector/moves.rs`).

use crate::pairing::OpenCalls;
use crate::raw::RawEvent;
use calltap_trace::Event;
use std::collections::VecDeque;

/// What waits.
#[derive(Debug)]
pub(super) enum Item {
    /// An event, with what was read of it: values, and pieces of the stack.
    Event(RawEvent, Option<Box<(Vec<u8>, Vec<u8>)>>),
    /// Events are missing here, and so many open calls ended meanwhile.
    Lost(Event, u32),
}

impl Item {
    pub(super) fn ticks(&self) -> u64 {
        match self {
            Item::Event(raw, _) => raw.ticks,
            Item::Lost(event, _) => event.ticks,
        }
    }
}

/// The events of a thread that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Others may come to the stacks that this thread is on.
    pub(super) is_watched: bool,
    pub(super) is_on: bool,
    pub(super) items: VecDeque<Item>,
}

impl Waiting {
    /// Do events wait from here on?
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Does none wait?
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes an event, if it has to wait.
    pub(crate) fn hold(&mut self, raw: RawEvent, values: &[u8], stack: &[u8], open: &OpenCalls) -> bool {
        // Once events wait, the open calls are those before them, and say nothing of this one.
        self.is_on = self.is_on || self.is_watched && open.is_far(raw);
        if self.is_on {
            let has_read = !values.is_empty() || !stack.is_empty();
            let read = has_read.then(|| Box::new((values.to_vec(), stack.to_vec())));
            self.items.push_back(Item::Event(raw, read));
        }
        self.is_on
    }
}

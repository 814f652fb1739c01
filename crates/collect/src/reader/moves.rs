//! A reader's events that wait for other threads, and the stacks that it takes from or gives to
//! another thread.

use super::Reader;
use super::encode::Encode;
use super::pairs::Pairs;
use super::waiting::Item;
use crate::callers::Unwinding;
use crate::output::Output;
use crate::pairing::{Frame, push_switch};
use crate::raw::{RawEvent, Sink};
use calltap_trace::{Event, EventKind};

impl Reader {
    /// Watches for other threads of the process on this thread's stacks.
    pub(crate) fn watch_stacks(&mut self) {
        self.waiting.is_watched = !self.sparse;
    }

    /// Whether events wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_on
    }

    /// Makes events wait from here on.
    pub(crate) fn wait(&mut self) {
        if self.waiting.is_watched {
            self.waiting.begin(self.encoder.last_ticks());
        }
    }

    /// Returns the number of events that wait.
    pub(crate) fn waiting_events(&self) -> usize {
        self.waiting.items.len()
    }

    /// Returns the time of the first event that waits.
    pub(crate) fn next_waiting(&self) -> Option<u64> {
        self.waiting.items.front().map(Item::ticks)
    }

    /// Returns the first event that waits, if it may be on a stack with frames of another thread.
    pub(crate) fn seeks_stack(&self) -> Option<RawEvent> {
        match self.waiting.items.front() {
            Some(Item::Event(raw, _)) => self.open.seeks_stack(*raw).then_some(*raw),
            _ => None,
        }
    }

    /// Returns how far the thread's nearest frame lies above an event; 0 if the event is in that
    /// frame.
    pub(crate) fn distance_above(&self, raw: RawEvent) -> Option<u64> {
        self.open.distance_above(raw)
    }

    /// Removes and returns the frames on the stack of an event, for another thread that continues
    /// there.
    pub(crate) fn give_stack(&mut self, raw: RawEvent) -> Vec<Frame> {
        // One thread at a time runs on a stack.
        let next = self.waiting.items.front();
        let stays = next.is_some_and(|next| matches!(next, Item::Event(raw, _) if self.open.stays(*raw)));
        let (frames, left) = self.open.give_stack(raw, raw.ticks >= self.waiting.since && !stays);
        push_switch(raw.ticks, left, Vec::new(), &mut self.encoder);
        frames
    }

    /// Takes frames that another thread had.
    pub(crate) fn take_stack(&mut self, frames: &[Frame]) {
        self.open.take_stack(frames);
    }

    /// Pairs and encodes the first event that waits.
    pub(crate) fn release_waiting(&mut self, output: &mut Output<'_>, unwinding: &mut Unwinding) {
        match self.waiting.items.pop_front() {
            Some(Item::Event(raw, read)) => {
                let (values, stack) =
                    read.as_deref().map_or((&[][..], &[][..]), |(values, stack)| (&**values, &**stack));
                let unwinding = Some((unwinding, self.process));
                let pairs = Pairs { open: &mut self.open, encoder: &mut self.encoder, unwinding };
                let mut sink = Encode::new(pairs, self.rates.as_deref(), &mut self.switching);
                sink.take(raw, values, stack);
                sink.count(&mut self.totals);
            }
            Some(Item::Lost(event, ended)) => self.lose(event, ended),
            None => {}
        }
        if self.encoder.is_full() {
            output.events(&mut self.encoder);
        }
    }

    /// Notes a loss, behind all events that wait. `ended`: so many returns of open calls were lost.
    pub(super) fn push_loss(&mut self, event: Event, ended: u32) {
        if self.waiting.items.is_empty() {
            self.lose(event, ended);
        } else {
            self.waiting.items.push_back(Item::Lost(event, ended));
        }
    }

    fn lose(&mut self, event: Event, ended: u32) {
        self.encoder.push(event);
        let pops = self.open.end_lost(ended);
        if pops > 0 {
            self.encoder.push(Event { kind: EventKind::Left { pops }, ..event });
        }
        self.open.lose();
    }
}

//! What a thread does with events that wait, and with the stacks that it comes to or another one has taken over.

use super::Reader;
use super::encode::Encode;
use super::pairs::Pairs;
use super::waiting::Item;
use crate::callers::Unwinding;
use crate::output::Output;
use crate::pairing::Frame;
use crate::raw::{RawEvent, Sink};
use calltap_trace::{Event, EventKind};

impl Reader {
    /// Its process has other threads: they may come to its stacks.
    pub(crate) fn watch_stacks(&mut self) {
        self.waiting.is_watched = !self.sparse;
    }

    /// Do its events wait?
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_on
    }

    /// Has its events wait.
    pub(crate) fn wait(&mut self) {
        self.waiting.is_on |= self.waiting.is_watched;
    }

    /// How many events wait.
    pub(crate) fn waiting_events(&self) -> usize {
        self.waiting.items.len()
    }

    /// When the first event that waits was.
    pub(crate) fn next_waiting(&self) -> Option<u64> {
        self.waiting.items.front().map(Item::ticks)
    }

    /// The first event that waits, if it may be on a stack with frames of another thread.
    pub(crate) fn seeks_stack(&self) -> Option<RawEvent> {
        match self.waiting.items.front() {
            Some(Item::Event(raw, _)) => self.open.seeks_stack(*raw).then_some(*raw),
            _ => None,
        }
    }

    /// How far its nearest frame lies above an event, or in which the event is.
    pub(crate) fn distance_above(&self, raw: RawEvent) -> Option<u64> {
        self.open.distance_above(raw)
    }

    /// Its frames on the stack of an event, which are another thread's from now on.
    pub(crate) fn give_stack(&mut self, raw: RawEvent) -> Vec<Frame> {
        let (frames, left) = self.open.give_stack(raw);
        if left > 0 {
            let (ticks, site) = (raw.ticks, raw.site());
            self.encoder.push(Event { ticks, site, kind: EventKind::Left { pops: left } });
        }
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

    /// Notes a loss, behind all that waits. `ended`: so many open calls ended in it.
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

//! A reader's events that wait for other threads, and the stacks that it takes from or gives to
//! another thread.

use super::Reader;
use super::encode::Encode;
use super::paired_output::PairedOutput;
use super::waiting::Item;
use crate::callers::Unwinding;
use crate::output::Output;
use crate::pairing::{Frame, Frames, OpenCalls, SLOTS, push_switch};
use crate::raw::{RawEvent, Sink};
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind};
use std::collections::HashMap;

/// Bytes below a thread's control block that are its first stack: no thread library makes smaller
/// ones.
pub(crate) const FIRST_STACK: u64 = 16 << 10;

/// Whether a slot is certainly on the first stack of the thread with this control block.
fn is_on_first_stack(block: u64, slot: u64) -> bool {
    block != 0 && ((block >> 3).wrapping_sub(slot) & (SLOTS - 1)) < FIRST_STACK >> 3
}

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

    /// Sets the stack with which the thread began: the address above its frames, and its length in
    /// bytes, 0 if that is not known.
    pub(crate) fn set_own_stack(&mut self, top: u64, length: u64) {
        self.open.set_own_stack(top, length);
    }

    /// Whether it is not known yet on which stack the thread began, and its control block tells.
    pub(crate) fn lacks_own_stack(&self) -> bool {
        self.block != 0 && !self.open.has_own_stack()
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

    /// Returns the frames of another thread on whose stacks an event of this thread may be. Threads
    /// do not continue on each other's first stacks. A thread whose control block is this one's has
    /// ended, and this one has its stack: only coroutines that it has left continue.
    pub(crate) fn may_continue(&self, other: &Reader, raw: RawEvent) -> Option<Frames> {
        let has_ended = self.block != 0 && self.block == other.block;
        let is_first = || is_on_first_stack(self.block, raw.slot) || is_on_first_stack(other.block, raw.slot);
        if self.process != other.process || raw.code() != code::EXIT && is_first() {
            return None;
        }
        Some(if has_ended { Frames::Suspended } else { Frames::All })
    }

    /// Whether an event of this thread may be on a stack that an ended thread has left.
    pub(crate) fn may_continue_left(&self, raw: RawEvent) -> bool {
        raw.code() == code::EXIT || !is_on_first_stack(self.block, raw.slot)
    }

    /// Returns how far the nearest of these frames lies above an event; 0 if the event is in that
    /// frame.
    pub(crate) fn distance_above(&self, raw: RawEvent, of: Frames) -> Option<u64> {
        self.open.distance_above(raw, of)
    }

    /// Hands the frames on stacks that the thread has left, but its first one, to `left`.
    pub(crate) fn leave_stacks(&mut self, left: &mut HashMap<u32, OpenCalls>) {
        if self.open.has_suspended() {
            let ended = std::mem::replace(&mut self.open, OpenCalls::new(!self.sparse));
            let left = left.entry(self.process).or_insert_with(|| OpenCalls::new(!self.sparse));
            left.inherit(ended, |top| is_on_first_stack(self.block, top));
        }
    }

    /// Removes and returns the frames on the stack of an event, for another thread that continues
    /// there.
    pub(crate) fn give_stack(&mut self, raw: RawEvent, of: Frames) -> Vec<Frame> {
        // Only one thread runs on a stack at a time: a thread whose next event is on its newest
        // stack has not left it.
        let next = self.waiting.items.front();
        let stays = next.is_some_and(|next| matches!(next, Item::Event(raw, _) if self.open.stays(*raw)));
        let (frames, left) = self.open.give_stack(raw, of, raw.ticks >= self.waiting.since && !stays);
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
                let pairs = PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding };
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

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 0x7fff_f7ff_e6c0;

    /// Checks whether an event of a thread with control block `own` may be on a stack of a thread
    /// with control block `other`.
    fn check_may_continue((own, other): (u64, u64), code: u32, at: u64, expected: Option<Frames>) {
        let [own, other] = [own, other].map(|block| {
            let mut reader = Reader::new(calltap_trace::ThreadId(0), 0, 0, 7, false, None);
            reader.block = block;
            reader
        });
        let raw = RawEvent { ticks: 0, low: code, slot: at >> 3, parent: 0 };
        assert_eq!(
            own.may_continue(&other, raw),
            expected,
            "{own:x?} {other:x?} {at:#x}",
            own = own.block,
            other = other.block
        );
    }

    #[test]
    fn entries_on_first_stacks_belong_to_their_own_threads() {
        let (own, other, all) = (BLOCK, BLOCK - 0x80_0000, Some(Frames::All));
        check_may_continue((own, other), code::ENTRY, own - 0x300, None);
        check_may_continue((own, other), code::ENTRY, other - 0x300, None);
        check_may_continue((own, other), code::ENTRY, 0x5555_0000_0000, all);
        check_may_continue((0, other), code::ENTRY, own - 0x300, all);
    }

    #[test]
    fn threads_with_one_control_block_follow_each_other() {
        let suspended = Some(Frames::Suspended);
        check_may_continue((BLOCK, BLOCK), code::ENTRY, 0x5555_0000_0000, suspended);
        check_may_continue((BLOCK, BLOCK), code::ENTRY, BLOCK - 0x300, None);
        check_may_continue((BLOCK, BLOCK), code::EXIT, BLOCK - 0x300, suspended);
        check_may_continue((0, 0), code::ENTRY, 0x5555_0000_0000, Some(Frames::All));
    }
}

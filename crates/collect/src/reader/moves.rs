//! A reader's events that wait for other threads, and the stacks that it takes from or gives to
//! another thread.

use super::Reader;
use super::encode::Encode;
use super::paired_output::PairedOutput;
use super::waiting::Item;
use crate::callers::Unwinding;
use crate::output::Output;
use crate::pairing::{Frame, OpenCalls, SLOTS, push_switch};
use crate::raw::{RawEvent, Sink};
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind};
use std::collections::HashMap;

/// Bytes below a thread's control block that are its first stack: no thread library makes smaller
/// ones.
const FIRST_STACK: u64 = 16 << 10;

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

    /// Sets the address above all frames of the stack with which the thread began.
    pub(crate) fn set_first_stack(&mut self, top: u64) {
        self.open.set_own_stack(top, 0);
    }

    /// Sets the address of the thread's control block, which lies above its first stack.
    pub(crate) fn set_block(&mut self, block: u64) {
        self.block = block;
        if block != 0 {
            self.open.set_own_stack(block, FIRST_STACK);
        }
    }

    /// Asks for the length of the stack below the control block.
    pub(crate) fn ask_own_length(&mut self) {
        self.open.ask_own_length();
    }

    /// Returns the address of the control block if the length of the stack below it is asked for.
    pub(crate) fn asks_own_length(&self) -> Option<u64> {
        self.open.asks_own_length().then_some(self.block)
    }

    /// Sets the length of the stack below the control block in bytes, if it is known.
    pub(crate) fn set_own_length(&mut self, length: Option<u64>) {
        self.open.set_own_length(length);
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
            Some(Item::Event(event)) => self.open.seeks_stack(event.raw).then_some(event.raw),
            _ => None,
        }
    }

    /// Whether an event of this thread may be on a stack that another thread has left. Threads do
    /// not continue on each other's first stacks. A thread whose control block is this one's has
    /// ended, and this one has its stack.
    pub(crate) fn may_continue(&self, other: &Reader, raw: RawEvent) -> bool {
        let has_ended = self.block != 0 && self.block == other.block;
        let is_first = || is_on_first_stack(self.block, raw.slot) || is_on_first_stack(other.block, raw.slot);
        self.process == other.process && (raw.code() == code::EXIT || !has_ended && !is_first())
    }

    /// Returns how far the thread's nearest frame lies above an event; 0 if the event is in that
    /// frame.
    pub(crate) fn distance_above(&self, raw: RawEvent) -> Option<u64> {
        self.open.distance_above(raw)
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
    pub(crate) fn give_stack(&mut self, raw: RawEvent) -> Vec<Frame> {
        // Only one thread runs on a stack at a time: a thread whose next event is on its newest
        // stack has not left it.
        let next = self.waiting.items.front();
        let stays = next.is_some_and(|next| matches!(next, Item::Event(event) if self.open.stays(event.raw)));
        let (frames, left) = self.open.give_stack(raw, raw.ticks >= self.waiting.since && !stays);
        push_switch(raw.ticks, None, left, Vec::new(), &mut self.encoder);
        frames
    }

    /// Takes frames that another thread had.
    pub(crate) fn take_stack(&mut self, frames: &[Frame]) {
        self.open.take_stack(frames);
    }

    /// Pairs and encodes the first event that waits.
    pub(crate) fn release_waiting(&mut self, output: &mut Output<'_>, unwinding: &mut Unwinding) {
        match self.waiting.items.pop_front() {
            Some(Item::Event(event)) => {
                let (values, stack) = event.values_and_stack();
                let unwinding = Some((unwinding, self.process));
                let pairs = PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding };
                let mut sink = Encode::new(pairs, self.rates.as_deref(), &mut self.switching);
                sink.take(event.raw, values, stack);
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
        // Nonlocal exits are no calls, and not shown where they are lost.
        if event.kind != (EventKind::Lost { entries: 0, exits: 0 }) {
            self.encoder.push(event);
        }
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
    fn check_may_continue((own, other): (u64, u64), code: u32, at: u64, expected: bool) {
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
        let (own, other) = (BLOCK, BLOCK - 0x80_0000);
        check_may_continue((own, other), code::ENTRY, own - 0x300, false);
        check_may_continue((own, other), code::ENTRY, other - 0x300, false);
        check_may_continue((own, other), code::ENTRY, 0x5555_0000_0000, true);
        check_may_continue((0, other), code::ENTRY, own - 0x300, true);
    }

    #[test]
    fn threads_with_one_control_block_follow_each_other() {
        check_may_continue((BLOCK, BLOCK), code::ENTRY, 0x5555_0000_0000, false);
        check_may_continue((BLOCK, BLOCK), code::EXIT, 0x5555_0000_0000, true);
        check_may_continue((0, 0), code::ENTRY, 0x5555_0000_0000, true);
    }
}

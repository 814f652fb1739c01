//! Moves the frames of a stack from one thread to another, when the stack does.

use super::{
    CLOSE, Frame, OpenCalls, SLOT, SLOTS, distance_below, frame_of, is_beside, is_call_of, is_tail, place_of,
    slot_of,
};
use crate::raw::RawEvent;
use calltap_abi::event::code;

/// Returns how far a frame lies below an open one, which may be unrecorded; huge if it lies above.
fn distance_to(open: Frame, frame: Frame) -> u64 {
    distance_below(place_of(open) << SLOT, slot_of(frame))
}

impl OpenCalls {
    /// Whether an event shows that the thread is on a stack far from all frames it has open on the
    /// stack that it was on.
    pub(crate) fn is_far(&self, raw: RawEvent) -> bool {
        let frame = frame_of(raw);
        match raw.code() {
            code::EXIT => self.depth > 0 && !self.has(frame),
            // The next entry is where a nonlocal exit leads.
            code::CALL | code::NONLOCAL | code::UNWINDING => false,
            code => {
                self.depth > 0
                    && !self.is_called_by_newest(frame, code)
                    && !self.is_near_unrecorded(slot_of(frame))
                    && self.next_to(frame, code).is_none()
                    && self.below_all(frame, code) == 0
            }
        }
    }

    /// Whether an entry lies near the newest frames whose returns are not recorded any more.
    fn is_near_unrecorded(&self, slot: u64) -> bool {
        let unrecorded = self.frames[1..=self.depth].iter().rev().take(self.count_unrecorded());
        unrecorded.map(|frame| place_of(*frame)).any(|place| is_beside(place, slot))
    }

    /// Whether an event is not certainly on the stack of the innermost frame.
    pub(crate) fn seeks_stack(&self, raw: RawEvent) -> bool {
        let frame = frame_of(raw);
        match raw.code() {
            code::EXIT => !self.has(frame),
            code::CALL => false,
            code => !self.is_called_by_newest(frame, code) && !self.is_on_own_stack(raw.slot),
        }
    }

    /// Whether `frame` is open.
    fn has(&self, frame: Frame) -> bool {
        self.frames[1..=self.depth].iter().rev().any(|open| is_call_of(*open, frame))
    }

    /// Returns how far above an event the nearest frame lies, if it may be on the same stack; of a
    /// return, only its own frame counts.
    pub(crate) fn distance_above(&self, raw: RawEvent) -> Option<u64> {
        let (frame, returns) = (frame_of(raw), raw.code() == code::EXIT);
        let nearest = u64::from(!is_tail(raw.code()) && raw.code() != code::NESTED_ENTRY);
        let distance = |open: &Frame| {
            let above = distance_to(*open, frame);
            match returns {
                true => is_call_of(*open, frame).then_some(0),
                false => (nearest..=CLOSE).contains(&above).then_some(above),
            }
        };
        let open = self.frames[1..=self.depth].iter();
        open.chain(self.suspended.near(slot_of(frame))).filter_map(distance).min()
    }

    /// Whether an event shows that the thread is on the stack of its newest frame. That of a
    /// nonlocal exit is not known.
    pub(crate) fn stays(&self, raw: RawEvent) -> bool {
        let open = &self.frames[1..=self.depth];
        let (others, stack) = open.split_at(open.len() - self.suspended.newest_stack(open));
        let frame = frame_of(raw);
        match raw.code() {
            code::EXIT => stack.iter().any(|open| is_call_of(*open, frame)),
            code::CALL | code::NONLOCAL | code::UNWINDING => false,
            _ => {
                let distance = |open: &Frame| distance_to(*open, frame);
                let nearest = |frames: &[Frame]| frames.iter().map(distance).min().unwrap_or(u64::MAX);
                nearest(stack) <= nearest(others).min(CLOSE)
            }
        }
    }

    /// Removes the frames of the stack that an event is on, for another thread that continues
    /// there. Returns them, and how many of the newest open calls they are. `is_newest`: this
    /// thread may have left the stack of its newest frames.
    pub(crate) fn give_stack(&mut self, raw: RawEvent, is_newest: bool) -> (Vec<Frame>, u32) {
        let Some(distance) = self.distance_above(raw) else { return (Vec::new(), 0) };
        let place = slot_of(frame_of(raw)).wrapping_add(distance) & (SLOTS - 1);
        if let Some(frames) = self.suspended.give(place) {
            return (frames, 0);
        }
        let open = &self.frames[1..=self.depth];
        let count = self.suspended.newest_stack(open);
        let stack = &open[open.len() - count..];
        if !is_newest || !stack.iter().any(|frame| place_of(*frame) == place) {
            // Frames of other stacks are open on top of these, and whether they have ended is not
            // known.
            return (Vec::new(), 0);
        }
        let frames = stack.to_vec();
        self.suspend_frames(count, None, None);
        self.suspended.give(place_of(frames[0]));
        (frames, count as u32)
    }

    /// Takes the frames that a thread which has ended left on stacks of coroutines, where another
    /// thread may continue. `is_own`: whether a stack that begins at a slot was the thread's own.
    pub(crate) fn inherit(&mut self, ended: OpenCalls, is_own: impl Fn(u64) -> bool) {
        self.suspended.inherit(ended.suspended, is_own);
    }

    /// Whether the thread has left frames on other stacks.
    pub(crate) fn has_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }

    /// Takes frames from another thread: they lie on a stack to which this thread moves.
    pub(crate) fn take_stack(&mut self, frames: &[Frame]) {
        self.suspended.put(frames, None, |_| false);
    }
}

#[cfg(test)]
mod tests;

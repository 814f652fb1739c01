//! Nonlocal exits: the events of longjmp and of the unwinder, which tell in which frame the thread
//! will continue.
//!
//! The unwinder says so while it and the personality routine still run. They may be recorded, and
//! return before the thread continues in that frame. So the frames below it are dead only from the
//! next event on that the unwinder cannot have made: an entry, a return of a frame above them, or a
//! return on another stack whose functions had called them.
//!
//! longjmp may also lead to another stack, whose frames have not called those of this one: a
//! coroutine's, whose calls go on. The unwinder continues in a caller of all frames that it leaves.
//! With `-fsplit-stack`, callers and callees lie on pieces of a stack that are anywhere.

use super::{Frame, NEAR, OpenCalls, PairedEvent, SEARCHED, SLOT, distance_below, frame_of, is_beside};
use super::{is_call_of, place_of, slot_of};
use crate::raw::RawEvent;
use calltap_abi::event::{code, is_nonlocal};
use calltap_trace::SiteId;

/// A nonlocal exit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NonlocalExit {
    /// Time of the exit.
    pub(super) ticks: u64,
    /// The slot that the next call of the frame where it continues will have.
    slot: u64,
    /// Code of the event.
    code: u32,
}

impl OpenCalls {
    /// Notes a nonlocal exit, or ends the frames that the last one has left, if `raw` enters a
    /// function; of an exit to a stack that the thread has left again, no frame is open. Returns
    /// the number of frames that were left, and the functions of those that are open again.
    pub(super) fn pass_nonlocal_exit(&mut self, raw: RawEvent) -> Option<(u32, Vec<SiteId>)> {
        let slot = slot_of(frame_of(raw));
        match raw.code() {
            code::EXIT | code::CALL => None,
            code if is_nonlocal(code) && !self.placed => None,
            code if is_nonlocal(code) => {
                // Of several on one stack, the outermost one counts.
                let last = self.nonlocal.filter(|last| is_beside(last.slot, slot));
                let ended = if last.is_none() { self.end_or_forget(slot) } else { None };
                let is_above = |last: &NonlocalExit| distance_below(last.slot << SLOT, slot) <= NEAR;
                self.nonlocal =
                    Some(last.filter(is_above).unwrap_or(NonlocalExit { ticks: raw.ticks, slot, code }));
                self.find_floor(slot);
                ended
            }
            _ => self.end_or_forget(slot),
        }
    }

    /// Ends the frames that the last nonlocal exit has left. Forgets the exit if the thread, which
    /// is at `slot` now, has left the stack where it led.
    fn end_or_forget(&mut self, slot: u64) -> Option<(u32, Vec<SiteId>)> {
        if self.is_elsewhere(slot) {
            self.forget_nonlocal_exit();
            return None;
        }
        self.end_left_frames()
    }

    /// Pairs a return. Behind a nonlocal exit it may show that the thread has continued where that
    /// led, and that the frames below have ended.
    pub(super) fn pair_exit(&mut self, frame: Frame) -> PairedEvent {
        let has_continued = self.nonlocal.is_some_and(|exit| self.has_continued(exit.slot, frame));
        let paired = self.pair_return(frame);
        if has_continued {
            self.forget_nonlocal_exit();
        }
        paired
    }

    /// Whether the return of `frame` shows that the thread has continued at `slot`: `frame` lies
    /// above it on its stack, or has called functions on its stack from another one.
    fn has_continued(&self, slot: u64, frame: Frame) -> bool {
        if self.may_share_stack(slot, slot_of(frame)) {
            return distance_below(frame, slot) <= NEAR;
        }
        let newest_first = || self.frames[1..=self.depth].iter().rev();
        let newer = newest_first().position(|open| is_call_of(*open, frame)).unwrap_or(self.depth);
        newest_first().take(newer).any(|open| self.may_share_stack(slot, place_of(*open)))
    }

    /// Whether an entry is not on the stack on which the last nonlocal exit led, and no open frame
    /// is: the thread has left that stack since.
    fn is_elsewhere(&self, entered: u64) -> bool {
        let newest_first = self.frames[1..=self.depth].iter().rev().take(SEARCHED);
        let mut slots = newest_first.map(|frame| place_of(*frame)).chain([entered]);
        self.nonlocal.is_some_and(|exit| slots.all(|other| !self.may_share_stack(exit.slot, other)))
    }

    /// Whether two slots may lie on one stack: they are near, and no stack is known to begin
    /// between them.
    fn may_share_stack(&self, one: u64, other: u64) -> bool {
        let (lower, upper) = (one.min(other), one.max(other));
        is_beside(one, other) && self.suspended.top_below(upper).is_none_or(|top| top < lower)
    }

    /// Forgets the last nonlocal exit, and ends the suspended frames that it has left.
    fn forget_nonlocal_exit(&mut self) {
        if let Some(NonlocalExit { slot, .. }) = self.nonlocal.take() {
            self.suspended.end_below(slot);
            self.find_floor(place_of(self.frames[self.depth]));
        }
    }

    /// Ends the frames that the last nonlocal exit has left.
    fn end_left_frames(&mut self) -> Option<(u32, Vec<SiteId>)> {
        let NonlocalExit { slot, code, .. } = self.nonlocal.take()?;
        self.find_floor(place_of(self.frames[self.depth]));
        Some(self.leave_before(slot << SLOT, code))
    }

    /// Returns how many of the newest frames the unwinder has left that continues in a frame next
    /// to none: those below it on its stack, and all that these have called, on whichever stack.
    pub(super) fn left_by_unwinder(&self, slot: u64) -> usize {
        let is_left = |open: &Frame| {
            let place = place_of(*open);
            distance_below(slot << SLOT, place) <= NEAR && self.may_share_stack(slot, place)
        };
        self.frames[1..=self.depth].iter().position(is_left).map_or(0, |outermost| self.depth - outermost)
    }
}

#[cfg(test)]
mod tests;

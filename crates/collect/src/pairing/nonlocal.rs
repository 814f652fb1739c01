//! Nonlocal exits: the events of longjmp and of the unwinder, which tell in which frame the thread
//! will continue.
//!
//! The unwinder says so while it and the personality routine still run. They may be recorded, and
//! return before the thread continues in that frame. So the frames below it are dead only from the
//! next event on that the unwinder cannot have made: an entry, a return of a frame above them, or a
//! return on another stack whose functions had called them.
//!
//! longjmp may also lead to another stack, whose frames have not called those of this one: a
//! coroutine's, whose calls go on. The unwinder continues in a caller of all frames that it leaves:
//! those between the place where it runs and that caller have ended, however large they are. With
//! `-fsplit-stack`, callers and callees lie on pieces of a stack that are anywhere.

use super::{Frame, LARGEST_STACK, NEAR, OpenCalls, PairedEvent, SEARCHED, SLOT, SLOTS, distance_below};
use super::{frame_of, is_beside, is_call_of, place_of, slot_of};
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
    /// Distance from that slot down to where the unwinder runs, in units of 8 bytes; 0 where it
    /// runs on another stack, and for longjmp.
    unwound: u64,
    /// Code of the event.
    code: u32,
}

impl NonlocalExit {
    /// Returns the outermost of two exits on one stack, with the frames that both have left.
    fn joined(self, next: NonlocalExit) -> NonlocalExit {
        if distance_below(self.slot << SLOT, next.slot) <= NEAR {
            return self;
        }
        let before =
            if self.unwound > 0 { distance_below(next.slot << SLOT, self.slot) + self.unwound } else { 0 };
        NonlocalExit { unwound: next.unwound.max(before), ..next }
    }
}

/// Returns the distance on one stack from the slot of an unwinder's exit down to where it runs.
fn unwound(raw: RawEvent, slot: u64) -> u64 {
    let distance = slot.wrapping_sub(raw.parent >> 3) & (SLOTS - 1);
    if raw.code() == code::UNWINDING && distance <= LARGEST_STACK { distance } else { 0 }
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
                let exit = NonlocalExit { ticks: raw.ticks, slot, unwound: unwound(raw, slot), code };
                self.nonlocal = Some(last.map_or(exit, |last| last.joined(exit)));
                self.find_floor(slot);
                ended
            }
            _ => self.end_or_forget(slot),
        }
    }

    /// Ends the frames that the last nonlocal exit has left. Forgets the exit if the thread, which
    /// is at `slot` now, has left the stack where it led.
    fn end_or_forget(&mut self, slot: u64) -> Option<(u32, Vec<SiteId>)> {
        let unwound = self.end_unwound_frames();
        if self.is_elsewhere(slot) {
            self.forget_nonlocal_exit();
            return (unwound > 0).then_some((unwound, Vec::new()));
        }
        self.end_left_frames().map(|(left, resumed)| (unwound + left, resumed))
    }

    /// Ends the newest frames between the place where the unwinder ran and the frame where it led.
    /// Returns their number.
    fn end_unwound_frames(&mut self) -> u32 {
        let Some(NonlocalExit { slot, unwound: unwound @ 1.., .. }) = self.nonlocal else { return 0 };
        let newest_first = self.frames[1..=self.depth].iter().rev();
        let is_unwound = |open: &&Frame| distance_below(slot << SLOT, place_of(**open)) <= unwound;
        let count = newest_first.take_while(is_unwound).count();
        self.depth -= count;
        count as u32
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

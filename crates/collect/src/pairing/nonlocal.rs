//! Nonlocal exits: the events of longjmp and of the unwinder, which tell in which frame the thread
//! will continue.
//!
//! The unwinder says so while it and the personality routine still run. They may be recorded, and
//! return before the thread continues in that frame. So the frames below it are dead only from the
//! next entry on.

use super::{Frame, NEAR, OpenCalls, SLOT, distance_below, frame_of, is_beside, place_of, slot_of};
use crate::raw::RawEvent;
use calltap_abi::event::code;
use calltap_trace::SiteId;

impl OpenCalls {
    /// Notes a nonlocal exit, or ends the frames that the last one has left, if `raw` enters a
    /// function. Returns the number of frames that were left, and the functions of those that are
    /// open again.
    pub(super) fn pass_nonlocal_exit(&mut self, raw: RawEvent) -> Option<(u32, Vec<SiteId>)> {
        let slot = slot_of(frame_of(raw));
        match raw.code() {
            code::EXIT | code::CALL => None,
            code::NONLOCAL if !self.placed => None,
            code::NONLOCAL => {
                // Of several on one stack, the outermost one counts.
                let last = self.nonlocal.filter(|last| is_beside(*last, slot));
                let ended = if last.is_none() { self.end_left_frames() } else { None };
                let is_above = |last: u64| distance_below(last << SLOT, slot) <= NEAR;
                self.nonlocal = Some(last.filter(|last| is_above(*last)).unwrap_or(slot));
                self.find_floor(slot);
                ended
            }
            _ => self.end_left_frames(),
        }
    }

    /// Ends the frames that the last nonlocal exit has left.
    fn end_left_frames(&mut self) -> Option<(u32, Vec<SiteId>)> {
        let slot: Frame = self.nonlocal.take()? << SLOT;
        self.find_floor(place_of(self.frames[self.depth]));
        Some(self.leave_before(slot, code::NONLOCAL))
    }
}

#[cfg(test)]
mod tests;

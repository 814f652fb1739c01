//! The open calls of a thread, copied for a forked child: its stack is a copy of the thread's, and
//! so are the frames on it.

use super::stacks::SuspendedStacks;
use super::{OpenCalls, frame_of, is_call_of, site_of};
use crate::raw::RawEvent;
use calltap_abi::event::{code, is_nonlocal};
use calltap_trace::SiteId;

/// Depth of open calls up to which a thread's calls are copied for children.
const MAX_DEPTH: usize = 4096;

impl OpenCalls {
    /// Copies the calls for a thread with a copy of the stack. Returns `None` where it is not
    /// certain that all of them are open, or where the thread has frames on several stacks, not all
    /// of which are known.
    pub(crate) fn of_one_stack(&self) -> Option<OpenCalls> {
        let open = &self.frames[..=self.depth];
        let is_certain = self.placed && self.suspended.is_one_stack() && self.depth <= MAX_DEPTH;
        if !is_certain || open.get(1).is_some_and(|outermost| *outermost == self.doubtful) {
            return None;
        }
        let (depth, placed, doubtful) = (self.depth, self.placed, self.frames[0]);
        let mut copy = OpenCalls {
            frames: open.to_vec(),
            depth,
            placed,
            suspended: SuspendedStacks::default(),
            own: self.own,
            floor: 0,
            nonlocal: self.nonlocal,
            doubtful,
        };
        copy.find_floor(0);
        Some(copy)
    }

    /// Updates the open calls by an event, without encoding it.
    pub(crate) fn follow(&mut self, raw: RawEvent) {
        self.pass_nonlocal_exit(raw);
        if !is_nonlocal(raw.code()) {
            self.pair_event(raw.code(), frame_of(raw), raw.parent);
        }
    }

    /// Removes the innermost calls whose returns are not recorded any more: they may have ended.
    pub(crate) fn leave_unrecorded(&mut self) {
        self.depth -= self.count_unrecorded();
    }

    /// Returns the functions of the open calls, outermost first.
    pub(crate) fn sites(&self) -> Vec<SiteId> {
        self.frames[1..=self.depth].iter().map(|frame| site_of(*frame)).collect()
    }

    /// Whether the first event of a thread shows that it is on the stack of these calls: it returns
    /// from one of them, or enters a function next to one.
    pub(crate) fn is_stack_of(&self, first: RawEvent) -> bool {
        let frame = frame_of(first);
        match first.code() {
            code::EXIT => self.frames[1..=self.depth].iter().any(|open| is_call_of(*open, frame)),
            code::CALL => true,
            code => self.next_to(frame, code).is_some(),
        }
    }
}

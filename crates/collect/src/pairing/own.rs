//! The stack with which a thread began, and coroutines that have left theirs for it.
//!
//! A function entered on another stack than that of the newest frame is taken for a call of that
//! frame: it may resume a coroutine, or a signal may have interrupted it. Two facts refute that:
//!
//! - The entry is on the thread's own stack. The frames on other stacks are suspended, as nothing
//!   but the end of a signal handler or of a coroutine leads there.
//! - The newest frame is on another stack than the thread's own, and of a function that *yields*:
//!   it was the innermost one of a stack when the thread left that stack for an outer one.

use super::{Frame, LARGEST_STACK, OpenCalls, SLOTS, place_of, site_of, slot_of};
use calltap_abi::event::code;
use calltap_trace::SiteId;
use std::collections::HashSet;

/// The thread's own stack.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnStack {
    /// The slot above all of its frames.
    top: u64,
    /// Its length, in units of 8 bytes; 0 if the stack is not known.
    length: u64,
    /// Functions that yield.
    yields: HashSet<SiteId>,
}

impl OwnStack {
    fn is_known(&self) -> bool {
        self.length > 0
    }

    /// Whether the stack has this slot.
    fn has(&self, slot: u64) -> bool {
        (self.top.wrapping_sub(slot) & (SLOTS - 1)) < self.length
    }

    /// Whether it is known that a slot is on another stack.
    fn lacks(&self, slot: u64) -> bool {
        self.is_known() && !self.has(slot)
    }

    /// Returns the stack without the functions that yield: those of another thread of a program,
    /// which is what the stack of a forked child is copied from.
    pub(super) fn copied(&self) -> OwnStack {
        OwnStack { yields: HashSet::new(), ..*self }
    }

    /// Returns the first slot above the stack, if `slot` lies higher.
    pub(super) fn below(&self, slot: u64) -> Option<u64> {
        (self.lacks(slot) && self.top < slot).then_some(self.top)
    }
}

impl OpenCalls {
    /// Sets the thread's own stack: the address above all of its frames, and its length in bytes.
    /// A length of 0 means as long as stacks are at most.
    pub(crate) fn set_own_stack(&mut self, top: u64, length: u64) {
        let length = if length == 0 { LARGEST_STACK } else { length >> 3 };
        self.own = OwnStack { top: (top >> 3) & (SLOTS - 1), length, yields: HashSet::new() };
        self.find_floor(place_of(self.frames[self.depth]));
    }

    /// Whether the thread's own stack is known.
    pub(crate) fn has_own_stack(&self) -> bool {
        self.own.is_known()
    }

    /// Whether an event is on the thread's own stack.
    pub(crate) fn is_on_own_stack(&self, slot: u64) -> bool {
        self.own.has(slot)
    }

    /// Suspends the stacks of coroutines whose newest frame does not call an entered function, and
    /// those that a nonlocal exit has left. Returns the number of their frames.
    pub(super) fn leave_coroutines(&mut self, frame: Frame, code: u32) -> usize {
        let (before, goes_back) = (self.depth, self.own.has(slot_of(frame)));
        let leads_out = code == code::NONLOCAL;
        while self.depth > 0 {
            let newest = self.frames[self.depth];
            let is_elsewhere = self.own.lacks(place_of(newest));
            let is_beside = || self.next_to(frame, code).is_some() || self.below_all(frame, code) > 0;
            let leaves = match () {
                // The newest stack is where longjmp was called, whichever stack it is.
                () if leads_out && !self.own.is_known() => before == self.depth && !is_beside(),
                () if !is_elsewhere => false,
                () if goes_back => true,
                () => (leads_out || self.own.yields.contains(&site_of(newest))) && !is_beside(),
            };
            if !leaves {
                break;
            }
            // A nonlocal exit leads out of a function that does not yield by that.
            if goes_back && !leads_out {
                self.own.yields.insert(site_of(newest));
            }
            let stack = self.suspended.newest_stack(&self.frames[1..=self.depth]);
            self.suspend_frames(stack, None);
        }
        before - self.depth
    }

    /// Learns which function yields from the newest frames, which are left for outer ones.
    pub(super) fn learn_yield(&mut self, left: usize) {
        let open = &self.frames[1..=self.depth];
        let Some(newest) = open.last().copied().filter(|newest| self.own.lacks(place_of(*newest))) else {
            return;
        };
        let stack = self.suspended.newest_stack(open);
        if stack < open.len() && stack <= left {
            self.own.yields.insert(site_of(newest));
        }
    }
}

#[cfg(test)]
mod tests;

//! Which open frames an entry shows to have ended, or to lie on another stack.

use super::{CLOSE, Frame, LARGEST_STACK, NEAR, OpenCalls, SEARCHED, distance_below, is_beside, is_tail};
use super::{SLOTS, place_of, slot_of};
use calltap_abi::event::{code, is_nonlocal};

/// Returns the least distance of an entry below the frame that calls it. A nested call leaves all
/// frames that share its slot open.
fn nearest(code: u32) -> u64 {
    u64::from(code != code::NESTED_ENTRY)
}

impl OpenCalls {
    /// Returns how many of the newest frames an entry proves dead.
    pub(super) fn left_by(&self, frame: Frame, code: u32) -> usize {
        if self.is_called_by_newest(frame, code) {
            return 0;
        }
        let near = self.next_to(frame, code).unwrap_or_else(|| self.below_all(frame, code));
        near.max(self.ended_on_own(frame, code))
    }

    /// Whether the newest frame calls an entered function, as [`OpenCalls::pair_graph`] decides it
    /// with one comparison.
    pub(super) fn is_called_by_newest(&self, frame: Frame, code: u32) -> bool {
        let distance = distance_below(self.frames[self.depth], slot_of(frame));
        let is_shared = is_tail(code) && distance == 0;
        let is_next = (nearest(code)..=NEAR).contains(&distance);
        self.depth > 0 && (is_shared || is_next) && slot_of(frame) > self.floor
    }

    /// Returns how many frames are newer than the frame that an entry is next to; `None` if it is
    /// next to none.
    pub(super) fn next_to(&self, frame: Frame, code: u32) -> Option<usize> {
        let searched = self.searched(frame, code);
        let newest_first = || self.frames[1..=self.depth].iter().rev().take(searched);
        // A jump leaves the frame that jumped at the same slot.
        let is_shared = |open: &Frame| distance_below(*open, slot_of(frame)) == 0;
        let shared = || if is_tail(code) { newest_first().position(is_shared) } else { None };
        let distance = |open: &Frame| distance_below(*open, slot_of(frame));
        let mut near = newest_first()
            .map(distance)
            .enumerate()
            .filter(|(_, above)| (nearest(code)..=NEAR).contains(above));
        // On one stack, the newest frame is the nearest. Frames of other stacks may lie in between.
        let is_one_stack = self.is_on_one_stack();
        let next_to = || if is_one_stack { near.next() } else { near.min_by_key(|(_, above)| *above) };
        shared().or_else(|| next_to().map(|(back, _)| back))
    }

    /// Returns how many of the newest frames to search at an entry: all if it ends more than are
    /// searched usually. On one stack, frames lie the higher the older they are. A nonlocal exit
    /// may lead from another stack into the middle of many frames.
    fn searched(&self, frame: Frame, code: u32) -> usize {
        if is_nonlocal(code) {
            return usize::MAX;
        }
        let distance = |back: usize| slot_of(frame).wrapping_sub(place_of(self.frames[self.depth - back]));
        let is_below = |back: usize| distance(back) & (SLOTS - 1) <= LARGEST_STACK;
        if self.depth <= SEARCHED || !is_below(0) || !is_below(SEARCHED) {
            return SEARCHED;
        }
        let (mut below, mut other) = (SEARCHED, 2 * SEARCHED);
        while other < self.depth && is_below(other) {
            (below, other) = (other, 2 * other);
        }
        other = other.min(self.depth);
        while other - below > 1 {
            let middle = below.midpoint(other);
            if is_below(middle) { below = middle } else { other = middle }
        }
        // The frames on both sides, of which the outer one may be missing.
        let is_near = |back: usize| {
            back < self.depth && is_beside(slot_of(frame), place_of(self.frames[self.depth - back]))
        };
        if is_near(below) || is_near(other) { usize::MAX } else { SEARCHED }
    }

    /// Returns how many of the newest frames lie below an entry that is next to none.
    pub(super) fn below_all(&self, frame: Frame, code: u32) -> usize {
        let open = &self.frames[1..=self.depth];
        let searched = self.searched(frame, code);
        let newest_first = || open.iter().rev().take(searched);
        // Frames of the newest stack below the entry are dead, unless the entry is on another
        // stack.
        let stack = newest_first()
            .zip(newest_first().skip(1))
            .take_while(|(inner, outer)| distance_below(**outer, slot_of(**inner)) <= NEAR);
        let count = open.len().min(1 + stack.count());
        let outermost = open.len().checked_sub(count).and_then(|at| open.get(at));
        let is_above = |outermost: &Frame| {
            // No frame of a stack lies above the stack's beginning, and no two in one slot.
            let above = distance_below(frame, slot_of(*outermost));
            above == 0 || above <= CLOSE && !self.suspended.is_top(slot_of(*outermost))
        };
        if outermost.is_some_and(is_above) { count } else { 0 }
    }
}

#[cfg(test)]
mod tests;

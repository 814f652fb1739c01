//! The stack with which a thread began.
//!
//! A function entered on another stack than that of the newest frame is taken for a call of that
//! frame: it may resume a coroutine, or a signal may have interrupted it. That is refuted if the
//! entry is on the thread's own stack while the newest frame is not: a coroutine has yielded, or a
//! handler has been left. The frames between are suspended, whether or not a frame of the own stack
//! is open.
//!
//! Coroutines that call functions on the thread's own stack, as OCaml 5 does for functions of C,
//! look the same. Their frames count as left, too, and open again when they go on.

use super::{CLOSE, Frame, LARGEST_STACK, OpenCalls, SLOTS, distance_below, is_tail, place_of, slot_of};
use calltap_abi::event::code;

/// The thread's own stack, in units of 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnStack {
    /// The slot above all of its frames.
    top: u64,
    /// Length of the part that is certainly its; 0 if the stack is not known.
    certain: u64,
    /// Maximum length of the stack.
    longest: u64,
    /// Whether the length matters, and has not been asked for.
    asks: bool,
    asked: bool,
}

/// Largest stack of a goroutine, in units of 8 bytes: 1 GiB.
const LARGEST_OF_GOROUTINE: u64 = 1 << 30 >> 3;

impl OwnStack {
    /// The only stack, with slots counted from its beginning.
    pub(super) const ONLY: OwnStack = OwnStack {
        top: 0,
        certain: LARGEST_OF_GOROUTINE,
        longest: LARGEST_OF_GOROUTINE,
        asks: false,
        asked: true,
    };

    fn distance(&self, slot: u64) -> u64 {
        self.top.wrapping_sub(slot) & (SLOTS - 1)
    }

    /// Whether the stack certainly has this slot.
    pub(super) fn has(&self, slot: u64) -> bool {
        self.distance(slot) < self.certain
    }

    /// Whether a frame has ended, as it lies on this stack, and the thread is at `at`, not below
    /// it.
    pub(super) fn is_ended(&self, place: u64, at: u64) -> bool {
        self.has(place) && self.distance(place) >= self.distance(at)
    }

    /// Whether a slot is certainly on another stack.
    fn lacks(&self, slot: u64) -> bool {
        self.certain > 0 && self.distance(slot) >= self.longest
    }

    /// Returns the first slot above the stack, if `slot` lies higher.
    pub(super) fn below(&self, slot: u64) -> Option<u64> {
        (self.lacks(slot) && self.top < slot).then_some(self.top)
    }
}

impl OpenCalls {
    /// Sets the thread's own stack: the address above all of its frames, and the length in bytes of
    /// the part that is certainly its; 0 for the longest possible.
    pub(crate) fn set_own_stack(&mut self, top: u64, certain: u64) {
        let certain = if certain == 0 { LARGEST_STACK } else { certain >> 3 };
        let asked = certain == LARGEST_STACK;
        let top = (top >> 3) & (SLOTS - 1);
        self.own = OwnStack { top, certain, longest: LARGEST_STACK, asks: false, asked };
        self.find_floor(place_of(self.frames[self.depth]));
    }

    /// Asks for the length of the thread's own stack, unless it is known.
    pub(crate) fn ask_own_length(&mut self) {
        self.own.asks = self.own.certain > 0 && !self.own.asked;
    }

    /// Whether the length of the thread's own stack is asked for.
    pub(crate) fn asks_own_length(&self) -> bool {
        self.own.asks
    }

    /// Sets the length of the thread's own stack in bytes, if it is known.
    pub(crate) fn set_own_length(&mut self, length: Option<u64>) {
        (self.own.asks, self.own.asked) = (false, true);
        let longest = length.map_or(LARGEST_STACK, |length| length >> 3);
        self.own.longest = longest.clamp(self.own.certain, LARGEST_STACK);
        self.find_floor(place_of(self.frames[self.depth]));
    }

    /// Whether an event is on the thread's own stack.
    pub(crate) fn is_on_own_stack(&self, slot: u64) -> bool {
        self.own.has(slot & (SLOTS - 1))
    }

    /// Returns how many of the newest frames have ended for certain, as the thread's own stack has
    /// them and an entry above them.
    pub(super) fn ended_on_own(&self, frame: Frame, code: u32) -> usize {
        let at = slot_of(frame);
        if !self.own.has(at) {
            return 0;
        }
        let shares = is_tail(code) || code == code::NESTED_ENTRY;
        let newest_first = self.frames[1..=self.depth].iter().rev().map(|open| place_of(*open));
        newest_first.take_while(|place| self.own.is_ended(*place, at) && !(shares && *place == at)).count()
    }

    /// Removes the newest frames at or below a returning frame on its stack: they count as calls of
    /// frames of another one. Returns their number.
    pub(super) fn end_below(&mut self, frame: Frame) -> usize {
        let slot = slot_of(frame);
        let is_below = |open: &&Frame| {
            let place = place_of(**open);
            let is_other = self.suspended.top_below(slot).is_some_and(|top| place <= top);
            distance_below(frame, place) <= CLOSE && !is_other && !self.own.has(place)
        };
        let ended = self.frames[1..=self.depth].iter().rev().take_while(is_below).count();
        self.depth -= ended;
        ended
    }

    /// Suspends the stacks on which the thread is not any more: those of coroutines and handlers if
    /// it is back on its own, and the one on which longjmp was called if the nonlocal exit leads to
    /// another one. Returns the number of their frames.
    pub(super) fn leave_other_stacks(&mut self, frame: Frame, code: u32) -> usize {
        let (before, goes_back) = (self.depth, self.own.has(slot_of(frame)));
        while self.depth > 0 {
            let open = &self.frames[1..=self.depth];
            // Frames of the own stack may be near those of another, on the next mapping.
            let elsewhere = open.iter().rev().take_while(|open| self.own.lacks(place_of(**open))).count();
            let leads_away = || {
                code == code::NONLOCAL
                    && before == self.depth
                    && self.next_to(frame, code).is_none()
                    && self.below_all(frame, code) == 0
            };
            if !(goes_back && elsewhere > 0 || leads_away()) {
                let is_unknown = goes_back && !self.own.has(place_of(self.frames[self.depth]));
                self.own.asks |= is_unknown && !self.own.asked;
                break;
            }
            let stack = self.suspended.newest_stack(open);
            let count = if elsewhere > 0 { stack.min(elsewhere) } else { stack };
            self.suspend_frames(count, None, Some(slot_of(frame)));
        }
        before - self.depth
    }
}

#[cfg(test)]
mod tests;

//! Stacks that a thread has left for others, with frames that continue when the thread returns to
//! them.
//!
//! No event tells that a thread switches to another stack. Only the slots of frames are known, and
//! what follows from them:
//!
//! - Frames that are left while the thread is on a stack far away lie on a stack of their own. It
//!   *begins* at the slot of its outermost frame: a function entered below that slot, and not below
//!   a nearer frame, is entered on it. Its true outermost frames may have begun when recording
//!   began: a function entered up to 1 KiB above moves the beginning there.
//! - Frames that are left while the thread is near them, as where an exception was caught, may lie
//!   on a stack next to its own, or have ended. They count as ended until one of them returns. The
//!   same holds for frames on the stack with which the thread began, however far below the thread
//!   they lie: an alternate stack for signals may be part of that stack.
//!
//! So where stacks lie next to each other, as when a program allocates small ones in its heap, the
//! first entry on each counts as a call on the stack that was seen last. The first return on a
//! stack corrects that.

use super::{CLOSE, Frame, NEAR, NonlocalExit, SLOT, TAIL, distance_below, place_of, site_of, slot_of};
use calltap_abi::PAGE;
use calltap_trace::{Event, EventKind, SiteId, ThreadEncoder};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Maximum number of stacks that are remembered.
const MAX_STACKS: usize = 1 << 16;
/// Least distance between the beginnings of two stacks, in units of 8 bytes: 1 KiB.
const MIN_STACK_SIZE: u64 = 1 << 10 >> 3;
/// Number of stacks, beginning above a frame, in which the frame that returns is looked for.
const SEARCHED: usize = 64;

/// Whether a frame at `place` may lie on the stack of one at `above`.
fn is_near(above: u64, place: u64) -> bool {
    distance_below(above << SLOT, place) <= NEAR
}

/// Frames of the stacks that the thread is not on.
#[derive(Clone, Debug, Default)]
pub(super) struct SuspendedStacks {
    /// Frames of each stack, outermost first, by the slot of the outermost frame.
    stacks: BTreeMap<u64, Vec<Frame>>,
    /// Slots at which stacks are known to begin.
    tops: BTreeSet<u64>,
}

impl SuspendedStacks {
    /// Whether no frames are suspended.
    pub(super) fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Whether no other stack is known.
    #[inline(always)]
    pub(super) fn is_one_stack(&self) -> bool {
        self.tops.is_empty()
    }

    /// Forgets which frames continue, and keeps where stacks begin.
    pub(super) fn forget_frames(&mut self) {
        self.stacks.clear();
    }

    /// Whether a stack begins at `slot`.
    pub(super) fn is_top(&self, slot: u64) -> bool {
        self.tops.contains(&slot)
    }

    /// Returns the highest beginning of a stack below a slot.
    pub(super) fn top_below(&self, slot: u64) -> Option<u64> {
        self.tops.range(..slot).next_back().copied()
    }

    /// Returns where the stack begins on which an entry lies, if it is another stack than that of
    /// `anchor`, the frame that the entry would be next to.
    pub(super) fn stack_of(&self, slot: u64, anchor: Option<u64>) -> Option<u64> {
        let top = *self.tops.range(slot..).next()?;
        let innermost = self.stacks.get(&top).and_then(|frames| {
            let places = frames.iter().map(|frame| place_of(*frame));
            places.filter(|place| *place >= slot).min()
        });
        let is_near = innermost.map_or(top - slot <= NEAR, |innermost| {
            // The first functions of coroutines are entered at the same place of each stack.
            let begins = (top - slot).is_multiple_of(PAGE >> 3);
            let distance = innermost - slot;
            distance <= CLOSE || distance <= NEAR && !begins && top - slot < self.extent(top)
        });
        let is_nearer = anchor.is_none_or(|anchor| anchor < slot || anchor > top);
        (is_near && is_nearer).then_some(top)
    }

    /// Returns how far the stack that begins at `top` extends, as far as is known: stacks that lie
    /// next to each other are mostly of one size. 0 if no other stack is known.
    fn extent(&self, top: u64) -> u64 {
        let above = self.tops.range(top + 1..).next().map(|above| above - top);
        let below = self.top_below(top).map(|below| top - below);
        above.into_iter().chain(below).min().map_or(0, |gap| gap - gap / 8)
    }

    /// Removes and returns the frames of the stack that begins at `top`, without those that an
    /// entry at `slot` shows to have ended. `shares`: the entry shares the slot of an open frame.
    pub(super) fn take(&mut self, top: u64, slot: u64, shares: bool) -> Vec<Frame> {
        let mut frames = self.stacks.remove(&top).unwrap_or_default();
        frames.retain(|frame| place_of(*frame) > slot || shares && place_of(*frame) == slot);
        frames
    }

    /// Removes the frames at and below a slot from the suspended stack on which it lies.
    pub(super) fn end_below(&mut self, slot: u64) {
        let Some(top) = self.stack_of(slot, None) else { return };
        let frames = self.take(top, slot, false);
        if !frames.is_empty() {
            self.stacks.insert(top, frames);
        }
    }

    /// Removes and returns the frames of a stack up to `frame`, which returns.
    pub(super) fn take_with(&mut self, frame: Frame) -> Option<Vec<Frame>> {
        let is_it = |open: &Frame| *open & !TAIL == frame;
        let stacks = self.stacks.range(slot_of(frame)..).take(SEARCHED);
        let mut found =
            stacks.filter_map(|(top, frames)| Some((*top, frames.iter().rposition(is_it)?))).peekable();
        // Frames that a nonlocal exit has left have probably ended, those of a coroutine go on.
        let first = found.peek().copied();
        let (top, at) = found.find(|(top, _)| self.is_top(*top)).or(first)?;
        let mut frames = self.stacks.remove(&top)?;
        // The return also ends the frames that were entered by a jump and share its slot.
        let tails = frames[at + 1..].iter().take_while(|open| **open & TAIL != 0).count();
        let others = frames.split_off(at + 1 + tails);
        self.begin(top);
        self.put_stack(others, true);
        Some(frames)
    }

    /// Returns the frames of the stacks that begin not far above a slot.
    pub(super) fn near(&self, slot: u64) -> impl Iterator<Item = &Frame> {
        self.stacks.range(slot..).take(SEARCHED).flat_map(|(_, frames)| frames)
    }

    /// Removes and returns the frames of the stack that has a frame at `place`, for another thread.
    pub(super) fn give(&mut self, place: u64) -> Option<Vec<Frame>> {
        let has = |frames: &[Frame]| frames.iter().any(|frame| place_of(*frame) == place);
        let stacks = self.stacks.range(place..).take(SEARCHED);
        let top = stacks.filter(|(_, frames)| has(frames)).map(|(top, _)| *top).next()?;
        self.stacks.remove(&top)
    }

    /// Takes the stacks of a thread that has ended, except pieces whose stacks are not known to
    /// begin there, as these have probably ended, and those that `is_own` to the thread.
    pub(super) fn inherit(&mut self, ended: SuspendedStacks, is_own: impl Fn(u64) -> bool) {
        let SuspendedStacks { stacks, tops } = ended;
        for (top, frames) in stacks {
            if tops.contains(&top) && !is_own(top) {
                self.put_stack(frames, false);
            }
        }
        self.bound();
    }

    /// Remembers frames that the thread has left, outermost first. `anchor`: the slot of the next
    /// outer frame, if the thread is on its stack. `have_ended`: whether the frames from a slot on
    /// lie on a known stack, below where the thread is.
    pub(super) fn put(&mut self, frames: &[Frame], anchor: Option<u64>, have_ended: impl Fn(u64) -> bool) {
        let (mut above, mut own) = (anchor, anchor.is_some());
        let mut stack: Vec<Frame> = Vec::new();
        for frame in frames {
            let place = place_of(*frame);
            let goes_on = above.is_some_and(|above| is_near(above, place)) && !self.is_top(place);
            if !goes_on {
                self.put_stack(std::mem::take(&mut stack), own);
                own = have_ended(place);
            }
            stack.push(*frame);
            above = Some(place);
        }
        self.put_stack(stack, own);
        self.bound();
    }

    /// Forgets stacks if too many are remembered.
    fn bound(&mut self) {
        if self.stacks.len() > MAX_STACKS {
            let SuspendedStacks { stacks, tops } = self;
            stacks.retain(|top, _| tops.contains(top));
        }
        if self.stacks.len() > MAX_STACKS || self.tops.len() > MAX_STACKS {
            *self = SuspendedStacks::default();
        }
    }

    /// Returns how many of these frames, outermost first, are on the stack of the innermost.
    pub(super) fn newest_stack(&self, frames: &[Frame]) -> usize {
        let newest_first = || frames.iter().rev();
        let is_one = |(inner, outer): &(&Frame, &Frame)| self.are_on_one_stack(**outer, **inner);
        frames.len().min(1 + newest_first().zip(newest_first().skip(1)).take_while(is_one).count())
    }

    /// Returns how many of these frames, outermost first, are on the stack of the outermost.
    pub(super) fn outermost_stack(&self, frames: &[Frame]) -> usize {
        let is_one = |(outer, inner): &(&Frame, &Frame)| self.are_on_one_stack(**outer, **inner);
        frames.len().min(1 + frames.iter().zip(frames.iter().skip(1)).take_while(is_one).count())
    }

    /// Whether two open frames, one directly inside the other, may be on one stack.
    fn are_on_one_stack(&self, outer: Frame, inner: Frame) -> bool {
        let place = place_of(inner);
        !self.is_top(place) && is_near(place_of(outer), place)
    }

    /// Forgets the calls of functions whose returns are not recorded any more.
    pub(super) fn forget(&mut self, functions: &HashSet<SiteId>) {
        self.stacks
            .values_mut()
            .for_each(|frames| frames.retain(|frame| !functions.contains(&site_of(*frame))));
        self.stacks.retain(|_, frames| !frames.is_empty());
    }

    /// Keeps the frames of one stack. `own`: they lie near the stack that the thread is on.
    fn put_stack(&mut self, frames: Vec<Frame>, own: bool) {
        let Some(outermost) = frames.first().map(|outermost| place_of(*outermost)) else { return };
        let top = if own { outermost } else { self.begin(outermost) };
        // Frames that were left in the middle of this stack have ended: these lie over them.
        let innermost = frames.last().map_or(outermost, |innermost| place_of(*innermost)).min(outermost);
        let within = self.stacks.range(innermost..outermost).map(|(left, _)| *left);
        let ended: Vec<u64> = within.filter(|left| !self.is_top(*left)).collect();
        ended.iter().for_each(|left| drop(self.stacks.remove(left)));
        self.stacks.insert(top, frames);
    }

    /// Notes that a function was entered at `slot`, by a caller that had begun when recording
    /// began. A stack that was taken to begin directly below has further frames above, unless some
    /// of its frames are suspended: the thread would have entered it.
    pub(super) fn raise_top(&mut self, slot: u64) {
        let directly_below = |top: &u64| slot - top < MIN_STACK_SIZE && !self.stacks.contains_key(top);
        if self.top_below(slot).filter(directly_below).is_some() {
            self.begin(slot);
        }
    }

    /// Returns where the stack begins in whose first bytes a slot lies: frames between the two had
    /// begun when recording began.
    fn top_directly_above(&self, slot: u64) -> Option<u64> {
        self.tops.range(slot..).next().copied().filter(|top| top - slot < MIN_STACK_SIZE)
    }

    /// Notes that a stack begins at `top`, unless that lies in the first bytes of a known stack; a
    /// stack that began in its first bytes is gone. Returns where the stack begins.
    fn begin(&mut self, top: u64) -> u64 {
        if let Some(above) = self.top_directly_above(top) {
            return above;
        }
        while let Some(former) = self.top_below(top).filter(|former| top - former < MIN_STACK_SIZE) {
            self.tops.remove(&former);
        }
        self.tops.insert(top);
        top
    }
}

/// Encodes that frames were left, and others opened again. The former were open until `exit`, the
/// nonlocal exit that has left them, or for certain only until the thread's last event.
pub(crate) fn push_switch(
    ticks: u64,
    exit: Option<NonlocalExit>,
    left: u32,
    resumed: Vec<SiteId>,
    encoder: &mut ThreadEncoder,
) {
    if left > 0 {
        let until = exit.map_or(0, |exit| exit.ticks).max(encoder.last_ticks()).min(ticks);
        encoder.push(Event { ticks: until, site: SiteId(0), kind: EventKind::Left { pops: left } });
    }
    for site in resumed {
        encoder.push(Event { ticks, site, kind: EventKind::Resumed });
    }
}

#[cfg(test)]
mod tests {
    use crate::pairing::{FAR, OpenCalls, PairedEvent, SLOT, UNRECORDED};
    use calltap_abi::event::code;

    /// Frames of a suspended stack open again as they were, unrecorded frames too.
    #[test]
    fn unrecorded_frames_are_at_most_the_open_ones() {
        let mut open = OpenCalls::new(true);
        open.open((0x1234 << SLOT | 7) ^ (UNRECORDED | FAR));
        assert_eq!((open.depth, open.count_unrecorded()), (1, 1));
        let PairedEvent { left, .. } = open.pair_event(code::ENTRY, 0x1230 << SLOT | 8, 0);
        assert_eq!((open.depth, left), (1, 1));
    }
}

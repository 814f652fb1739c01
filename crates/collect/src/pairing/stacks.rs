//! Stacks that a thread has left for others, with frames that go on when it comes back.
//!
//! Nothing tells that a thread switches to another stack. What is known are places of frames, and what follows from them:
//!
//! - frames that are left while the thread is on a stack far away lie on one of their own. Where its outermost frame lies, the stack *begins*: what is entered below
//!   that place, and not below a frame that lies nearer, is entered there;
//! - frames that are left while the thread is near them, as where an exception was caught, may lie on a stack next to its own, or be over. They are taken
//!   to be over until one of them returns.
//!
//! So where stacks lie next to each other, as when a program allocates small ones in its heap, what is entered first on each is taken for a call on the
//! stack that was seen last. From the first return on it is known.

use super::{Frame, NEAR, SLOT, TAIL, below, place_of, site_of, slot_of};
use calltap_trace::SiteId;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// More stacks than these are not remembered.
const MOST: usize = 1 << 16;
/// Two stacks do not begin closer to each other, in units of 8 bytes: 1 KiB.
const SMALLEST: u64 = 1 << 10 >> 3;
/// Where a frame that returns is looked for: in so many of the stacks that begin above it.
const SEARCHED: usize = 64;

/// May a frame lie on the stack of one above it?
fn is_near(above: u64, place: u64) -> bool {
    below(above << SLOT, place) <= NEAR
}

/// Frames of stacks that the thread is not on.
#[derive(Clone, Debug, Default)]
pub(super) struct Aside {
    /// By the slot of the outermost frame; the frames, outermost first.
    stacks: BTreeMap<u64, Vec<Frame>>,
    /// Where stacks are known to begin.
    tops: BTreeSet<u64>,
}

impl Aside {
    /// Is no other stack known?
    #[inline(always)]
    pub(super) fn is_one_stack(&self) -> bool {
        self.tops.is_empty()
    }

    /// Which frames go on is not known any more, only where stacks begin.
    pub(super) fn forget_frames(&mut self) {
        self.stacks.clear();
    }

    /// Does a stack begin there?
    pub(super) fn is_top(&self, slot: u64) -> bool {
        self.tops.contains(&slot)
    }

    /// The highest beginning of a stack below a slot.
    pub(super) fn top_below(&self, slot: u64) -> Option<u64> {
        self.tops.range(..slot).next_back().copied()
    }

    /// Where the stack begins that an entry lies on, if that is another one than that of `anchor`, the frame that it would be next to.
    pub(super) fn stack_of(&self, slot: u64, anchor: Option<u64>) -> Option<u64> {
        let top = *self.tops.range(slot..).next()?;
        let innermost = self.stacks.get(&top).and_then(|frames| {
            let places = frames.iter().map(|frame| place_of(*frame));
            places.filter(|place| *place >= slot).min()
        });
        let is_near = innermost.unwrap_or(top) - slot <= NEAR;
        let is_nearer = anchor.is_none_or(|anchor| anchor < slot || anchor > top);
        (is_near && is_nearer).then_some(top)
    }

    /// The frames of the stack that begins there, as far as an entry at a slot does not show that they are over. `shares`: it is entered in a frame of that slot.
    pub(super) fn take(&mut self, top: u64, slot: u64, shares: bool) -> Vec<Frame> {
        let mut frames = self.stacks.remove(&top).unwrap_or_default();
        frames.retain(|frame| place_of(*frame) > slot || shares && place_of(*frame) == slot);
        frames
    }

    /// The frames of a stack up to one that returns.
    pub(super) fn take_with(&mut self, frame: Frame) -> Option<Vec<Frame>> {
        let is_it = |open: &Frame| *open & !TAIL == frame;
        let stacks = self.stacks.range(slot_of(frame)..).take(SEARCHED);
        let (top, at) =
            stacks.filter_map(|(top, frames)| Some((*top, frames.iter().rposition(is_it)?))).next()?;
        let mut frames = self.stacks.remove(&top)?;
        // It ends with those that were entered by a jump and share its frame.
        let tails = frames[at + 1..].iter().take_while(|open| **open & TAIL != 0).count();
        let others = frames.split_off(at + 1 + tails);
        self.begin(top);
        self.keep(others);
        Some(frames)
    }

    /// Frames of the stacks that begin not far above a slot.
    pub(super) fn near(&self, slot: u64) -> impl Iterator<Item = &Frame> {
        self.stacks.range(slot..).take(SEARCHED).flat_map(|(_, frames)| frames)
    }

    /// The frames of the stack that has one at a place: the thread has none of them any more.
    pub(super) fn give(&mut self, place: u64) -> Option<Vec<Frame>> {
        let has = |frames: &[Frame]| frames.iter().any(|frame| place_of(*frame) == place);
        let stacks = self.stacks.range(place..).take(SEARCHED);
        let top = stacks.filter(|(_, frames)| has(frames)).map(|(top, _)| *top).next()?;
        self.stacks.remove(&top)
    }

    /// Remembers frames that the thread is not in any more, outermost first. `anchor`: the slot of the frame below them, if the thread is on its stack.
    pub(super) fn put(&mut self, frames: &[Frame], anchor: Option<u64>) {
        let (mut above, mut own) = (anchor, anchor.is_some());
        let mut stack: Vec<Frame> = Vec::new();
        for frame in frames {
            let place = place_of(*frame);
            let goes_on = above.is_some_and(|above| is_near(above, place)) && !self.is_top(place);
            if !goes_on {
                self.put_stack(std::mem::take(&mut stack), own);
                own = false;
            }
            stack.push(*frame);
            above = Some(place);
        }
        self.put_stack(stack, own);
        if self.stacks.len() > MOST {
            let Aside { stacks, tops } = self;
            stacks.retain(|top, _| tops.contains(top));
        }
        if self.stacks.len() > MOST || self.tops.len() > MOST {
            *self = Aside::default();
        }
    }

    /// How many of these frames, outermost first, are on the stack of the innermost.
    pub(super) fn newest_stack(&self, frames: &[Frame]) -> usize {
        let newest_first = || frames.iter().rev();
        let goes_on = |(inner, outer): &(&Frame, &Frame)| {
            let place = place_of(**inner);
            !self.is_top(place) && is_near(place_of(**outer), place)
        };
        frames.len().min(1 + newest_first().zip(newest_first().skip(1)).take_while(goes_on).count())
    }

    /// Calls of these functions do not record their return any more.
    pub(super) fn forget(&mut self, functions: &HashSet<SiteId>) {
        self.stacks
            .values_mut()
            .for_each(|frames| frames.retain(|frame| !functions.contains(&site_of(*frame))));
        self.stacks.retain(|_, frames| !frames.is_empty());
    }

    /// `own`: they lie near the stack that the thread is on.
    fn put_stack(&mut self, frames: Vec<Frame>, own: bool) {
        if let Some(outermost) = frames.first().filter(|_| !own) {
            self.begin(place_of(*outermost));
        }
        self.keep(frames);
    }

    fn keep(&mut self, frames: Vec<Frame>) {
        if let Some(outermost) = frames.first() {
            self.stacks.insert(place_of(*outermost), frames);
        }
    }

    /// A stack begins there; what began in its first bytes does not any more.
    fn begin(&mut self, top: u64) {
        while let Some(former) = self.top_below(top).filter(|former| top - former < SMALLEST) {
            self.tops.remove(&former);
        }
        self.tops.insert(top);
    }
}

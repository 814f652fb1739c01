//! From the words of a thread to events that say which calls end: the place where frames are proven dead.
//!
//! Every event of a call that returns tells where its return address lies, its *slot*. Stacks grow down, so the slots of
//! open frames on one stack strictly decrease, and a frame is dead as soon as
//!
//! - its own return is recorded, or the return of a frame below it;
//! - a function is entered whose slot lies at or above the frame's: longjmp or an exception has left the frame.
//!
//! A thread may use several stacks: coroutines, signal handlers. Slots that are further apart than `NEAR` are taken to lie on
//! different ones. What is entered on another stack is a call of the newest open frame, which stays open; what is entered
//! next to an older frame shows that the thread is back on that frame's stack, and the calls on the other stack are left. They
//! are kept aside (`stacks.rs`): when the thread comes back to them, their frames are open again.
//!
//! Python functions share the slot of the interpreter's frame that runs them. The first of a frame is entered like a function; one that a Python function
//! calls is *nested*: it proves only what lies below the slot dead, and a return closes the newest call of its function there.
//!
//! An event of the sparse clock has seven bits of the slot. They tell activations apart, and prove nothing at an entry.

mod copies;
mod lost;
mod moves;
mod stacks;

use crate::raw::RawEvent;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, GraphEvent, SiteId, ThreadEncoder};
use stacks::Aside;
use std::collections::{BTreeSet, HashSet};
use std::hint::select_unpredictable;

/// An open frame: its site, `TAIL`, `MUTED`, and from bit `SLOT` on its slot in units of 8 bytes, modulo 2^42.
pub type Frame = u64;
/// Set in a frame that was entered by a jump, and shares the slot of the frame that jumped.
const TAIL: Frame = 1 << 20;
/// Set in a frame whose return is not recorded any more.
const MUTED: Frame = 1 << 21;
/// Flipped in a muted frame: its slot then fits no event, so that [`OpenCalls::pair_graph`] hands each event next to it to [`OpenCalls::pair`].
const FAR: Frame = 1 << 63;
/// Where the slot begins.
const SLOT: u32 = 22;
/// Slots are compared modulo this.
const SLOTS: u64 = 1 << (64 - SLOT);
/// A sentinel in front of the outermost frame. Its slot is taken for one above any entry's, so that every first entry fits; no return equals it.
const BOTTOM: Frame = TAIL | (TAIL - 1);
/// Slots this far apart may lie on one stack, in units of 8 bytes: 256 KiB.
pub(crate) const NEAR: u64 = 256 << 10 >> 3;
/// Frames that are searched, at an entry, for the one that it is next to.
const SEARCHED: usize = 4096;
/// The codes [`OpenCalls::pair_graph`] is for.
const GRAPH: u32 = 1 << code::ENTRY | 1 << code::EXIT | 1 << code::TAIL_ENTRY | 1 << code::NESTED_ENTRY;
/// Frames that are searched there for the one that returns; where it lies deeper, [`OpenCalls::pair`] searches all.
const MANY: usize = 200;
/// Free places of `frames` that there are at least when many events are paired at once.
const ROOM: usize = 64;

/// The open calls of a thread.
#[derive(Clone, Debug)]
pub struct OpenCalls {
    /// First a [`BOTTOM`], then those that are open, the newest at `depth`.
    frames: Vec<Frame>,
    depth: usize,
    /// Events have whole slots.
    placed: bool,
    /// Those on stacks that the thread has left for others.
    aside: Aside,
    /// Entries at or below this slot are not in the place of the newest frame: another stack begins there.
    floor: u64,
    /// The outermost frame that was open when events were lost: whether what lies in it is open is not certain.
    doubtful: Frame,
}

/// What an event shows, in the order in which it is encoded.
struct Shown {
    /// So many of the newest frames are over, or on a stack that the thread has left.
    left: u32,
    /// Frames that are open again, outermost first.
    resumed: Vec<SiteId>,
    kind: EventKind,
}

/// How far a slot lies below a frame's, in units of 8 bytes; huge if it lies above.
#[inline(always)]
fn below(upper: Frame, slot: u64) -> u64 {
    // What the frame has beside its slot cannot borrow from it.
    upper.wrapping_sub(slot << SLOT) >> SLOT
}

/// The slot of a frame.
#[inline(always)]
fn slot_of(frame: Frame) -> u64 {
    frame >> SLOT
}

/// The same, also of one that is muted.
fn place_of(frame: Frame) -> u64 {
    slot_of(if frame & MUTED == 0 { frame } else { frame ^ FAR })
}

/// The frame that an event belongs to.
#[inline(always)]
pub fn frame_of(raw: RawEvent) -> Frame {
    raw.slot << SLOT | u64::from(raw.site().0)
}

/// Is an open frame the one that returns here?
fn is_call_of(open: Frame, frame: Frame) -> bool {
    open == frame || open == frame ^ (MUTED | FAR)
}

fn site_of(frame: Frame) -> SiteId {
    SiteId((frame & (TAIL - 1)) as u32)
}

/// Does an event of this code enter a function by a jump?
fn is_tail(code: u32) -> bool {
    matches!(code, code::TAIL_ENTRY | code::TAIL_ENTRY_FROM)
}

/// Is an event of this code for [`OpenCalls::pair_graph`]?
#[inline(always)]
pub fn is_graph(code: u32) -> bool {
    GRAPH >> code & 1 != 0
}

impl OpenCalls {
    /// No open calls. `placed`: events have whole slots.
    pub fn new(placed: bool) -> OpenCalls {
        let frames = vec![BOTTOM];
        OpenCalls { frames, depth: 0, placed, aside: Aside::default(), floor: 0, doubtful: BOTTOM }
    }

    /// Encodes the event, a return with its number of closed calls; in front of an entry, which frames it proves dead. True if it
    /// is a return.
    #[inline(never)]
    pub fn pair(&mut self, raw: RawEvent, values: &[u8], encoder: &mut ThreadEncoder) -> bool {
        let event = |kind| Event { ticks: raw.ticks, site: raw.site(), kind };
        let Shown { left, resumed, kind } = self.show(raw.code(), frame_of(raw), raw.parent);
        if left > 0 {
            encoder.push(event(EventKind::Left { pops: left }));
        }
        for site in resumed {
            encoder.push(Event { ticks: raw.ticks, site, kind: EventKind::Resumed });
        }
        if values.is_empty() {
            encoder.push(event(kind));
        } else {
            encoder.push_with(event(kind), values);
        }
        matches!(kind, EventKind::Exit { .. })
    }

    /// Encodes events up to the first that is not an entry or return without anything behind it, or that an event has to be put in
    /// front of. Says how many, and how many of them are returns. `event` reads one.
    #[inline(always)]
    pub fn pair_graph<T>(
        &mut self,
        words: &[T],
        event: impl Fn(&T) -> RawEvent,
        encoder: &mut ThreadEncoder,
    ) -> (usize, usize) {
        if self.aside.is_one_stack() {
            self.pair_rows::<false, T>(words, event, encoder)
        } else {
            self.pair_rows::<true, T>(words, event, encoder)
        }
    }

    /// The same; `STACKS`: the thread has more than one.
    #[inline(always)]
    fn pair_rows<const STACKS: bool, T>(
        &mut self,
        words: &[T],
        event: impl Fn(&T) -> RawEvent,
        encoder: &mut ThreadEncoder,
    ) -> (usize, usize) {
        self.make_room(ROOM);
        let floor = self.floor;
        // Without slots every entry is in its place.
        let near = if self.placed { NEAR } else { SLOTS };
        let frames = &mut *self.frames;
        // 32 bits: then a compiler sees that one more does not overflow, and one check is enough for both places.
        let (mut depth, mut exits) = (self.depth as u32, 0);
        let count = encoder.push_graph(words, |word| {
            let raw = event(word);
            let (frame, code) = (frame_of(raw), raw.code());
            if !is_graph(code) {
                return None;
            }
            let (returns, tail) = (code == code::EXIT, code == code::TAIL_ENTRY);
            let mut pops = u8::from(returns);
            frames.get(depth as usize + 1)?;
            let top = frames[depth as usize];
            // An entry lies below the top frame, one by a jump at its place, a nested one at either.
            let apart = u64::from(code == code::ENTRY);
            let far = below(top, raw.slot).wrapping_sub(apart) >= if tail { 1 } else { near };
            let far = far || STACKS && (depth == 0 || raw.slot & (SLOTS - 1) <= floor);
            // One branch for both: which of the two comes next is not for a processor to guess.
            let differs = select_unpredictable(returns, top ^ frame, u64::from(far));
            if differs != 0 {
                pops = returns.then(|| above(frame, &frames[..=depth as usize]))?? + 1;
                depth -= u32::from(pops);
            } else {
                frames[depth as usize + 1] = frame | (u64::from(tail) * TAIL); // of no effect if it returns
                depth = depth + 1 - 2 * u32::from(returns);
            }
            exits += usize::from(returns);
            Some(GraphEvent { ticks: raw.ticks, site: raw.site(), tail, pops })
        });
        self.depth = depth as usize;
        (count, exits)
    }

    /// Does the event show that calls are over which did not record their return?
    pub fn is_evidence(&self, raw: RawEvent) -> bool {
        let frame = frame_of(raw);
        match raw.code() {
            code::EXIT => self.frames[self.depth] != frame,
            code::CALL => false,
            code => self.placed && self.left_by(frame, code) > 0,
        }
    }

    /// Those of the functions that have open calls.
    pub fn open_of(&self, functions: &HashSet<SiteId>) -> Vec<SiteId> {
        let sites = self.frames[1..=self.depth].iter().map(|frame| site_of(*frame));
        let open: BTreeSet<SiteId> = sites.filter(|site| functions.contains(site)).collect();
        open.into_iter().collect()
    }

    /// The innermost open call, if an event that enters a function leaves open whether it goes on: its frame and function.
    pub fn innermost_before(&self, raw: RawEvent) -> Option<(Frame, SiteId)> {
        let top = self.frames[self.depth];
        let shares = is_tail(raw.code()) && below(top, raw.slot) == 0;
        let enters = !matches!(raw.code(), code::EXIT | code::CALL);
        // A call that shares its frame ends with the one that has it.
        let is_one = enters && !shares && self.depth > 0 && top & TAIL == 0;
        is_one.then_some((top, site_of(top)))
    }

    /// The innermost open call is over.
    pub fn leave_innermost(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// The returns of these functions are not recorded any more. The next entry shows that such a call is over, unless a call that it made is still
    /// open: then the entry lies within that one.
    pub fn mute(&mut self, functions: &HashSet<SiteId>) {
        let open = self.frames[1..=self.depth].iter_mut();
        for frame in open.filter(|frame| **frame & TAIL == 0 && functions.contains(&site_of(**frame))) {
            *frame ^= if *frame & MUTED == 0 { MUTED | FAR } else { 0 };
        }
        self.aside.forget(functions);
    }

    /// Events are missing: a frame that returns now may be another one than that which was left in its place.
    pub fn lose(&mut self) {
        self.aside.forget_frames();
        self.doubtful = self.frames[1..=self.depth].first().copied().unwrap_or(BOTTOM);
    }

    /// How many of the newest calls a call without a return proves over, whose slot is known. They are left.
    pub fn leave_before_call(&mut self, raw: RawEvent) -> u32 {
        let left = self.left_by(frame_of(raw), code::ENTRY);
        self.depth -= left;
        left as u32
    }

    /// Are any open?
    pub fn is_empty(&self) -> bool {
        self.depth == 0
    }

    #[inline(always)]
    fn make_room(&mut self, entries: usize) {
        if self.frames.len() < self.depth + 1 + entries {
            self.grow(entries);
        }
    }

    #[cold]
    fn grow(&mut self, entries: usize) {
        self.frames.resize((self.depth + 1 + entries).next_power_of_two(), BOTTOM);
    }

    /// What an event shows.
    fn show(&mut self, code: u32, frame: Frame, parent: u64) -> Shown {
        let (left, resumed) = match code {
            code::EXIT => return self.close(frame),
            code::CALL => return Shown { left: 0, resumed: Vec::new(), kind: EventKind::Call { parent } },
            code => self.leave_before(frame, code),
        };
        self.open(if is_tail(code) { frame | TAIL } else { frame });
        let kind = match code {
            code::ENTRY | code::NESTED_ENTRY => EventKind::Entry,
            code::ENTRY_FROM => EventKind::EntryFrom { parent },
            code::TAIL_ENTRY => EventKind::TailEntry,
            _ => EventKind::TailEntryFrom { parent },
        };
        Shown { left, resumed, kind }
    }

    /// Takes away the frames that an entry shows to be over or elsewhere, and opens those again that it shows the thread to be back in.
    fn leave_before(&mut self, frame: Frame, code: u32) -> (u32, Vec<SiteId>) {
        let muted = self.muted();
        self.depth -= muted;
        if !self.placed {
            return (muted as u32, Vec::new());
        }
        let next_to = self.next_to(frame, code);
        if next_to == Some(0) && slot_of(frame) > self.floor {
            return (muted as u32, Vec::new());
        }
        let left = next_to.unwrap_or_else(|| self.below_all(frame));
        let anchor = self.frames[1..=self.depth - left].last().map(|anchor| place_of(*anchor));
        if let Some(top) = self.aside.stack_of(slot_of(frame), anchor) {
            let back = self.aside.take(top, slot_of(frame), is_tail(code) || code == code::NESTED_ENTRY);
            let (left, resumed) = self.go_back_to(&back);
            return (left + muted as u32, resumed);
        }
        // An entry above all of them is of a function that had begun when recording began, and shows like an open frame what stack the thread is on.
        let own = if next_to.is_some() { anchor } else { Some(slot_of(frame)) };
        self.put_aside(left, own);
        self.find_floor(slot_of(frame));
        ((left + muted) as u32, Vec::new())
    }

    /// The newest frames are over or elsewhere: which of them may go on is remembered. `own`: a slot above them on the stack that the thread is on.
    fn put_aside(&mut self, count: usize, own: Option<u64>) {
        let first = self.depth + 1 - count;
        if count > 0 {
            self.aside.put(&self.frames[first..=self.depth], own);
            self.depth -= count;
            self.find_floor(place_of(self.frames[self.depth]));
        }
    }

    /// The thread is back in these frames. Says how many of the others it has left, and opens these.
    fn go_back_to(&mut self, back: &[Frame]) -> (u32, Vec<SiteId>) {
        let mut left = 0;
        // A stack whose innermost function is that of the stack the thread comes back to waits likewise: it has not called what goes on.
        while let Some(innermost) = back.last().map(|frame| site_of(*frame))
            && self.depth > 0
            && site_of(self.frames[self.depth]) == innermost
        {
            let count = self.aside.newest_stack(&self.frames[1..=self.depth]);
            self.put_aside(count, None);
            left += count as u32;
        }
        back.iter().for_each(|frame| self.open(*frame));
        self.find_floor(place_of(self.frames[self.depth]));
        (left, back.iter().map(|frame| site_of(*frame)).collect())
    }

    /// The thread is on the stack of this slot.
    fn find_floor(&mut self, slot: u64) {
        self.floor = self.aside.top_below(slot).unwrap_or(0);
    }

    /// How many of the newest frames an entry proves dead.
    fn left_by(&self, frame: Frame, code: u32) -> usize {
        self.next_to(frame, code).unwrap_or_else(|| self.below_all(frame))
    }

    /// Of how many of the newest frames an entry is not next to, if it is of an older one.
    fn next_to(&self, frame: Frame, code: u32) -> Option<usize> {
        let newest_first = || self.frames[1..=self.depth].iter().rev().take(SEARCHED);
        // A jump leaves the frame that jumped in its place.
        let shared =
            || newest_first().position(|open| below(*open, slot_of(frame)) == 0).filter(|_| is_tail(code));
        // A nested call leaves all frames that share its slot in theirs.
        let nearest = u64::from(code != code::NESTED_ENTRY);
        let next_to =
            || newest_first().position(|open| (nearest..=NEAR).contains(&below(*open, slot_of(frame))));
        shared().or_else(next_to)
    }

    /// How many of the newest frames lie below an entry that is next to none.
    fn below_all(&self, frame: Frame) -> usize {
        let open = &self.frames[1..=self.depth];
        let newest_first = || open.iter().rev().take(SEARCHED);
        // Above all frames of the newest stack: they are dead, unless it is on another one.
        let stack = newest_first()
            .zip(newest_first().skip(1))
            .take_while(|(inner, outer)| below(**outer, slot_of(**inner)) <= NEAR);
        let count = open.len().min(1 + stack.count());
        let outermost = open.len().checked_sub(count).and_then(|at| open.get(at));
        let is_above = |outermost: &Frame| {
            // Above the beginning of a stack lies nothing of it.
            below(frame, slot_of(*outermost)) <= NEAR && !self.aside.is_top(slot_of(*outermost))
        };
        if outermost.is_some_and(is_above) { count } else { 0 }
    }

    fn open(&mut self, frame: Frame) {
        self.make_room(1);
        if self.depth == 0 {
            // Near enough for what is entered beside this one to be in its place.
            self.frames[0] = frame.wrapping_add((NEAR / 2) << SLOT) | BOTTOM;
        }
        self.depth += 1;
        self.frames[self.depth] = frame;
    }

    /// How many of the innermost frames are muted.
    fn muted(&self) -> usize {
        self.frames[..=self.depth].iter().rev().take_while(|open| **open & MUTED != 0).count()
    }

    /// Closes the newest open call of the frame and all above it.
    fn close(&mut self, frame: Frame) -> Shown {
        let shown =
            |left, resumed, pops: usize| Shown { left, resumed, kind: EventKind::Exit { pops: pops as u32 } };
        if let Some(at) = self.frames[..=self.depth].iter().rposition(|open| is_call_of(*open, frame)) {
            let closed = self.depth + 1 - at;
            let tails = self.frames[at + 1..=self.depth].iter().take_while(|open| **open & TAIL != 0).count();
            if self.placed {
                self.put_aside(closed - 1 - tails, Some(place_of(self.frames[at])));
            }
            self.depth = at - 1;
            return shown(0, Vec::new(), closed);
        }
        // A frame that was not over, but on a stack that the thread is back on.
        let Some(back) = self.aside.take_with(frame) else { return shown(0, Vec::new(), 0) };
        let tails = back.iter().rev().take_while(|open| **open & TAIL != 0).count();
        let (left, resumed) = self.go_back_to(&back);
        self.depth -= 1 + tails;
        shown(left, resumed, 1 + tails)
    }
}

/// How many of the frames lie above the newest of that value; None if it is none of them, or they are too many.
#[inline(never)]
fn above(frame: Frame, frames: &[Frame]) -> Option<u8> {
    // Others than those that share its frame may go on, elsewhere: they are not for this way.
    let newest_first = || frames.iter().rev().take(MANY);
    let above = newest_first().position(|open| *open == frame)?;
    newest_first().take(above).all(|open| *open & TAIL != 0).then_some(above as u8)
}

#[cfg(test)]
mod tests;

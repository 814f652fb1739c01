//! Pairs returns with entries: computes for each event word of a thread how many open frames it
//! ends, from the stack slot of the event. `pair_return` pairs one return, and `pair_rows` rows of
//! entries and returns of the newest frame (`fit.rs`). `agent/src/shadow.rs` marks rewritten exits
//! before, and [`Calls`](calltap_trace::Calls) applies the number.
//!
//! Every event of a call that returns tells where its return address lies, its *slot*. Stacks grow
//! down, so the slots of open frames on one stack strictly decrease, and a frame is dead as soon as
//!
//! - its own return is recorded, or the return of an outer frame;
//! - a function is entered whose slot lies at or above the frame's: longjmp or an exception has
//!   left the frame;
//! - longjmp or the unwinder continues in a frame whose next call will have such a slot
//!   (`nonlocal.rs`).
//!
//! A thread may use several stacks: coroutines, signal handlers. Slots that are further apart than
//! `NEAR` are taken to lie on different stacks, unless both are known to lie on the stack with
//! which the thread began. A function entered on another stack is called by the newest open frame,
//! which stays open, unless it is on the stack with which the thread began (`own.rs`). A function
//! entered next to an older frame shows that the thread is back on that frame's stack, and the
//! calls on the other stack are left. Their frames are kept aside (`stacks.rs`) and open again when
//! the thread returns to that stack.
//!
//! Python functions share the slot of the interpreter's frame that runs them. The first function of
//! such a frame is entered like any other; a function that a Python function calls is *nested*: its
//! entry proves only frames below the slot dead, and a return closes the newest call of its
//! function there.
//!
//! An event of the sparse clock has seven bits of the slot. They tell activations apart, and prove
//! nothing at an entry.

mod copies;
mod entered;
mod fit;
mod lost;
mod moves;
mod nonlocal;
mod own;
mod stacks;
mod unrecorded;

use crate::raw::RawEvent;
use calltap_abi::event::{code, is_nonlocal};
use calltap_trace::{Event, EventKind, GraphEnd, GraphEvent, SiteId, ThreadEncoder};
use fit::Fit;
pub(crate) use lost::ALL;
use nonlocal::NonlocalExit;
use own::OwnStack;
use stacks::SuspendedStacks;
pub(crate) use stacks::push_switch;

/// An open frame: its site, `TAIL`, `UNRECORDED`, and from bit `SLOT` on its slot in units of 8
/// bytes, modulo 2^42.
pub type Frame = u64;
/// Flag of a frame that was entered by a jump, and shares the slot of the frame that jumped.
const TAIL: Frame = 1 << 20;
/// Flag of a frame whose return is not recorded any more.
const UNRECORDED: Frame = 1 << 21;
/// Bit that is flipped in an unrecorded frame: its slot then fits no event, so that
/// [`OpenCalls::pair_graph`] hands each event next to it to [`OpenCalls::pair`].
const FAR: Frame = 1 << 63;
/// First bit of the slot in a frame.
const SLOT: u32 = 22;
/// Modulus in which slots are compared.
pub(crate) const SLOTS: u64 = 1 << (64 - SLOT);
/// Sentinel in front of the outermost frame. Its slot counts as above any entry's, so that every
/// first entry fits; no return equals it.
const BOTTOM: Frame = TAIL | (TAIL - 1);
/// Largest distance of two slots on one stack, in units of 8 bytes: 256 KiB.
const NEAR: u64 = 256 << 10 >> 3;
/// Largest distance of an entry below the newest frame of a stack that the thread was not on, or
/// above the outermost frame of the one that it was on, for the entry to be on that stack: 16 KiB.
/// Small stacks lie next to each other, and a first entry on one of them lies within [`NEAR`] of
/// the frames of the next one.
const CLOSE: u64 = 16 << 10 >> 3;
/// Number of frames that are searched, at an entry, for the frame that it is next to. Beyond them
/// only the entry's own stack is.
const SEARCHED: usize = 4096;
/// Largest stack on which all frames are searched, in units of 8 bytes: 64 MiB.
const LARGEST_STACK: u64 = 64 << 20 >> 3;
/// Event codes that [`OpenCalls::pair_graph`] encodes, as a bit set.
const GRAPH: u32 = 1 << code::ENTRY | 1 << code::EXIT | 1 << code::TAIL_ENTRY | 1 << code::NESTED_ENTRY;
/// Number of frames that [`OpenCalls::pair_graph`] searches for the frame that returns; where it
/// lies deeper, [`OpenCalls::pair`] searches all.
const MAX_SEARCHED: usize = 200;
/// Least number of free places in `frames` when many events are paired at once.
const ROOM: usize = 64;

/// The open calls of a thread.
#[derive(Clone, Debug)]
pub struct OpenCalls {
    /// A [`BOTTOM`], then the open frames, the newest at `depth`.
    frames: Vec<Frame>,
    depth: usize,
    /// Whether events have whole slots.
    placed: bool,
    /// Frames on stacks that the thread has left for others.
    suspended: SuspendedStacks,
    /// The stack with which the thread began.
    own: OwnStack,
    /// Top of the next stack below, or its highest open frame: an entry at or below this slot is
    /// not called by the newest frame, as another stack begins there.
    floor: u64,
    /// The last nonlocal exit, while the frames that it leaves may be open.
    nonlocal: Option<NonlocalExit>,
    /// The outermost frame that was open when events were lost: its inner frames are not certain to
    /// be open.
    doubtful: Frame,
}

/// The meaning of an event, in the order in which it is encoded.
struct PairedEvent {
    /// Number of newest frames that ended, or lie on a stack that the thread has left.
    left: u32,
    /// Functions of the frames that are open again, outermost first.
    resumed: Vec<SiteId>,
    kind: EventKind,
}

/// Returns how far a slot lies below a frame's, in units of 8 bytes; huge if it lies above.
#[inline(always)]
fn distance_below(upper: Frame, slot: u64) -> u64 {
    // The bits of the frame beside its slot cannot borrow from the slot.
    upper.wrapping_sub(slot << SLOT) >> SLOT
}

/// Whether two slots may lie on one stack.
fn is_beside(one: u64, other: u64) -> bool {
    let distance = one.wrapping_sub(other) & (SLOTS - 1);
    distance <= NEAR || distance >= SLOTS - NEAR
}

/// Returns the slot of a frame as it is stored.
#[inline(always)]
fn slot_of(frame: Frame) -> u64 {
    frame >> SLOT
}

/// Returns the slot of a frame, without the flipped bit of an unrecorded one.
fn place_of(frame: Frame) -> u64 {
    slot_of(if frame & UNRECORDED == 0 { frame } else { frame ^ FAR })
}

/// Returns the frame to which an event belongs.
#[inline(always)]
pub(crate) fn frame_of(raw: RawEvent) -> Frame {
    raw.slot << SLOT | u64::from(raw.site().0)
}

/// Whether a return of `frame` returns from the open frame, which may be unrecorded.
fn is_call_of(open: Frame, frame: Frame) -> bool {
    open == frame || open == frame ^ (UNRECORDED | FAR)
}

fn site_of(frame: Frame) -> SiteId {
    SiteId((frame & (TAIL - 1)) as u32)
}

/// Whether an event of this code enters a function by a jump.
fn is_tail(code: u32) -> bool {
    matches!(code, code::TAIL_ENTRY | code::TAIL_ENTRY_FROM)
}

/// Whether [`OpenCalls::pair_graph`] encodes events of this code.
#[inline(always)]
pub(crate) fn is_graph(code: u32) -> bool {
    GRAPH >> code & 1 != 0
}

impl OpenCalls {
    /// Creates an empty stack of calls. `placed`: events have whole slots.
    pub(crate) fn new(placed: bool) -> OpenCalls {
        let frames = vec![BOTTOM];
        OpenCalls {
            frames,
            depth: 0,
            placed,
            suspended: SuspendedStacks::default(),
            own: OwnStack::default(),
            floor: 0,
            nonlocal: None,
            doubtful: BOTTOM,
        }
    }

    /// Creates an empty stack of calls that all lie on one stack, with slots counted from its
    /// beginning.
    pub(crate) fn on_one_stack() -> OpenCalls {
        OpenCalls { own: OwnStack::ONLY, ..OpenCalls::new(true) }
    }

    /// Encodes an event: a return with its number of closed calls, an entry behind the frames that
    /// it proves dead. Returns whether the event is a return.
    #[inline(never)]
    pub fn pair(&mut self, raw: RawEvent, values: &[u8], encoder: &mut ThreadEncoder) -> bool {
        let event = |kind| Event { ticks: raw.ticks, site: raw.site(), kind };
        let exit = self.nonlocal;
        if let Some((left, resumed)) = self.pass_nonlocal_exit(raw) {
            push_switch(raw.ticks, exit, left, resumed, encoder);
        }
        if is_nonlocal(raw.code()) {
            return false;
        }
        let exit = self.nonlocal;
        let PairedEvent { left, resumed, kind } = self.pair_event(raw.code(), frame_of(raw), raw.parent);
        push_switch(raw.ticks, exit.filter(|_| self.nonlocal.is_none()), left, resumed, encoder);
        if values.is_empty() {
            encoder.push(event(kind));
        } else {
            encoder.push_with(event(kind), values);
        }
        matches!(kind, EventKind::Exit { .. })
    }

    /// Encodes entries and returns up to the first event that has values or a parent, or that needs
    /// another event in front of it. Returns the number of events encoded, and how many of them are
    /// returns. `event` reads one word. None is encoded behind a nonlocal exit.
    #[inline(always)]
    pub(crate) fn pair_graph<T>(
        &mut self,
        words: &[T],
        event: impl Fn(&T) -> RawEvent,
        encoder: &mut ThreadEncoder,
    ) -> (usize, usize) {
        if self.nonlocal.is_some() {
            (0, 0)
        } else if self.is_on_one_stack() {
            self.pair_rows::<false, T>(words, event, encoder)
        } else {
            self.pair_rows::<true, T>(words, event, encoder)
        }
    }

    /// Implements [`OpenCalls::pair_graph`]. `STACKS`: the thread has several stacks.
    #[inline(always)]
    fn pair_rows<const STACKS: bool, T>(
        &mut self,
        words: &[T],
        event: impl Fn(&T) -> RawEvent,
        encoder: &mut ThreadEncoder,
    ) -> (usize, usize) {
        self.make_room(ROOM);
        let floor = self.floor;
        let fits = if self.placed { &Fit::PLACED } else { &Fit::UNPLACED };
        let frames = &mut *self.frames;
        // 32 bits let the compiler see that one more does not overflow, so that one check is enough
        // for both places.
        let (before, mut depth, mut further) = (self.depth as u32, self.depth as u32, 0);
        let count = encoder.push_graph(words, |word| {
            let raw = event(word);
            let (frame, code) = (frame_of(raw), raw.code());
            let fit = &fits[code as usize];
            frames.get(depth as usize + 1)?;
            let mut misfits = fit.misfits(frames[depth as usize], frame);
            if STACKS {
                misfits |= code != code::EXIT && (depth == 0 || raw.slot & (SLOTS - 1) <= floor);
            }
            let mut end = fit.end;
            // A single branch for both: a processor cannot predict which of the two comes next.
            if misfits {
                let tails =
                    (code == code::EXIT).then(|| frames_above(frame, &frames[..=depth as usize]))??;
                end = GraphEnd::returns(tails + 1);
                depth -= u32::from(tails) + 1;
                further += u32::from(tails);
            } else {
                frames[depth as usize + 1] = frame | fit.flag; // unused if it returns
                depth = depth.wrapping_add(fit.step);
            }
            Some(GraphEvent { ticks: raw.ticks, site: raw.site(), end })
        });
        self.depth = depth as usize;
        // Each entry adds a frame and each return removes one; `further` counts the frames beyond
        // those.
        let exits = (count + before as usize - (depth + further) as usize) / 2;
        (count, exits)
    }

    /// Whether the event shows that calls ended which did not record their return.
    pub(crate) fn is_evidence(&self, raw: RawEvent) -> bool {
        let frame = frame_of(raw);
        match raw.code() {
            code::EXIT => self.frames[self.depth] != frame,
            code::CALL | code::NONLOCAL | code::UNWINDING => false,
            code => self.placed && (self.nonlocal.is_some() || self.left_by(frame, code) > 0),
        }
    }

    /// Notes that events are missing: a return may now be of another frame than the one that was
    /// left at its slot.
    pub fn lose(&mut self) {
        self.suspended.forget_frames();
        self.doubtful = self.frames[1..=self.depth].first().copied().unwrap_or(BOTTOM);
    }

    /// Removes the newest calls that a call without a return, whose slot is known, proves to have
    /// ended. Returns their number.
    pub(crate) fn leave_before_call(&mut self, raw: RawEvent) -> u32 {
        let left = self.left_by(frame_of(raw), code::ENTRY);
        self.depth -= left;
        left as u32
    }

    /// Whether all frames lie on one stack, as far as is known.
    fn is_on_one_stack(&self) -> bool {
        self.suspended.is_one_stack() && self.floor == 0
    }

    /// Whether no call is open.
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

    /// Updates the open calls by an event and returns its meaning.
    fn pair_event(&mut self, code: u32, frame: Frame, parent: u64) -> PairedEvent {
        let (left, resumed) = match code {
            code::EXIT => return self.pair_exit(frame),
            code::CALL => {
                return PairedEvent { left: 0, resumed: Vec::new(), kind: EventKind::Call { parent } };
            }
            code => self.leave_before(frame, code),
        };
        self.open(if is_tail(code) { frame | TAIL } else { frame });
        let kind = match code {
            code::ENTRY | code::NESTED_ENTRY => EventKind::Entry,
            code::ENTRY_FROM => EventKind::EntryFrom { parent },
            code::TAIL_ENTRY => EventKind::TailEntry,
            _ => EventKind::TailEntryFrom { parent },
        };
        PairedEvent { left, resumed, kind }
    }

    /// Removes the frames that an entry or a nonlocal exit shows to have ended or to lie on another
    /// stack, and opens those again whose stack the thread is back on. Returns the number of the
    /// former and the functions of the latter.
    fn leave_before(&mut self, frame: Frame, code: u32) -> (u32, Vec<SiteId>) {
        let unrecorded = self.count_unrecorded();
        self.depth -= unrecorded;
        if !self.placed {
            return (unrecorded as u32, Vec::new());
        }
        if self.is_called_by_newest(frame, code) {
            return (unrecorded as u32, Vec::new());
        }
        let unrecorded = unrecorded + self.leave_other_stacks(frame, code);
        let next_to = self.next_to(frame, code);
        let below = || match code {
            code::UNWINDING => self.left_by_unwinder(slot_of(frame)),
            _ => self.below_all(frame, code),
        };
        let left = next_to.unwrap_or_else(below).max(self.ended_on_own(frame, code));
        let anchor = self.frames[1..=self.depth - left].last().map(|anchor| place_of(*anchor));
        if let Some(top) = self.suspended.stack_of(slot_of(frame), anchor) {
            let back = self.suspended.take(top, slot_of(frame), is_tail(code) || code == code::NESTED_ENTRY);
            let (left, resumed) = self.go_back_to(&back);
            return (left + unrecorded as u32, resumed);
        }
        // An entry above all frames is of a function that had begun when recording began. Like an
        // open frame it shows which stack the thread is on.
        let own = if next_to.is_some() { anchor } else { Some(slot_of(frame)) };
        self.suspend_frames(left, own, Some(slot_of(frame)));
        if next_to.is_none() {
            self.suspended.raise_top(slot_of(frame));
        }
        self.find_floor(slot_of(frame));
        ((left + unrecorded) as u32, Vec::new())
    }

    /// Removes the newest frames, keeping aside those that may continue on another stack. `own`: a
    /// slot above them on the thread's present stack. `at`: the slot that the thread is at, if
    /// it goes on itself.
    fn suspend_frames(&mut self, count: usize, own: Option<u64>, at: Option<u64>) {
        let first = self.depth + 1 - count;
        if count > 0 {
            let at = at.filter(|at| self.own.has(*at));
            let have_ended = |place: u64| at.is_some_and(|at| self.own.is_ended(place, at));
            self.suspended.put(&self.frames[first..=self.depth], own, have_ended);
            self.depth -= count;
            self.find_floor(place_of(self.frames[self.depth]));
        }
    }

    /// Opens the frames of the stack that the thread is back on. Returns the number of frames that
    /// it has left for that, and the functions of the opened ones.
    fn go_back_to(&mut self, back: &[Frame]) -> (u32, Vec<SiteId>) {
        let mut left = 0;
        // A stack with the same innermost function as the one that continues is suspended like it:
        // it cannot be the caller of the frames that continue.
        while let Some(innermost) = back.last()
            && self.depth > 0
            && site_of(self.frames[self.depth]) == site_of(*innermost)
        {
            let count = self.suspended.newest_stack(&self.frames[1..=self.depth]);
            self.suspend_frames(count, None, Some(place_of(*innermost)));
            left += count as u32;
        }
        back.iter().for_each(|frame| self.open(*frame));
        self.find_floor(place_of(self.frames[self.depth]));
        (left, back.iter().map(|frame| site_of(*frame)).collect())
    }

    /// Sets the floor for a thread on the stack of this slot. No entry fits until the frames that a
    /// nonlocal exit has left are ended.
    fn find_floor(&mut self, slot: u64) {
        let newest_first = self.frames[1..=self.depth].iter().rev().take(SEARCHED);
        let others = newest_first.map(|frame| place_of(*frame)).filter(|place| *place < slot);
        let below = self.suspended.top_below(slot).into_iter().chain(self.own.below(slot));
        let floor = below.chain(others).max().unwrap_or(0);
        self.floor = if self.nonlocal.is_some() { u64::MAX } else { floor };
    }

    fn open(&mut self, frame: Frame) {
        self.make_room(1);
        if self.depth == 0 {
            // Near enough for an entry beside this frame to be called by it.
            self.frames[0] = place_of(frame).wrapping_add(NEAR / 2) << SLOT | BOTTOM;
        }
        self.depth += 1;
        self.frames[self.depth] = frame;
    }

    /// Pairs a return with the newest open call with its slot and site, which ends with all calls
    /// above it. A suspended stack may have that call. If none has, the return ends no call.
    fn pair_return(&mut self, frame: Frame) -> PairedEvent {
        let paired = |left, resumed, pops: usize| PairedEvent {
            left,
            resumed,
            kind: EventKind::Exit { pops: pops as u32 },
        };
        if let Some(at) = self.frames[..=self.depth].iter().rposition(|open| is_call_of(*open, frame)) {
            let closed = self.depth + 1 - at;
            let tails = self.frames[at + 1..=self.depth].iter().take_while(|open| **open & TAIL != 0).count();
            if self.placed {
                let place = Some(place_of(self.frames[at]));
                self.suspend_frames(closed - 1 - tails, place, place);
            }
            self.depth = at - 1;
            return paired((closed - 1 - tails) as u32, Vec::new(), 1 + tails);
        }
        // The frame had not ended: it lies on a stack that the thread is back on.
        let Some(back) = self.suspended.take_with(frame) else { return paired(0, Vec::new(), 0) };
        let tails = back.iter().rev().take_while(|open| **open & TAIL != 0).count();
        let ended = self.end_below(frame);
        let (left, resumed) = self.go_back_to(&back);
        self.depth -= 1 + tails;
        paired(left + ended as u32, resumed, 1 + tails)
    }
}

/// Returns how many frames lie above the newest one equal to `frame`; `None` if there is none, too
/// deep, or frames above it do not share its slot.
#[inline(never)]
fn frames_above(frame: Frame, frames: &[Frame]) -> Option<u8> {
    // Frames that do not share its slot may continue on another stack; [`OpenCalls::pair`] handles
    // them.
    let newest_first = || frames.iter().rev().take(MAX_SEARCHED);
    let above = newest_first().position(|open| *open == frame)?;
    newest_first().take(above).all(|open| *open & TAIL != 0).then_some(above as u8)
}

#[cfg(test)]
mod tests;

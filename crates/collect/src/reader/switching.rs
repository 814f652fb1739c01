//! Calls that are open while their functions are disabled.
//!
//! Where a function's exits are rewritten, a call that is open when they are restored returns
//! without a record. The next event may then be of a callee, or of the next function that its
//! caller calls: no record tells which. So that no call is shown inside a call that has ended,
//! events from the time in which functions are disabled are held back until that time has passed. A
//! call whose return is among them was open until then. Any other call is cut at the first entry
//! that finds it innermost: a call with open callees continues, and is cut after them.

use super::delayed::DelayedEvent;
use super::paired_output::PairedOutput;
use crate::metadata::SwitchedOff;
use crate::pairing::{Frame, frame_of};
use crate::raw::RawEvent;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, SiteId};
use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

/// Maximum number of events of all threads that are held back, of 40 bytes each, and bounds of a
/// thread's share. Beyond it, all open calls of the thread count as continuing.
const MAX_HELD: usize = 1 << 19;
const MIN_SHARE: usize = 1 << 12;
const MAX_SHARE: usize = 1 << 17;

/// The functions that are being disabled, as seen by a thread's reader.
#[derive(Debug, Default)]
pub(crate) struct Switching {
    /// Batches of disabled functions, oldest first, at times up to which events are not read yet.
    off: VecDeque<Arc<SwitchedOff>>,
    /// Events from these times, and their maximum number.
    held: Vec<DelayedEvent>,
    share: usize,
}

impl Switching {
    /// Announces a batch of functions that are disabled, to one of so many threads.
    pub(crate) fn announce(&mut self, off: &Arc<SwitchedOff>, threads: usize) {
        self.off.push_back(Arc::clone(off));
        self.share = (MAX_HELD / threads.max(1)).clamp(MIN_SHARE, MAX_SHARE);
    }

    /// Whether no batch is pending.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.off.is_empty()
    }

    /// Whether events are held back.
    pub(crate) fn holds_events(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a call of this function may have returned at that time without a record.
    fn is_unseen(&self, site: SiteId, ticks: u64) -> bool {
        self.off.iter().any(|off| off.has_begun_before(ticks) && off.unrecorded_returns.contains(&site))
    }
}

/// The next event of each frame among the held events: true if it is the frame's return, false if
/// another entry.
struct Fates {
    next: HashMap<Frame, bool>,
    /// For each held event, what `next` says of its frame behind the event.
    behind: Vec<Option<bool>>,
}

impl Fates {
    fn new(held: &[DelayedEvent]) -> Fates {
        let (mut next, mut behind) = (HashMap::new(), vec![None; held.len()]);
        for (held, behind) in held.iter().zip(&mut behind).rev() {
            if held.raw.code() != code::CALL {
                *behind = next.insert(frame_of(held.raw), held.raw.code() == code::EXIT);
            }
        }
        Fates { next, behind }
    }

    /// Advances `next` beyond the event at a place.
    fn pass(&mut self, place: usize, raw: RawEvent) {
        match self.behind[place] {
            Some(returns) => drop(self.next.insert(frame_of(raw), returns)),
            None => drop(self.next.remove(&frame_of(raw))),
        }
    }

    /// Whether the call of an open frame has ended. `passed`: no return of it is recorded after
    /// these events.
    fn is_over(&self, frame: Frame, passed: bool) -> bool {
        self.next.get(&frame).map_or(passed, |returns| !returns)
    }
}

impl Switching {
    /// Holds an event back if it comes from a time in which functions are disabled. Returns whether
    /// it does.
    pub(crate) fn hold(
        &mut self,
        raw: RawEvent,
        values: &[u8],
        stack: &[u8],
        pairs: &mut PairedOutput<'_>,
    ) -> bool {
        self.end_before(raw.ticks, pairs);
        let is_meanwhile = self.off.iter().any(|off| off.has_begun_before(raw.ticks));
        if is_meanwhile && self.held.len() < self.share {
            self.held.push(DelayedEvent::new(raw, values, stack));
            return true;
        }
        self.release(false, pairs);
        false
    }

    /// Cuts the open calls of functions that were disabled before `ticks`.
    pub(crate) fn end_before(&mut self, ticks: u64, pairs: &mut PairedOutput<'_>) {
        let front = |switching: &Switching| {
            let off = switching.off.front()?;
            Some((Arc::clone(off), off.ended_before(ticks)?))
        };
        while let Some((off, ended)) = front(self) {
            self.release(true, pairs);
            self.off.pop_front();
            cut(&off, ended, pairs);
            pairs.open.mark_unrecorded(&off.unrecorded_returns);
        }
    }

    /// Pairs the events that are held back. `passed`: the time in which functions are disabled has
    /// passed; else more events of it may come.
    pub(crate) fn release(&mut self, passed: bool, pairs: &mut PairedOutput<'_>) {
        let held = take(&mut self.held);
        let mut fates = Fates::new(&held);
        for (place, delayed) in held.iter().enumerate() {
            let raw = delayed.raw;
            while let Some((frame, site)) = pairs.open.innermost_before(raw)
                && self.is_unseen(site, raw.ticks)
                && fates.is_over(frame, passed)
            {
                let event = |kind| Event { ticks: raw.ticks, site, kind };
                pairs.encoder.push(event(EventKind::SwitchedOff));
                pairs.encoder.push(event(EventKind::Left { pops: 1 }));
                pairs.open.leave_innermost();
            }
            if pairs.open.is_evidence(raw) {
                self.cut_meanwhile(raw.ticks, pairs);
            }
            let (values, stack) = delayed.values_and_stack();
            pairs.pair(raw, values, stack);
            fates.pass(place, raw);
        }
    }

    /// Cuts the open calls of functions that are being disabled, before an event that shows that
    /// they have ended.
    fn cut_meanwhile(&self, ticks: u64, pairs: &mut PairedOutput<'_>) {
        self.off.iter().filter(|off| off.has_begun_before(ticks)).for_each(|off| cut(off, ticks, pairs));
    }
}

/// Records that the open calls of disabled functions are cut.
fn cut(off: &SwitchedOff, ticks: u64, pairs: &mut PairedOutput<'_>) {
    for site in pairs.open.open_of(&off.sites) {
        pairs.encoder.push(Event { ticks, site, kind: EventKind::SwitchedOff });
    }
}

//! Calls that are open while their functions are switched off.
//!
//! Where a function's exits are rewritten, a call that is open when they are written back returns without a record. An event that
//! comes then may be of a callee, or of what its caller calls next: nothing tells which. So that no call is shown beneath one that
//! is over, events from the time in which functions are switched off are held back until that time has passed. A call whose
//! return is among them was open until then. Any other ends as cut where the next function is entered while it is the innermost
//! call; calls that are open still inside it prove that it goes on, and end first.

use super::pairs::Pairs;
use crate::metadata::SwitchedOff;
use crate::pairing::{Frame, frame_of};
use crate::raw::RawEvent;
use calltap_abi::event::code;
use calltap_trace::{Event, EventKind, SiteId};
use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

/// Events of a thread that are held back, at most: then they are taken as if all open calls went on.
const MOST: usize = 1 << 17;

/// An event that is held back, with what was read of it.
#[derive(Debug)]
struct Held {
    raw: RawEvent,
    values: Vec<u8>,
    stack: Vec<u8>,
}

/// Functions that are switched off, as far as a thread is read.
#[derive(Debug, Default)]
pub(crate) struct Switching {
    /// Oldest first, at times that are not read up to yet.
    off: VecDeque<Arc<SwitchedOff>>,
    /// Events of these times.
    held: Vec<Held>,
}

impl Switching {
    /// Functions are going to be switched off.
    pub(crate) fn announce(&mut self, off: &Arc<SwitchedOff>) {
        self.off.push_back(Arc::clone(off));
    }

    /// Is nothing switched off?
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.off.is_empty()
    }

    /// Are events held back?
    pub(crate) fn holds_events(&self) -> bool {
        !self.held.is_empty()
    }

    /// May a call of this function have returned at that time without a record?
    fn is_unseen(&self, site: SiteId, ticks: u64) -> bool {
        self.off.iter().any(|off| off.has_begun_before(ticks) && off.unseen.contains(&site))
    }
}

/// What comes next of each frame among the events that are held back: true is its return, false another entry.
struct Fates {
    next: HashMap<Frame, bool>,
    /// The same behind each event.
    behind: Vec<Option<bool>>,
}

impl Fates {
    fn new(held: &[Held]) -> Fates {
        let (mut next, mut behind) = (HashMap::new(), vec![None; held.len()]);
        for (held, behind) in held.iter().zip(&mut behind).rev() {
            if held.raw.code() != code::CALL {
                *behind = next.insert(frame_of(held.raw), held.raw.code() == code::EXIT);
            }
        }
        Fates { next, behind }
    }

    /// The event at a place has happened.
    fn pass(&mut self, place: usize, raw: RawEvent) {
        match self.behind[place] {
            Some(returns) => drop(self.next.insert(frame_of(raw), returns)),
            None => drop(self.next.remove(&frame_of(raw))),
        }
    }

    /// Is the call of an open frame over? `passed`: no return of it is recorded after these events.
    fn is_over(&self, frame: Frame, passed: bool) -> bool {
        self.next.get(&frame).map_or(passed, |returns| !returns)
    }
}

impl Switching {
    /// Holds an event back that comes from a time in which functions are switched off. False if it does not.
    pub(crate) fn hold(&mut self, raw: RawEvent, values: &[u8], stack: &[u8], pairs: &mut Pairs<'_>) -> bool {
        self.end_before(raw.ticks, pairs);
        let is_meanwhile = self.off.iter().any(|off| off.has_begun_before(raw.ticks));
        if is_meanwhile && self.held.len() < MOST {
            self.held.push(Held { raw, values: values.to_vec(), stack: stack.to_vec() });
            return true;
        }
        self.release(false, pairs);
        false
    }

    /// Cuts what is open of functions that were switched off before that.
    pub(crate) fn end_before(&mut self, ticks: u64, pairs: &mut Pairs<'_>) {
        let front = |switching: &Switching| {
            let off = switching.off.front()?;
            Some((Arc::clone(off), off.ended_before(ticks)?))
        };
        while let Some((off, ended)) = front(self) {
            self.release(true, pairs);
            self.off.pop_front();
            cut(&off, ended, pairs);
            pairs.open.mute(&off.unseen);
        }
    }

    /// Takes the events that are held back. `passed`: the time in which functions are switched off has passed; else more may come.
    pub(crate) fn release(&mut self, passed: bool, pairs: &mut Pairs<'_>) {
        let held = take(&mut self.held);
        let mut fates = Fates::new(&held);
        for (place, Held { raw, values, stack }) in held.iter().enumerate() {
            while let Some((frame, site)) = pairs.open.innermost_before(*raw)
                && self.is_unseen(site, raw.ticks)
                && fates.is_over(frame, passed)
            {
                let event = |kind| Event { ticks: raw.ticks, site, kind };
                pairs.encoder.push(event(EventKind::SwitchedOff));
                pairs.encoder.push(event(EventKind::Left { pops: 1 }));
                pairs.open.leave_innermost();
            }
            if pairs.open.is_evidence(*raw) {
                self.cut_meanwhile(raw.ticks, pairs);
            }
            pairs.pair(*raw, values, stack);
            fates.pass(place, *raw);
        }
    }

    /// Cuts what is open of functions that are being switched off, before an event that shows that their calls are over.
    fn cut_meanwhile(&self, ticks: u64, pairs: &mut Pairs<'_>) {
        self.off.iter().filter(|off| off.has_begun_before(ticks)).for_each(|off| cut(off, ticks, pairs));
    }
}

fn cut(off: &SwitchedOff, ticks: u64, pairs: &mut Pairs<'_>) {
    for site in pairs.open.open_of(&off.sites) {
        pairs.encoder.push(Event { ticks, site, kind: EventKind::SwitchedOff });
    }
}

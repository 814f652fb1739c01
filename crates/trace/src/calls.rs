//! The calls of a thread, made of its events: which are open, when each ends, and how.
//!
//! The recorder keeps frames to decide which calls an event ends; calls, with their beginning and
//! end, are kept here alone. Every view, the slow-call filter, the flight recorder and the control
//! directory feed [`Calls`] the events of a thread in order and keep their own data beside each
//! call. The recorder has decided already which frames an event ends, from their slots; this is
//! applied here, and checked against the open calls.

use crate::ending::Ending;
use crate::event::{Event, EventKind};
use crate::meta::SiteId;

/// Number of open calls that are searched for the one of a return that does not fit.
const SEARCH_LIMIT: usize = 4096;

/// An open call.
#[derive(Clone, Copy, Debug)]
pub struct OpenCall<T> {
    /// Data of the user of [`Calls`].
    pub data: T,
    /// Function of the call.
    pub site: SiteId,
    /// Whether the function was entered by a tail call.
    pub tail: bool,
    /// Ending that the call may have had already, unless its return comes. [`Ending::Resumed`]
    /// marks the rest of a call that was left before, which ends so in any case.
    pub cut: Option<Ending>,
}

impl<T> OpenCall<T> {
    /// Whether this is the rest of a call that was left before.
    #[inline(always)]
    pub fn is_rest(&self) -> bool {
        self.cut == Some(Ending::Resumed)
    }
}

/// The open calls of a thread, outermost first.
#[derive(Clone, Debug)]
pub struct Calls<T> {
    open: Vec<OpenCall<T>>,
}

impl<T> Default for Calls<T> {
    fn default() -> Calls<T> {
        Calls { open: Vec::new() }
    }
}

/// The calls that an event ends; [`Calls::close`] removes them one by one, innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closing {
    /// Number of calls that stay open.
    depth: usize,
    /// Calls `depth..returned` end with the return. Those from `returned` on ended before it,
    /// without one.
    returned: usize,
    /// Ending of the calls without a return, unless another one is known.
    otherwise: Ending,
}

impl Closing {
    /// Returns the number of calls that stay open.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the end of the calls `depth..returned`, which end with the return. Those from
    /// `returned` on are cut.
    pub fn returned(&self) -> usize {
        self.returned
    }

    /// Whether the call with `depth` outer calls is cut, rather than ended by the return.
    pub fn is_cut(&self, depth: usize) -> bool {
        depth >= self.returned
    }
}

impl<T> Calls<T> {
    /// Returns the number of open calls.
    #[inline(always)]
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Returns the open calls, outermost first.
    pub fn open(&self) -> &[OpenCall<T>] {
        &self.open
    }

    /// Returns the open calls, outermost first, for changes of their data.
    pub fn open_mut(&mut self) -> &mut [OpenCall<T>] {
        &mut self.open
    }

    /// Returns the innermost open call.
    #[inline(always)]
    pub fn innermost(&mut self) -> Option<&mut OpenCall<T>> {
        self.open.last_mut()
    }

    /// Begins a call.
    #[inline(always)]
    pub fn enter(&mut self, site: SiteId, tail: bool, data: T) {
        self.open.push(OpenCall { data, site, tail, cut: None });
    }

    /// Begins the rest of a call that was left before.
    pub fn resume(&mut self, site: SiteId, data: T) {
        self.open.push(OpenCall { data, site, tail: false, cut: Some(Ending::Resumed) });
    }

    /// Returns the calls that an event other than an entry ends; `None` if it ends none.
    pub fn end(&mut self, event: &Event) -> Option<Closing> {
        match event.kind {
            EventKind::Exit { pops } => self.exit(event.site, pops),
            EventKind::Left { pops } => self.cut_off(pops, Ending::Left),
            EventKind::Outside { pops } => self.cut_off(pops, Ending::Outside),
            EventKind::ThreadEnded => Some(self.finish(Ending::ThreadEnded)),
            EventKind::SwitchedOff => {
                self.cut(Ending::SwitchedOff, |open| open.site == event.site);
                None
            }
            EventKind::Lost { .. } => {
                self.cut(Ending::Lost, |_| true);
                None
            }
            EventKind::Entry
            | EventKind::Resumed
            | EventKind::TailEntry
            | EventKind::EntryFrom { .. }
            | EventKind::TailEntryFrom { .. }
            | EventKind::Call { .. } => None,
        }
    }

    /// Ends the newest `pops` calls without a return.
    fn cut_off(&self, pops: u32, otherwise: Ending) -> Option<Closing> {
        let depth = self.open.len().saturating_sub(pops as usize);
        (depth < self.open.len()).then_some(Closing { depth, returned: depth, otherwise })
    }

    /// Removes and returns the innermost call, if a return ends just that call, as nearly all
    /// returns do.
    #[inline(always)]
    pub fn return_innermost(&mut self, site: SiteId, pops: u32) -> Option<OpenCall<T>> {
        self.open.pop_if(|innermost| pops == 1 && innermost.site == site && !innermost.is_rest())
    }

    /// Returns the calls that a return ends which claims to end `pops` calls: that many, if the
    /// outermost of them is of the function; else the newest call of the function that has its own
    /// frame, with all inner calls; else none.
    #[inline(always)]
    pub fn exit(&self, site: SiteId, pops: u32) -> Option<Closing> {
        let top = self.open.len();
        match top.checked_sub(pops as usize).and_then(|depth| Some((depth, self.open.get(depth)?))) {
            Some((depth, open)) if open.site == site && pops == 1 => {
                Some(Closing { depth, returned: top, otherwise: Ending::Left })
            }
            Some((depth, open)) if open.site == site => Some(self.closing(depth)),
            _ if pops == 0 => None,
            _ => self.search(site),
        }
    }

    /// Searches the open calls for the newest of a function that has its own frame.
    #[cold]
    fn search(&self, site: SiteId) -> Option<Closing> {
        let newest_first = self.open.iter().enumerate().rev().take(SEARCH_LIMIT);
        let own = |(_, open): &(usize, &OpenCall<T>)| open.site == site && !open.tail;
        newest_first.into_iter().find(own).map(|(depth, _)| self.closing(depth))
    }

    /// Returns the calls that end when the call at `depth` returns, including tail calls that share
    /// its frame.
    fn closing(&self, depth: usize) -> Closing {
        let shared = self.open[depth + 1..].iter().take_while(|open| open.tail).count();
        Closing { depth, returned: depth + 1 + shared, otherwise: Ending::Left }
    }

    /// Whether the innermost open call ends with the return, so that the time of its end is known.
    pub fn is_innermost_known(&self, closing: &Closing) -> bool {
        (closing.depth + 1..=closing.returned).contains(&self.open.len())
    }

    /// Ends all calls, as the thread has no more events.
    pub fn finish(&self, otherwise: Ending) -> Closing {
        Closing { depth: 0, returned: 0, otherwise }
    }

    /// Removes and returns the next call that ends, and how it ends.
    #[inline(always)]
    pub fn close(&mut self, closing: &Closing) -> Option<(OpenCall<T>, Ending)> {
        let top = self.open.len();
        if top <= closing.depth {
            return None;
        }
        let call = self.open.pop()?;
        let ending = if call.is_rest() {
            Ending::Resumed
        } else if top > closing.returned {
            call.cut.unwrap_or(closing.otherwise)
        } else if top == closing.depth + 1 {
            Ending::Returned
        } else {
            Ending::Tail
        };
        Some((call, ending))
    }

    /// Removes and returns the next call that ends with the return, once the cut ones are removed.
    #[inline(always)]
    pub fn close_returned(&mut self, closing: &Closing) -> Option<(OpenCall<T>, Ending)> {
        let above = self.open.len().checked_sub(closing.depth + 1)?;
        let call = self.open.pop()?;
        let ending = match above {
            _ if call.is_rest() => Ending::Resumed,
            0 => Ending::Returned,
            _ => Ending::Tail,
        };
        Some((call, ending))
    }

    /// Marks the open calls that `which` selects as possibly ended.
    fn cut(&mut self, ending: Ending, which: impl Fn(&OpenCall<T>) -> bool) {
        for open in self.open.iter_mut().filter(|open| open.cut.is_none() && which(open)) {
            open.cut = Some(ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks how calls end: `f` enters, `=f` resumes, `~f` enters by a jump, `/f` returns and ends
    /// one call, `/f3` three; `left2`, `off:f`, `lost`, `thread_ended`, `end`. `expected`: the
    /// calls as they end.
    fn check(events: &str, expected: &str) {
        let mut calls = Calls::default();
        let mut got = Vec::new();
        for word in events.split_whitespace() {
            let site = |name: &str| SiteId(u32::from(name.as_bytes()[0]));
            let number = |text: &str| text.parse().unwrap_or(1);
            let (site, kind) = match word {
                "lost" => (SiteId(0), EventKind::Lost { entries: 1, exits: 1 }),
                "end" => (SiteId(0), EventKind::Entry),
                "thread_ended" => (SiteId(0), EventKind::ThreadEnded),
                _ => match (word.strip_prefix("left"), word.strip_prefix("off:"), word.strip_prefix('/')) {
                    (Some(pops), ..) => (SiteId(0), EventKind::Left { pops: number(pops) }),
                    (_, Some(name), _) => (site(name), EventKind::SwitchedOff),
                    (.., Some(name)) => (site(name), EventKind::Exit { pops: number(&name[1..]) }),
                    _ if word.starts_with('=') => {
                        calls.resume(site(&word[1..]), ());
                        continue;
                    }
                    _ => {
                        calls.enter(site(word.trim_start_matches('~')), word.starts_with('~'), ());
                        continue;
                    }
                },
            };
            let closing = match word {
                "end" => Some(calls.finish(Ending::Running)),
                _ => calls.end(&Event { ticks: 0, site, kind }),
            };
            while let Some((call, ending)) = closing.and_then(|closing| calls.close(&closing)) {
                got.push(format!("{}:{}", call.site.0 as u8 as char, ending.name()));
            }
        }
        assert_eq!(got.join(" "), expected, "{events}");
    }

    #[test]
    fn a_return_ends_its_call_and_the_tail_calls_in_its_frame() {
        check("f g /g /f", "g:returned f:returned");
        check("f ~g /f2", "g:tail f:returned");
        check("f g ~h /f3", "h:left g:left f:returned");
        check("f ~g h /f3", "h:left g:tail f:returned");
    }

    #[test]
    fn a_return_that_does_not_fit_ends_the_newest_call_of_its_function() {
        check("f g h /g", "h:left g:returned");
        check("f ~f g /f", "g:left f:tail f:returned");
        check("f /g f /g0 /f", "f:returned");
    }

    #[test]
    fn cuts_name_their_reason() {
        check("f g h left2 /f", "h:left g:left f:returned");
        check("f g h off:g left2 /f", "h:left g:switched_off f:returned");
        check("f g lost h left2 /f", "h:left g:lost f:returned");
        check("f g off:g lost end", "g:switched_off f:lost");
        check("f g end", "g:running f:running");
        check("f g off:f thread_ended end", "g:thread_ended f:switched_off");
        check("f left9", "f:left");
    }

    #[test]
    fn a_call_that_returns_after_all_was_not_cut() {
        check("f g off:g /g lost /f", "g:returned f:returned");
    }

    #[test]
    fn the_rest_of_a_call_ends_as_that() {
        check("m f g left2 =f =g h /h /g /f /m", "g:left f:left h:returned g:resumed f:resumed m:returned");
        check("m =f g left2 off:f /m", "g:left f:resumed m:returned");
        check("=f off:f lost g end", "g:running f:resumed");
        check("=f ~g /f2", "g:tail f:resumed");
    }

    proptest! {
        /// Every call that begins ends once, whatever the events are.
        #[test]
        fn every_call_ends_once(events in prop::collection::vec((0..8_u8, 0..4_u32, 0..5_u32), 0..200)) {
            let mut calls = Calls::default();
            let (mut begun, mut ended) = (0_usize, 0_usize);
            for (kind, site, pops) in events {
                let kind = match kind {
                    0..3 => EventKind::Exit { pops },
                    3 => EventKind::Left { pops },
                    4 => EventKind::SwitchedOff,
                    5 => EventKind::Lost { entries: 1, exits: pops },
                    6 => EventKind::ThreadEnded,
                    _ => EventKind::Entry,
                };
                if kind == EventKind::Entry || pops == 4 {
                    calls.enter(SiteId(site), pops == 3, ());
                    begun += 1;
                } else if let Some(closing) = calls.end(&Event { ticks: 0, site: SiteId(site), kind }) {
                    while calls.close(&closing).is_some() {
                        ended += 1;
                    }
                }
                prop_assert_eq!(calls.depth(), begun - ended);
            }
            let closing = calls.finish(Ending::Running);
            while calls.close(&closing).is_some() {
                ended += 1;
            }
            prop_assert_eq!(begun, ended);
        }
    }
}

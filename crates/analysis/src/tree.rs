//! The call-tree engine: turns the events of a thread into calls with times and callers. [`Calls`]
//! decides which calls an event ends, and how.
//!
//! Time never runs backwards: an event older than its predecessor is moved to the predecessor's
//! time. A call whose end is unknown ends here when it was last known to run: at the thread's last
//! event before the one that reveals the cut.

use crate::off::{Off, Offs, Stretch};
use calltap_trace::{Calls, Closing, Event, EventKind, OpenCall, SiteId, Switch, ThreadId};
use std::io;

pub use calltap_trace::Ending;

/// Maximum number of open frames per thread; deeper calls are counted, without a duration.
const DEPTH_LIMIT: usize = 1 << 22;

/// A call that ended. Times are in clock ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The called function.
    pub site: SiteId,
    /// The function of the frame right below.
    pub caller: Option<SiteId>,
    /// Time of the entry.
    pub start: u64,
    /// Time of the end; if the call was cut, the time until which it is known to have run.
    pub end: u64,
    /// `end - start`: the duration, or of a call that was cut, the known part of it.
    pub total: u64,
    /// `total` less the time of the calls made from it.
    pub self_ticks: u64,
    /// Number of frames below it, 0 for the outermost.
    pub depth: u32,
    /// How it ended.
    pub ending: Ending,
    /// Off-CPU part of `total`.
    pub off: Off,
    /// Off-CPU part of `self_ticks`.
    pub self_off: Off,
}

/// The beginning of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enter {
    /// The called function.
    pub site: SiteId,
    /// Time in ticks, never before the thread's previous event.
    pub ticks: u64,
    /// Number of frames below it.
    pub depth: u32,
    /// Return address in the caller; 0 when unknown.
    pub parent: u64,
    /// Whether it was entered by a tail call.
    pub tail: bool,
    /// Whether this is no new call but the rest of one that was left when the thread switched
    /// stacks; that ends as [`Ending::Resumed`].
    pub is_rest: bool,
}

/// A receiver of calls and other effects of events. All methods do nothing by default.
pub trait Visitor {
    /// Receives the values captured with the next event: arguments of an entry, or results of a
    /// return ([`calltap_trace::Captured`]).
    #[inline]
    fn values(&mut self, _thread: ThreadId, _site: SiteId, _returns: bool, _bytes: &[u8]) {}
    /// Receives the beginning of a call.
    #[inline]
    fn enter(&mut self, _thread: ThreadId, _enter: &Enter) {}
    /// Receives a call that ended, innermost first if several end at once.
    #[inline]
    fn close(&mut self, _thread: ThreadId, _call: &Call) {}
    /// Receives a call recorded by the function tracer: no duration will follow.
    #[inline]
    fn mark(&mut self, _thread: ThreadId, _enter: &Enter) {}
    /// Receives an interval before the next event in which the thread did not run.
    #[inline]
    fn off(&mut self, _thread: ThreadId, _stretch: &Stretch) {}
    /// Receives the numbers of events that were lost here.
    #[inline]
    fn lost(&mut self, _thread: ThreadId, _ticks: u64, _entries: u32, _exits: u32) {}
    /// Receives a return whose entry was not recorded, with `depth` frames open.
    #[inline]
    fn orphan(&mut self, _thread: ThreadId, _site: SiteId, _ticks: u64, _depth: u32) {}
    /// Receives a number of unreadable events ([`crate::run_by_thread`] only).
    #[inline]
    fn unreadable(&mut self, _thread: ThreadId, _events: u64) {}
    /// Called after the events of a batch, as an opportunity to write.
    #[inline]
    fn batch_end(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Called when the thread has no more events and its unfinished calls are closed.
    #[inline]
    fn thread_end(&mut self, _thread: ThreadId) -> io::Result<()> {
        Ok(())
    }
}

/// Counts made while the tree is built.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Number of events, marks included.
    pub events: u64,
    /// Number of events that the recorder added as marks: calls left or resumed, functions
    /// disabled, losses, ends of threads.
    pub marks: u64,
    /// Number of threads with events.
    pub threads: u64,
    /// Number of calls, with or without duration.
    pub calls: u64,
    /// Number of calls still open at their thread's end.
    pub unfinished: u64,
    /// Number of calls left without returning.
    pub left: u64,
    /// Number of calls open when their thread ended.
    pub thread_ended: u64,
    /// Number of calls that began before the part of the trace that was read, or continued after
    /// it.
    pub outside: u64,
    /// Number of calls whose end is unknown for other reasons.
    pub cut: u64,
    /// Number of returns without an entry.
    pub orphans: u64,
    /// Number of lost entries, as marked in the events.
    pub lost_entries: u64,
    /// Number of lost exits, as marked in the events.
    pub lost_exits: u64,
    /// Number of events older than their predecessor.
    pub backwards: u64,
    /// Number of calls too deep for the engine, counted without duration.
    pub too_deep: u64,
    /// Number of events whose function the trace does not describe.
    pub unknown_sites: u64,
    /// Number of events left out as the trace does not describe their threads.
    pub unknown_threads: u64,
    /// Number of batches left out as unreadable.
    pub damaged: u64,
    /// Reason why the first of them could not be read.
    pub first_damage: Option<String>,
}

/// Times of an open call.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    /// Ticks spent in callees.
    children: u64,
}

/// The open frames of one thread.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    calls: Calls<Span>,
    last: u64,
    offs: Offs,
}

/// An open call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// The called function.
    pub site: SiteId,
    /// Time of the entry, ticks.
    pub start: u64,
    /// The way in which it may have ended already.
    pub cut: Option<Ending>,
}

impl Stack {
    /// Makes the stack of a thread whose context switches are known, in ticks;
    /// [`add_switches`](Self::add_switches) adds more.
    pub(crate) fn switching(switches: &[Switch]) -> Stack {
        Stack { offs: Offs::new(switches), ..Stack::default() }
    }

    /// Appends context switches, before the events of their time arrive.
    pub(crate) fn add_switches(&mut self, switches: &[Switch]) {
        self.offs.add(switches);
    }

    /// Number of open frames.
    pub fn depth(&self) -> usize {
        self.calls.depth()
    }

    /// Number of calls that have not ended.
    pub fn unfinished(&self) -> u64 {
        self.calls.open().iter().filter(|open| !open.is_rest()).count() as u64
    }

    /// Time of the newest event, ticks.
    pub fn now(&self) -> u64 {
        self.last
    }

    /// Function of the innermost open call.
    pub fn top(&self) -> Option<SiteId> {
        self.calls.open().last().map(|open| open.site)
    }

    /// Iterates over the open calls, outermost first.
    pub fn open(&self) -> impl Iterator<Item = Open> {
        self.calls.open().iter().map(|open| Open { site: open.site, start: open.data.start, cut: open.cut })
    }

    /// Whether a return of `site` that claims to end `pops` calls ends the innermost open one, at a
    /// known time.
    pub(crate) fn is_ended_by(&self, site: SiteId, pops: u32) -> bool {
        self.calls.exit(site, pops).is_some_and(|closing| self.calls.is_innermost_known(&closing))
    }

    /// Processes the thread's next event. The caller must have made `event.site` valid.
    #[inline(always)]
    pub(crate) fn feed<V: Visitor>(
        &mut self,
        thread: ThreadId,
        event: &Event,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        if self.is_switching() {
            self.feed_as::<true, V>(thread, event, visitor, totals);
        } else {
            self.feed_as::<false, V>(thread, event, visitor, totals);
        }
    }

    /// Whether context switches of the thread are known.
    pub(crate) fn is_switching(&self) -> bool {
        !self.offs.is_absent()
    }

    /// Processes the thread's next event; `SWITCHING` may be false only if [`Self::is_switching`]
    /// is.
    #[inline(always)]
    pub(crate) fn feed_as<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        event: &Event,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        let now = if event.ticks < self.last { self.behind(totals) } else { event.ticks };
        match event.kind {
            EventKind::Entry => self.push::<SWITCHING, V>(thread, event.site, now, 0, false, visitor, totals),
            EventKind::Resumed => {
                totals.marks += 1;
                self.resume(thread, event.site, now, visitor)
            }
            EventKind::Exit { pops } => {
                self.exit::<SWITCHING, V>(thread, event.site, now, pops, visitor, totals)
            }
            EventKind::TailEntry => {
                self.push::<SWITCHING, V>(thread, event.site, now, 0, true, visitor, totals)
            }
            EventKind::EntryFrom { parent } => {
                self.push::<SWITCHING, V>(thread, event.site, now, parent, false, visitor, totals)
            }
            EventKind::TailEntryFrom { parent } => {
                self.push::<SWITCHING, V>(thread, event.site, now, parent, true, visitor, totals)
            }
            EventKind::Call { parent } => {
                self.pass::<SWITCHING, V>(thread, now, self.depth(), visitor);
                totals.calls += 1;
                let depth = self.depth() as u32;
                let enter =
                    Enter { site: event.site, ticks: now, depth, parent, tail: false, is_rest: false };
                visitor.mark(thread, &enter);
            }
            EventKind::Left { .. }
            | EventKind::Outside { .. }
            | EventKind::SwitchedOff
            | EventKind::ThreadEnded
            | EventKind::Lost { .. } => self.rare(thread, event, now, visitor, totals),
        }
    }

    /// Returns the predecessor's time for an event that is older.
    #[cold]
    fn behind(&self, totals: &mut Totals) -> u64 {
        totals.backwards += 1;
        self.last
    }

    // The code for rare events exists once, for all visitors.
    #[cold]
    fn rare(
        &mut self,
        thread: ThreadId,
        event: &Event,
        now: u64,
        visitor: &mut dyn Visitor,
        totals: &mut Totals,
    ) {
        totals.marks += 1;
        // A call that leaves the part of the trace ran until then.
        if let EventKind::Outside { .. } = event.kind {
            self.pass::<true, _>(thread, now, self.depth(), visitor);
        }
        if let Some(closing) = self.calls.end(event) {
            self.end(thread, &closing, self.last, visitor, totals);
        }
        if let EventKind::Lost { entries, exits } = event.kind {
            self.pass::<true, _>(thread, now, self.depth(), visitor);
            totals.lost_entries += u64::from(entries);
            totals.lost_exits += u64::from(exits);
            // A part of a trace may begin with open calls that an earlier loss has cut.
            if entries | exits != 0 {
                visitor.lost(thread, now, entries, exits);
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments)]
    fn push<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        now: u64,
        parent: u64,
        tail: bool,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        self.pass::<SWITCHING, V>(thread, now, self.depth(), visitor);
        totals.calls += 1;
        let depth = self.depth() as u32;
        let enter = Enter { site, ticks: now, depth, parent, tail, is_rest: false };
        if self.depth() >= DEPTH_LIMIT {
            totals.too_deep += 1;
            visitor.mark(thread, &enter);
            return;
        }
        visitor.enter(thread, &enter);
        self.calls.enter(site, tail, Span { start: now, children: 0 });
    }

    /// Begins the rest of a call.
    #[cold]
    fn resume(&mut self, thread: ThreadId, site: SiteId, now: u64, visitor: &mut dyn Visitor) {
        self.pass::<true, _>(thread, now, self.depth(), visitor);
        let depth = self.depth() as u32;
        if self.depth() < DEPTH_LIMIT {
            let enter = Enter { site, ticks: now, depth, parent: 0, tail: false, is_rest: true };
            visitor.enter(thread, &enter);
            self.calls.resume(site, Span { start: now, children: 0 });
        }
    }

    #[inline(always)]
    fn exit<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        now: u64,
        pops: u32,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        if let Some(call) = self.calls.return_innermost(site, pops) {
            self.pass::<SWITCHING, V>(thread, now, self.depth() + 1, visitor);
            self.close::<SWITCHING, V>(thread, &call, Ending::Returned, visitor);
            return;
        }
        self.exit_many(thread, site, now, pops, visitor, totals);
    }

    /// Processes a return that ends several calls, or none.
    fn exit_many(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        now: u64,
        pops: u32,
        visitor: &mut dyn Visitor,
        totals: &mut Totals,
    ) {
        match self.calls.exit(site, pops) {
            Some(closing) => self.end(thread, &closing, now, visitor, totals),
            None => {
                self.pass::<true, _>(thread, now, self.depth(), visitor);
                totals.orphans += 1;
                visitor.orphan(thread, site, now, self.depth() as u32);
            }
        }
    }

    /// Ends calls: those that are cut at the time of the last event, the others at `now`.
    fn end(
        &mut self,
        thread: ThreadId,
        closing: &Closing,
        now: u64,
        visitor: &mut dyn Visitor,
        totals: &mut Totals,
    ) {
        while self.depth() > closing.returned()
            && let Some((call, ending)) = self.calls.close(closing)
        {
            match ending {
                Ending::Left => totals.left += 1,
                Ending::ThreadEnded => totals.thread_ended += 1,
                Ending::Outside => totals.outside += 1,
                Ending::Resumed => {}
                _ => totals.cut += 1,
            }
            self.close::<true, _>(thread, &call, ending, visitor);
        }
        if closing.returned() > closing.depth() {
            // Calls that end with the return were open until now.
            self.pass::<true, _>(thread, now, self.depth(), visitor);
            while let Some((call, ending)) = self.calls.close_returned(closing) {
                self.close::<true, _>(thread, &call, ending, visitor);
            }
        }
    }

    /// Closes all open calls at the time of the last event, and resets the thread. `otherwise` is
    /// how calls end for which no other reason is known.
    pub fn finish(
        &mut self,
        thread: ThreadId,
        otherwise: Ending,
        visitor: &mut dyn Visitor,
        totals: &mut Totals,
    ) {
        totals.unfinished += self.unfinished();
        let closing = self.calls.finish(otherwise);
        while let Some((call, ending)) = self.calls.close(&closing) {
            self.close::<true, _>(thread, &call, ending, visitor);
        }
        (self.last, self.offs) = (0, Offs::default());
    }

    /// Advances time, with `depth` calls open.
    #[inline(always)]
    fn pass<const SWITCHING: bool, V: Visitor + ?Sized>(
        &mut self,
        thread: ThreadId,
        now: u64,
        depth: usize,
        visitor: &mut V,
    ) {
        if SWITCHING {
            self.offs.pass(now, depth, |stretch| visitor.off(thread, stretch));
        }
        self.last = now;
    }

    #[inline(always)]
    fn close<const SWITCHING: bool, V: Visitor + ?Sized>(
        &mut self,
        thread: ThreadId,
        call: &OpenCall<Span>,
        ending: Ending,
        visitor: &mut V,
    ) {
        let Span { start, children } = call.data;
        // Never underflows: `last` only grows, and children ran one after the other within the
        // frame.
        let total = self.last - start;
        let depth = self.depth() as u32;
        let caller = self.calls.innermost().map(|caller| {
            caller.data.children += total;
            caller.site
        });
        let self_ticks = total - children;
        let end = self.last;
        let (off, self_off) = if SWITCHING {
            self.offs.close(depth as usize + 1, total, self_ticks)
        } else {
            (Off::unknown(total), Off::unknown(self_ticks))
        };
        let site = call.site;
        let call = Call { site, caller, start, end, total, self_ticks, depth, ending, off, self_off };
        visitor.close(thread, &call);
    }
}

//! The call-tree engine: times and callers of calls, one thread at a time. Which calls an event ends, and how, [`Calls`] decides.
//!
//! Time never runs backwards: an event older than its predecessor is taken to happen at the predecessor's time. A call whose end is
//! not known ends here when it was last known to run: at the thread's last event before the one that tells.

use crate::off::{Off, Offs, Stretch};
use calltap_trace::{Calls, Closing, Event, EventKind, OpenCall, SiteId, Switch, ThreadId};
use std::io;

pub use calltap_trace::Ending;

/// Open frames kept per thread; a call beyond is counted, without a duration.
const DEPTH_LIMIT: usize = 1 << 22;

/// A call that is over. Times are in clock ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The function.
    pub site: SiteId,
    /// The function whose frame was open right below.
    pub caller: Option<SiteId>,
    /// When it was entered.
    pub start: u64,
    /// When it ended; if it was cut, until when it is known to have run.
    pub end: u64,
    /// `end - start`: its duration, or if it was cut a part of it.
    pub total: u64,
    /// `total` less the time of the calls made from it.
    pub self_ticks: u64,
    /// Number of frames below it, 0 for the outermost.
    pub depth: u32,
    /// Why it ended.
    pub ending: Ending,
    /// How much of `total` its thread did not run,
    pub off: Off,
    /// and of `self_ticks`.
    pub self_off: Off,
}

/// A call that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enter {
    /// The function.
    pub site: SiteId,
    /// When, in ticks (never before the thread's previous event).
    pub ticks: u64,
    /// Number of frames below it.
    pub depth: u32,
    /// Return address in the caller; 0 when unknown.
    pub parent: u64,
    /// Entered by a tail call.
    pub tail: bool,
    /// Not a call, but the rest of one that was left when the thread went to another stack, and is back now: it ends as [`Ending::Resumed`].
    pub is_rest: bool,
}

/// What a view does with calls. All methods do nothing unless given.
pub trait Visitor {
    /// Values were read of the event that is told of next: arguments of an entry, or results of a return ([`calltap_trace::Captured`]).
    #[inline]
    fn values(&mut self, _thread: ThreadId, _site: SiteId, _returns: bool, _bytes: &[u8]) {}
    /// A call begins.
    #[inline]
    fn enter(&mut self, _thread: ThreadId, _enter: &Enter) {}
    /// A call is over (innermost first where several end at once).
    #[inline]
    fn close(&mut self, _thread: ThreadId, _call: &Call) {}
    /// The function tracer saw a call: no duration will follow.
    #[inline]
    fn mark(&mut self, _thread: ThreadId, _enter: &Enter) {}
    /// The thread did not run, before the event that is told of next.
    #[inline]
    fn off(&mut self, _thread: ThreadId, _stretch: &Stretch) {}
    /// Calls were lost here.
    #[inline]
    fn lost(&mut self, _thread: ThreadId, _ticks: u64, _entries: u32, _exits: u32) {}
    /// A return whose entry was not recorded, with `depth` frames open.
    #[inline]
    fn orphan(&mut self, _thread: ThreadId, _site: SiteId, _ticks: u64, _depth: u32) {}
    /// So many events could not be read here (told by [`crate::run_by_thread`] only).
    #[inline]
    fn unreadable(&mut self, _thread: ThreadId, _events: u64) {}
    /// The events of a batch are done: a place to write what piled up.
    #[inline]
    fn batch_end(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// The thread has no more events; its unfinished calls were closed.
    #[inline]
    fn thread_end(&mut self, _thread: ThreadId) -> io::Result<()> {
        Ok(())
    }
}

/// What was counted while the tree was built.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Events read, marks included.
    pub events: u64,
    /// Events that the program did not record: the recorder marks where calls are left or resumed, functions are switched off, events were lost or a thread ended.
    pub marks: u64,
    /// Threads that had events.
    pub threads: u64,
    /// Calls begun, with or without duration.
    pub calls: u64,
    /// Calls still open at their thread's end.
    pub unfinished: u64,
    /// Calls left without returning.
    pub left: u64,
    /// Calls that were open when their thread ended.
    pub thread_ended: u64,
    /// Calls that began before the part of the trace that was read, or went on after it.
    pub outside: u64,
    /// Calls whose end is not known for another reason.
    pub cut: u64,
    /// Returns without an entry.
    pub orphans: u64,
    /// Entries lost, as marked in the events.
    pub lost_entries: u64,
    /// Exits lost, as marked in the events.
    pub lost_exits: u64,
    /// Events that were older than their predecessor.
    pub backwards: u64,
    /// Calls deeper than the engine keeps, counted without duration.
    pub too_deep: u64,
    /// Events whose function is not described in the trace.
    pub unknown_sites: u64,
    /// Events of threads the trace does not describe, left out.
    pub unknown_threads: u64,
    /// Batches that could not be read and were left out.
    pub damaged: u64,
    /// Why the first of them could not be read.
    pub first_damage: Option<String>,
}

/// Times of an open call.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    /// Ticks spent in calls made from here.
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
    /// The function.
    pub site: SiteId,
    /// When it was entered, ticks.
    pub start: u64,
    /// It may have ended already, for this reason.
    pub cut: Option<Ending>,
}

impl Stack {
    /// Of a thread whose context switches are known, in ticks; more may come.
    pub fn switching(switches: &[Switch]) -> Stack {
        Stack { offs: Offs::new(switches), ..Stack::default() }
    }

    /// More context switches of the thread, before the events of their time.
    pub fn add_switches(&mut self, switches: &[Switch]) {
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

    /// The time of the newest event, ticks.
    pub fn now(&self) -> u64 {
        self.last
    }

    /// The innermost open function.
    pub fn top(&self) -> Option<SiteId> {
        self.calls.open().last().map(|open| open.site)
    }

    /// The open calls, outermost first.
    pub fn open(&self) -> impl Iterator<Item = Open> {
        self.calls.open().iter().map(|open| Open { site: open.site, start: open.data.start, cut: open.cut })
    }

    /// Does a return of `site` that claims to end `pops` calls end the innermost open one, at a time that is known?
    pub fn is_ended_by(&self, site: SiteId, pops: u32) -> bool {
        self.calls.exit(site, pops).is_some_and(|closing| self.calls.is_innermost_known(&closing))
    }

    /// Takes in the thread's next event. `event.site` must have been made valid by the caller.
    #[inline(always)]
    pub fn feed<V: Visitor>(
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

    /// Are context switches of the thread known?
    pub(crate) fn is_switching(&self) -> bool {
        !self.offs.is_absent()
    }

    /// The same; `SWITCHING` may be false only where [`Self::is_switching`] is.
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
                self.resume::<SWITCHING, V>(thread, event.site, now, visitor)
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
            | EventKind::Lost { .. } => self.rare::<SWITCHING, V>(thread, event, now, visitor, totals),
        }
    }

    /// An event is older than its predecessor: it is taken to happen at the same time.
    #[cold]
    fn behind(&self, totals: &mut Totals) -> u64 {
        totals.backwards += 1;
        self.last
    }

    #[cold]
    fn rare<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        event: &Event,
        now: u64,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        totals.marks += 1;
        // A call that leaves the part of the trace has gone on until then.
        if let EventKind::Outside { .. } = event.kind {
            self.pass::<SWITCHING, V>(thread, now, self.depth(), visitor);
        }
        if let Some(closing) = self.calls.end(event) {
            self.end::<SWITCHING, V>(thread, &closing, self.last, visitor, totals);
        }
        if let EventKind::Lost { entries, exits } = event.kind {
            self.pass::<SWITCHING, V>(thread, now, self.depth(), visitor);
            totals.lost_entries += u64::from(entries);
            totals.lost_exits += u64::from(exits);
            // A part of a trace may begin where calls are open that were cut by an earlier loss.
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

    /// The rest of a call begins.
    #[cold]
    fn resume<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        now: u64,
        visitor: &mut V,
    ) {
        self.pass::<SWITCHING, V>(thread, now, self.depth(), visitor);
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
        self.exit_many::<SWITCHING, V>(thread, site, now, pops, visitor, totals);
    }

    /// A return that ends several calls, or none.
    fn exit_many<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        now: u64,
        pops: u32,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        match self.calls.exit(site, pops) {
            Some(closing) => self.end::<SWITCHING, V>(thread, &closing, now, visitor, totals),
            None => {
                self.pass::<SWITCHING, V>(thread, now, self.depth(), visitor);
                totals.orphans += 1;
                visitor.orphan(thread, site, now, self.depth() as u32);
            }
        }
    }

    /// Ends calls: those that are cut at the time of the last event, the others at `now`.
    #[inline(always)]
    fn end<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        closing: &Closing,
        now: u64,
        visitor: &mut V,
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
            self.close::<SWITCHING, V>(thread, &call, ending, visitor);
        }
        if closing.returned() > closing.depth() {
            // Those that end with the return were open until now.
            self.pass::<SWITCHING, V>(thread, now, self.depth(), visitor);
            while let Some((call, ending)) = self.calls.close_returned(closing) {
                self.close::<SWITCHING, V>(thread, &call, ending, visitor);
            }
        }
    }

    /// Closes everything that is still open at the time of the last event, and forgets the thread. `otherwise`: why it is open.
    pub fn finish<V: Visitor>(
        &mut self,
        thread: ThreadId,
        otherwise: Ending,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        totals.unfinished += self.unfinished();
        let closing = self.calls.finish(otherwise);
        while let Some((call, ending)) = self.calls.close(&closing) {
            self.close::<true, V>(thread, &call, ending, visitor);
        }
        (self.last, self.offs) = (0, Offs::default());
    }

    /// Time passes, with `depth` calls open.
    #[inline(always)]
    fn pass<const SWITCHING: bool, V: Visitor>(
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
    fn close<const SWITCHING: bool, V: Visitor>(
        &mut self,
        thread: ThreadId,
        call: &OpenCall<Span>,
        ending: Ending,
        visitor: &mut V,
    ) {
        let Span { start, children } = call.data;
        // Never underflows: `last` only grows, and children ran one after the other within the frame.
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

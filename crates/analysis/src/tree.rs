//! The call-tree engine: pairs entries with returns, one thread at a time.
//!
//! A return closes the newest `pops` open frames if the deepest of those belongs to the returning function;
//! otherwise the newest open frame of that function that has a frame of its own (not a tail entry) and everything
//! above it; otherwise it is an orphan. Time never runs backwards: an event older than its predecessor is taken to
//! happen at the predecessor's time.

use calltap_trace::{Event, EventKind, SiteId, ThreadId};
use std::io;

/// How many open frames are searched for the frame of a return that does not fit.
const SEARCH_LIMIT: usize = 4096;
/// Open frames kept per thread; a call beyond is counted, without a duration.
const DEPTH_LIMIT: usize = 1 << 22;

/// Why a call is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It returned.
    Returned,
    /// It was entered by a tail call and ended when the frame it shares returned.
    Tail,
    /// It was left by longjmp or an exception (or its return was lost) and ended with the return of a caller.
    Skipped,
    /// It was still open at the thread's last event.
    Unfinished,
}

/// A call that is over. Times are in clock ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The function.
    pub site: SiteId,
    /// The function whose frame was open right below.
    pub caller: Option<SiteId>,
    /// When it was entered.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// `end - start`.
    pub total: u64,
    /// `total` less the time of the calls made from it.
    pub self_ticks: u64,
    /// Number of frames below it, 0 for the outermost.
    pub depth: u32,
    /// Why it ended.
    pub ending: Ending,
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
    /// Events read.
    pub events: u64,
    /// Threads that had events.
    pub threads: u64,
    /// Calls begun, with or without duration.
    pub calls: u64,
    /// Calls still open at their thread's end.
    pub unfinished: u64,
    /// Calls left without returning.
    pub skipped: u64,
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

#[derive(Clone, Copy, Debug)]
struct Frame {
    start: u64,
    /// Ticks spent in calls made from here.
    children: u64,
    site: SiteId,
    tail: bool,
}

/// The open frames of one thread.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    frames: Vec<Frame>,
    last: u64,
}

impl Stack {
    /// Number of open frames.
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The time of the newest event, ticks.
    pub fn now(&self) -> u64 {
        self.last
    }

    /// The innermost open function.
    pub fn top(&self) -> Option<SiteId> {
        self.frames.last().map(|frame| frame.site)
    }

    /// The open calls, outermost first: the function, and when it was entered in ticks.
    pub fn open(&self) -> impl Iterator<Item = (SiteId, u64)> {
        self.frames.iter().map(|frame| (frame.site, frame.start))
    }

    /// How many frames a return of `site` that claims `pops` closes; 0 = it is an orphan.
    #[inline]
    pub fn closed_by(&self, site: SiteId, pops: u32) -> usize {
        let pops = pops as usize;
        match self.frames.len().checked_sub(pops).and_then(|at| self.frames.get(at)) {
            Some(frame) if frame.site == site => pops,
            _ if pops == 0 => 0,
            _ => self.search(site),
        }
    }

    #[cold]
    fn search(&self, site: SiteId) -> usize {
        let newest_first = self.frames.iter().rev().take(SEARCH_LIMIT);
        newest_first.enumerate().find(|(_, f)| f.site == site && !f.tail).map_or(0, |(above, _)| above + 1)
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
        if event.ticks < self.last {
            totals.backwards += 1;
        } else {
            self.last = event.ticks;
        }
        match event.kind {
            EventKind::Entry => self.push(thread, event.site, 0, false, visitor, totals),
            EventKind::Exit { pops } => self.exit(thread, event.site, pops, visitor, totals),
            EventKind::TailEntry => self.push(thread, event.site, 0, true, visitor, totals),
            EventKind::EntryFrom { parent } => self.push(thread, event.site, parent, false, visitor, totals),
            EventKind::TailEntryFrom { parent } => {
                self.push(thread, event.site, parent, true, visitor, totals)
            }
            EventKind::Call { parent } => {
                totals.calls += 1;
                let depth = self.frames.len() as u32;
                visitor
                    .mark(thread, &Enter { site: event.site, ticks: self.last, depth, parent, tail: false });
            }
            EventKind::Lost { entries, exits } => {
                totals.lost_entries += u64::from(entries);
                totals.lost_exits += u64::from(exits);
                visitor.lost(thread, self.last, entries, exits);
            }
        }
    }

    #[inline(always)]
    fn push<V: Visitor>(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        parent: u64,
        tail: bool,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        totals.calls += 1;
        let depth = self.frames.len() as u32;
        let enter = Enter { site, ticks: self.last, depth, parent, tail };
        if self.frames.len() >= DEPTH_LIMIT {
            totals.too_deep += 1;
            visitor.mark(thread, &enter);
            return;
        }
        visitor.enter(thread, &enter);
        self.frames.push(Frame { start: self.last, children: 0, site, tail });
    }

    #[inline(always)]
    fn exit<V: Visitor>(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        pops: u32,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        let closed = self.closed_by(site, pops);
        if closed == 1 {
            self.pop(thread, Ending::Returned, visitor);
        } else {
            self.exit_many(thread, site, closed, visitor, totals);
        }
    }

    fn exit_many<V: Visitor>(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        closed: usize,
        visitor: &mut V,
        totals: &mut Totals,
    ) {
        if closed == 0 {
            totals.orphans += 1;
            visitor.orphan(thread, site, self.last, self.frames.len() as u32);
            return;
        }
        for _ in 1..closed {
            let tail = self.frames.last().is_some_and(|frame| frame.tail);
            totals.skipped += u64::from(!tail);
            self.pop(thread, if tail { Ending::Tail } else { Ending::Skipped }, visitor);
        }
        self.pop(thread, Ending::Returned, visitor);
    }

    /// Closes everything that is still open at the time of the last event, and forgets the thread.
    pub fn finish<V: Visitor>(&mut self, thread: ThreadId, visitor: &mut V, totals: &mut Totals) {
        totals.unfinished += self.frames.len() as u64;
        while !self.frames.is_empty() {
            self.pop(thread, Ending::Unfinished, visitor);
        }
        self.last = 0;
    }

    #[inline(always)]
    fn pop<V: Visitor>(&mut self, thread: ThreadId, ending: Ending, visitor: &mut V) {
        let Some(frame) = self.frames.pop() else { return };
        // Never underflows: `last` only grows, and children ran one after the other within the frame.
        let total = self.last - frame.start;
        let caller = self.frames.last_mut().map(|caller| {
            caller.children += total;
            caller.site
        });
        visitor.close(
            thread,
            &Call {
                site: frame.site,
                caller,
                start: frame.start,
                end: self.last,
                total,
                self_ticks: total - frame.children,
                depth: self.frames.len() as u32,
                ending,
            },
        );
    }
}

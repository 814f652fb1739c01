//! Reads one thread: follows its chunks, and encodes what is in them.

pub(crate) mod encode;
mod forks;
pub(crate) mod history;
mod moves;
pub(crate) mod pairs;
pub(crate) mod switching;
pub(crate) mod waiting;

use crate::callers::Unwinding;
use crate::governor::Rates;
use crate::metadata::SwitchedOff;
use crate::output::Output;
use crate::pairing::OpenCalls;
use crate::raw::{Cursor, GoEvent};
use crate::shm::Shared;
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE, PAGE};
use calltap_trace::{Event, EventKind, Loss, Process, SiteId, ThreadEncoder, ThreadId};
use encode::Encode;
use forks::Sought;
use history::History;
use pairs::Pairs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};
use switching::Switching;
use waiting::Waiting;

/// A slot that is still empty so long after its chunk was full will never be written: its writer was a hook that a signal handler
/// interrupted and left by siglongjmp.
const HOLE: Duration = Duration::from_millis(100);
/// Chunks looked ahead for others that are full already.
const LOOK_AHEAD: usize = 4096;

/// What is read of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Chunks that are full.
    Full,
    /// Also the one being filled.
    Partial,
    /// All there is: the thread writes no more.
    Rest,
}

/// A thread, and how far it is read.
pub struct Reader {
    /// Its entry in the table of threads.
    pub entry: u32,
    /// Index of its process.
    pub process: u32,
    /// 0 once another thread has it.
    pub tid: u32,
    /// What is in the trace.
    pub totals: Loss,
    /// Something came since this was last cleared.
    pub active: bool,
    /// What was lost in front of its first event was noted.
    begun: bool,
    /// More was there than could be read the last time.
    pub behind: bool,
    /// Chunks that were given back.
    pub freed: u64,
    sparse: bool,
    chunk: Option<u32>,
    cursor: Cursor,
    open: OpenCalls,
    encoder: ThreadEncoder,
    /// Waiting for an empty slot since then; and up to which chunk that wait counts.
    hole: Option<(Instant, u32)>,
    /// Empty slots before the end of this chunk are empty for good.
    settled: Option<u32>,
    /// A slot of this chunk was stepped over.
    skipped: bool,
    /// The pages of this chunk behind that of the cursor were never written to.
    is_blank: bool,
    /// Chunks of which a slot was stepped over. Should its writer come back after all, it must not write into what is another
    /// thread's by then: they are kept until the thread ends.
    kept: Vec<u32>,
    torn: u64,
    /// Events are counted by site.
    rates: Option<Arc<Rates>>,
    /// Functions that were switched off at times that are not read up to yet.
    switching: Switching,
    /// Events behind that are left out.
    until: u64,
    /// Events of goroutines, which may go on in other threads.
    pub of_go: Vec<GoEvent>,
    /// There were any.
    has_goroutines: bool,
    /// Is kept for children that are forked?
    keeps_history: bool,
    history: Option<History>,
    /// A child was forked behind this event of the thread; what was open then, once that is known.
    sought: Option<Sought>,
    /// Of the first thread of a forked process, in which calls are open that were at the fork: its process. They are written when its first event is there.
    copied: Option<Process>,
    /// Events that wait for other threads of the process.
    waiting: Waiting,
}

impl Reader {
    /// A reader at the start of a thread that is to be called `id` in the trace.
    pub fn new(
        id: ThreadId,
        entry: u32,
        process: u32,
        tid: u32,
        sparse: bool,
        rates: Option<Arc<Rates>>,
    ) -> Reader {
        Reader {
            entry,
            process,
            tid,
            totals: Loss { thread: id, ..Loss::default() },
            active: true,
            begun: false,
            behind: false,
            freed: 0,
            sparse,
            chunk: None,
            cursor: Cursor::default(),
            open: OpenCalls::new(!sparse),
            encoder: ThreadEncoder::new(id),
            hole: None,
            settled: None,
            skipped: false,
            is_blank: false,
            kept: Vec::new(),
            torn: 0,
            rates,
            switching: Switching::default(),
            until: u64::MAX,
            of_go: Vec::new(),
            has_goroutines: false,
            keeps_history: false,
            history: None,
            sought: None,
            copied: None,
            waiting: Waiting::default(),
        }
    }

    /// The same; events behind that time are left out.
    pub fn until(self, ticks: u64) -> Reader {
        Reader { until: ticks, ..self }
    }

    /// Functions were switched off in its process: what is open of them is cut when everything before that is read.
    pub fn switch_off(&mut self, off: &Arc<SwitchedOff>) {
        self.switching.announce(off);
    }

    /// Reads what there is, but no more than so many chunks; true if anything came.
    pub fn read(
        &mut self,
        shared: &Shared,
        extent: Extent,
        most: u32,
        output: &mut Output<'_>,
        unwinding: &mut Unwinding,
    ) -> bool {
        let mut got = false;
        self.behind = false;
        // No more chunks than there are: links that make a circle (the program can write to them) end somewhere.
        let mut left = shared.chunk_count().min(most);
        loop {
            let Some(chunk) = self.begun_chunk(shared) else { return got };
            let Some(header) = shared.chunk_header(chunk) else { return got };
            if extent == Extent::Full && header.next.load(Acquire) == 0 {
                return got;
            }
            if !self.begun {
                self.begin(shared, chunk);
            }
            let may_wait = extent != Extent::Rest && header.next.load(Acquire) == 0;
            if !self.go_on_from_fork(shared, chunk, output) && may_wait {
                return got;
            }
            got |= self.take(shared, chunk, unwinding);
            self.seek_fork();
            if self.has_found() {
                return got;
            }
            self.active |= got;
            if self.encoder.is_full() {
                output.events(&mut self.encoder);
            }
            // An empty slot behind that time is no loss.
            if self.cursor.last_ticks() > self.until {
                return got;
            }
            let next = header.next.load(Acquire).checked_sub(1);
            if !self.cursor.at_end() {
                if !self.skip_hole(shared, chunk, next, extent) {
                    return got;
                }
                continue;
            }
            let Some(next) = next else { return got };
            // The thread's cursor is still here until the next chunk holds something.
            if extent != Extent::Rest
                && shared.chunk(next).is_none_or(|words| words[CHUNK_DATA / 8].load(Relaxed) == 0)
            {
                return got;
            }
            self.go_on_in(shared, chunk, next);
            self.note_gap(shared, next, unwinding);
            match left.checked_sub(1) {
                Some(fewer) => left = fewer,
                None => {
                    self.behind = true;
                    return got;
                }
            }
        }
    }

    /// The chunk that is read: at first the thread's first one, if it has one.
    fn begun_chunk(&mut self, shared: &Shared) -> Option<u32> {
        let first = || shared.thread(self.entry)?.first_chunk.load(Acquire).checked_sub(1);
        self.chunk = self.chunk.or_else(first);
        self.chunk
    }

    /// A chunk is read to its end: the next one is.
    fn go_on_in(&mut self, shared: &Shared, chunk: u32, next: u32) {
        if std::mem::take(&mut self.skipped) {
            self.kept.push(chunk);
        } else {
            self.free(shared, chunk);
        }
        self.settled = self.settled.filter(|settled| *settled != chunk);
        (self.chunk, self.is_blank) = (Some(next), false);
        self.cursor.next_chunk();
    }

    /// Notes what was lost in front of the first event, once that is there: nothing else says when it was. What was overwritten was in front of all
    /// that is there.
    fn begin(&mut self, shared: &Shared, chunk: u32) {
        let ticks = shared.chunk(chunk).and_then(|words| self.cursor.next_ticks(words, self.sparse));
        let (Some(ticks), Some(header)) = (ticks, shared.chunk_header(chunk)) else { return };
        self.begun = true;
        let lost = match shared.thread(self.entry).filter(|_| is_overwritten(shared)) {
            Some(entry) => [&entry.lost_entries, &entry.lost_exits],
            None => [&header.lost_entries, &header.lost_exits],
        };
        let [entries, exits] = lost.map(|lost| lost.load(Acquire));
        self.note_lost(self.lost(entries, exits), ticks.min(self.until), false);
    }

    /// Reads what there is of a chunk; true if anything came.
    fn take(&mut self, shared: &Shared, chunk: u32, unwinding: &mut Unwinding) -> bool {
        let before = self.cursor.offset;
        self.follow(shared, chunk, unwinding);
        let unwinding = Some((unwinding, self.process));
        let pairs = Pairs { open: &mut self.open, encoder: &mut self.encoder, unwinding };
        let sink = Encode::new(pairs, self.rates.as_deref(), &mut self.switching).until(self.until);
        let mut sink = sink.leaving(&mut self.of_go).waiting(&mut self.waiting);
        if self.sparse {
            if let Some(words) = shared.chunk_halves(chunk) {
                self.cursor.read_sparse(words, &mut sink);
            }
        } else if let Some(words) = shared.chunk(chunk) {
            let copy = self.history.as_mut().and_then(History::words);
            self.cursor.read_copying(words, copy, &mut sink);
        }
        sink.count(&mut self.totals);
        self.has_goroutines |= !self.of_go.is_empty();
        let got = self.cursor.offset != before;
        self.hole = self.hole.filter(|_| !got);
        got
    }

    /// Steps over an empty slot if it will stay empty: the thread is gone, or has left it behind for long. True if it did.
    fn skip_hole(&mut self, shared: &Shared, chunk: u32, next: Option<u32>, extent: Extent) -> bool {
        let Some(words) = shared.chunk(chunk) else { return false };
        let dead = if extent == Extent::Rest {
            next.is_some() || {
                let end = self.find_end(shared, chunk);
                self.cursor.more_behind(words, end)
            }
        } else {
            next.is_some() && (self.settled.is_some() || self.waited_enough(shared, chunk))
        };
        if dead {
            self.torn += 1;
            self.close_history();
            self.cursor.skip_hole(words, self.sparse);
            self.skipped = true;
        }
        dead
    }

    /// How far there may be anything in a chunk that its thread does not write to any more.
    fn find_end(&mut self, shared: &Shared, chunk: u32) -> usize {
        let end = (self.cursor.offset + 1).next_multiple_of(PAGE as usize);
        self.is_blank = end < CHUNK_SIZE && shared.is_blank(chunk, end);
        if self.is_blank { end } else { CHUNK_SIZE }
    }

    /// Has the wait for an empty slot been long enough? It counts for all chunks that were full when it began.
    fn waited_enough(&mut self, shared: &Shared, chunk: u32) -> bool {
        let (since, last) = *self.hole.get_or_insert_with(|| (Instant::now(), last_full(shared, chunk)));
        let enough = since.elapsed() >= HOLE;
        if enough {
            self.hole = None;
            self.settled = Some(last);
        }
        enough
    }

    fn free(&mut self, shared: &Shared, chunk: u32) {
        let has_late = self.kept.contains(&chunk) || self.skipped;
        // What reading left: the room behind the limit, and in a chunk that was kept a late word.
        if let Some(words) = shared.chunk(chunk).filter(|_| has_late || !std::mem::take(&mut self.is_blank)) {
            let from = if has_late { CHUNK_DATA } else { CHUNK_LIMIT };
            for word in &words[from / 8..CHUNK_SIZE / 8] {
                word.store(0, Relaxed);
            }
        }
        shared.free_chunk(chunk);
        self.freed += 1;
    }

    /// The time of the last event that was read.
    pub fn last_ticks(&self) -> u64 {
        self.cursor.last_ticks()
    }

    /// Are calls open, as far as it is read?
    pub fn has_open_calls(&self) -> bool {
        !self.open.is_empty() || self.switching.holds_events() || self.waiting_events() > 0
    }

    /// Encodes what is left of a thread, and gives its chunks back. `process_goes_on`: the thread has ended, and its process has not.
    /// `now`: in the clock's units.
    pub fn end(
        &mut self,
        shared: &Shared,
        (process_goes_on, now): (bool, u64),
        output: &mut Output<'_>,
        unwinding: &mut Unwinding,
    ) {
        if self.sparse {
            let pairs = Pairs { open: &mut self.open, encoder: &mut self.encoder, unwinding: None };
            let mut sink = Encode::new(pairs, self.rates.as_deref(), &mut self.switching).until(self.until);
            self.cursor.flush_sparse(&mut sink);
            sink.count(&mut self.totals);
        }
        self.active = false;
        self.encode_rest(shared, (true, now), unwinding);
        if process_goes_on && self.has_open_calls() {
            let (ticks, site) = (self.cursor.last_ticks(), SiteId::default());
            self.encoder.push(Event { ticks, site, kind: EventKind::ThreadEnded });
        }
        output.events(&mut self.encoder);
        // The last chunk, which no link leads out of.
        let kept = self.kept.clone();
        self.chunk.into_iter().chain(kept).for_each(|chunk| self.free(shared, chunk));
    }

    /// Writes what is encoded, losses included. `now`: in the clock's units.
    pub fn flush(&mut self, shared: &Shared, now: u64, output: &mut Output<'_>, unwinding: &mut Unwinding) {
        self.encode_rest(shared, (false, now), unwinding);
        output.events(&mut self.encoder);
    }

    /// Notes what was lost between two chunks, where it is missing.
    fn note_gap(&mut self, shared: &Shared, next: u32, unwinding: &mut Unwinding) {
        let Some(header) = shared.chunk_header(next).filter(|_| !is_overwritten(shared)) else { return };
        let lost = self.lost(header.lost_entries.load(Relaxed), header.lost_exits.load(Relaxed));
        if lost == (self.totals.lost_entries, self.totals.lost_exits) {
            return;
        }
        let unwinding = Some((unwinding, self.process));
        let mut pairs = Pairs { open: &mut self.open, encoder: &mut self.encoder, unwinding };
        self.switching.release(false, &mut pairs);
        self.note_lost(lost, self.cursor.last_ticks(), true);
    }

    /// Encodes events that are held back, what was switched off behind them, and losses.
    fn encode_rest(&mut self, shared: &Shared, (is_over, now): (bool, u64), unwinding: &mut Unwinding) {
        let unwinding = Some((unwinding, self.process));
        let mut pairs = Pairs { open: &mut self.open, encoder: &mut self.encoder, unwinding };
        if !self.switching.is_empty() {
            self.history.iter_mut().for_each(History::close);
        }
        // All of a thread that is quiet is read.
        if !self.active && self.waiting.is_empty() {
            self.switching.end_before(u64::MAX, &mut pairs);
        }
        self.switching.release(false, &mut pairs);
        self.note_loss(shared, is_over, now);
    }

    /// Notes what the thread has lost behind all that is read. What was lost in front of a chunk that is not read yet is noted there.
    fn note_loss(&mut self, shared: &Shared, is_over: bool, now: u64) {
        let Some(entry) = shared.thread(self.entry) else { return };
        let lost = self.lost(entry.lost_entries.load(Acquire), entry.lost_exits.load(Acquire));
        let is_linked = |link: &AtomicU32| link.load(Acquire) != 0;
        // What is overwritten meanwhile lies in front of what is read at last.
        let is_full = !is_overwritten(shared)
            && match self.chunk.map(|chunk| shared.chunk_header(chunk)) {
                Some(Some(header)) => self.cursor.at_end() && !is_linked(&header.next),
                Some(None) => false,
                // A thread that has had no chunk yet: it has lost all until now.
                None => !is_linked(&entry.first_chunk),
            };
        if is_over || is_full {
            self.note_lost(lost, if self.begun { self.cursor.last_ticks() } else { now }, is_full);
        }
    }

    /// `follows`: it was lost right behind all that is read.
    fn note_lost(&mut self, (entries, exits): (u64, u64), ticks: u64, follows: bool) {
        let (more_entries, more_exits) = (entries - self.totals.lost_entries, exits - self.totals.lost_exits);
        if (more_entries, more_exits) == (0, 0) {
            return;
        }
        (self.totals.lost_entries, self.totals.lost_exits) = (entries, exits);
        let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let kind = EventKind::Lost { entries: bounded(more_entries), exits: bounded(more_exits) };
        // Returns of goroutines are counted with the thread's.
        let ended = if follows && !self.has_goroutines { bounded(more_exits) } else { 0 };
        self.push_loss(Event { ticks, site: Default::default(), kind }, ended);
    }

    /// So many that the program says were lost, with those that reading has skipped; never fewer than before.
    fn lost(&self, entries: u64, exits: u64) -> (u64, u64) {
        let entries = entries.saturating_add(self.torn);
        (entries.max(self.totals.lost_entries), exits.max(self.totals.lost_exits))
    }
}

/// Do threads use their own oldest chunks again?
fn is_overwritten(shared: &Shared) -> bool {
    shared.control().overwrite.load(Relaxed) != 0
}

/// The last chunk, from a full one on, that is full too.
fn last_full(shared: &Shared, full: u32) -> u32 {
    let next =
        |chunk: u32| shared.chunk_header(chunk).and_then(|header| header.next.load(Acquire).checked_sub(1));
    let mut last = full;
    for _ in 0..LOOK_AHEAD {
        match next(last).filter(|after| next(*after).is_some()) {
            Some(after) => last = after,
            None => break,
        }
    }
    last
}

#[cfg(test)]
mod tests;

//! Reads the events of one thread: follows its chunks, and encodes the events in them.

mod delayed;
pub(crate) mod encode;
mod forks;
pub(crate) mod history;
mod losses;
mod moves;
pub(crate) mod paired_output;
pub(crate) mod switching;
pub(crate) mod waiting;

use crate::callers::Unwinding;
use crate::governor::Rates;
use crate::metadata::SwitchedOff;
use crate::output::Output;
use crate::pairing::OpenCalls;
use crate::raw::{Cursor, GoEvents};
use crate::shm::Shared;
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE, PAGE};
use calltap_trace::{Event, EventKind, Loss, Process, SiteId, ThreadEncoder, ThreadId};
use encode::Encode;
use forks::Sought;
use history::History;
use paired_output::PairedOutput;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};
use switching::Switching;
use waiting::Waiting;

/// Time for which a slot may stay empty after its chunk is full. Later it is never written: its
/// writer was a hook that a signal handler interrupted and left by siglongjmp.
const HOLE: Duration = Duration::from_millis(100);
/// Number of chunks that are looked ahead for full ones.
const LOOK_AHEAD: usize = 4096;

/// The chunks of a thread that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Full chunks.
    Full,
    /// Full chunks, and the one being filled.
    Partial,
    /// All chunks of a thread that writes no more.
    Rest,
}

/// A thread, and how far it is read.
pub struct Reader {
    /// Index of its entry in the table of threads.
    pub entry: u32,
    /// Index of its process.
    pub process: u32,
    /// Thread id; 0 once another thread has it.
    pub tid: u32,
    /// Address of its control block, above its first stack; 0 if it is not there.
    pub block: u64,
    /// Numbers of events in the trace.
    pub totals: Loss,
    /// Whether events were read since this was last cleared.
    pub active: bool,
    /// Whether the events lost in front of the first event were noted.
    begun: bool,
    /// Whether the last pass left chunks unread.
    pub behind: bool,
    /// Number of chunks that were returned to the pool.
    pub freed: u64,
    sparse: bool,
    chunk: Option<u32>,
    cursor: Cursor,
    open: OpenCalls,
    encoder: ThreadEncoder,
    /// Start of the wait for an empty slot, and the last chunk for which that wait counts.
    hole: Option<(Instant, u32)>,
    /// The last chunk whose empty slots stay empty.
    settled: Option<u32>,
    /// Whether a slot of this chunk was skipped.
    skipped: bool,
    /// Whether the pages of this chunk behind that of the cursor were never written to.
    is_blank: bool,
    /// Chunks with a skipped slot. They are kept until the thread ends: a late write to the slot
    /// must not hit a chunk that is another thread's by then.
    kept: Vec<u32>,
    torn: u64,
    /// Number of lost events after which calls end without returns.
    lost_jumps: u64,
    /// Counts events by site.
    rates: Option<Arc<Rates>>,
    /// Functions that were disabled at times up to which events are not read yet.
    switching: Switching,
    /// Events behind this time are left out.
    until: u64,
    /// Events of goroutines, which may continue in other threads.
    pub of_go: GoEvents,
    /// Whether there were any.
    has_goroutines: bool,
    /// Whether a history is kept for children that are forked.
    keeps_history: bool,
    history: Option<History>,
    /// The event of the thread behind which a child was forked, and the calls that were open then,
    /// once they are known.
    sought: Option<Sought>,
    /// The process of the reader's thread, if it is the first one of a forked process and has calls
    /// that were open at the fork. They are written with its first event.
    copied: Option<Process>,
    /// Events that wait for other threads of the process.
    waiting: Waiting,
}

impl Reader {
    /// Creates a reader at the start of a thread that is called `id` in the trace.
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
            block: 0,
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
            lost_jumps: 0,
            rates,
            switching: Switching::default(),
            until: u64::MAX,
            of_go: GoEvents::default(),
            has_goroutines: false,
            keeps_history: false,
            history: None,
            sought: None,
            copied: None,
            waiting: Waiting::default(),
        }
    }

    /// Leaves out events behind `ticks`.
    pub fn until(self, ticks: u64) -> Reader {
        Reader { until: ticks, ..self }
    }

    /// Announces that functions of the process were disabled: their open calls are cut when all
    /// earlier events are read. `threads`: number of threads that are read.
    pub fn switch_off(&mut self, off: &Arc<SwitchedOff>, threads: usize) {
        self.switching.announce(off, threads);
    }

    /// Reads at most `most` chunks of the given extent. Returns whether events were found.
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
        // The number of chunks bounds the loop: the program can write to the links, and they may
        // form a circle.
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
            // The thread's cursor is still in this chunk until the next one holds an event.
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

    /// Returns the chunk to read, at first the thread's first one, if it has one.
    fn begun_chunk(&mut self, shared: &Shared) -> Option<u32> {
        let first = || shared.thread(self.entry)?.first_chunk.load(Acquire).checked_sub(1);
        self.chunk = self.chunk.or_else(first);
        self.chunk
    }

    /// Releases a chunk that is read to its end, and goes on to the next.
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

    /// Reads the events of a chunk that are there. Returns whether it found any.
    fn take(&mut self, shared: &Shared, chunk: u32, unwinding: &mut Unwinding) -> bool {
        let before = self.cursor.offset;
        self.follow(shared, chunk, unwinding);
        let unwinding = Some((unwinding, self.process));
        let pairs = PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding };
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

    /// Skips an empty slot that will stay empty: the thread has ended, or has left it behind for
    /// long. Returns whether it did.
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

    /// Returns the offset behind which a chunk of an ended thread holds no events.
    fn find_end(&mut self, shared: &Shared, chunk: u32) -> usize {
        let end = (self.cursor.offset + 1).next_multiple_of(PAGE as usize);
        self.is_blank = end < CHUNK_SIZE && shared.is_blank(chunk, end);
        if self.is_blank { end } else { CHUNK_SIZE }
    }

    /// Whether the wait for an empty slot has been long enough. It counts for all chunks that were
    /// full when it began.
    fn waited_enough(&mut self, shared: &Shared, chunk: u32) -> bool {
        let (since, last) = *self.hole.get_or_insert_with(|| (Instant::now(), last_full(shared, chunk)));
        let enough = since.elapsed() >= HOLE;
        if enough {
            self.hole = None;
            self.settled = Some(last);
        }
        enough
    }

    /// Clears a chunk and returns it to the pool.
    fn free(&mut self, shared: &Shared, chunk: u32) {
        let has_late = self.kept.contains(&chunk) || self.skipped;
        // Clears what reading left: the bytes behind the limit, and in a chunk with a skipped slot
        // a late word.
        if let Some(words) = shared.chunk(chunk).filter(|_| has_late || !std::mem::take(&mut self.is_blank)) {
            let from = if has_late { CHUNK_DATA } else { CHUNK_LIMIT };
            for word in &words[from / 8..CHUNK_SIZE / 8] {
                word.store(0, Relaxed);
            }
        }
        shared.free_chunk(chunk);
        self.freed += 1;
    }

    /// Returns the time of the newest event that was read.
    pub(crate) fn last_ticks(&self) -> u64 {
        self.cursor.last_ticks()
    }

    /// Whether calls are open, or events held back, as far as the thread is read.
    pub(crate) fn has_open_calls(&self) -> bool {
        !self.open.is_empty() || self.switching.holds_events() || self.waiting_events() > 0
    }

    /// Encodes the remaining events of a thread, and returns its chunks. `process_goes_on`: the
    /// thread has ended, and its process has not. `now` is in the clock's units.
    pub fn end(
        &mut self,
        shared: &Shared,
        (process_goes_on, now): (bool, u64),
        output: &mut Output<'_>,
        unwinding: &mut Unwinding,
    ) {
        if self.sparse {
            let pairs = PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding: None };
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
        // The thread's last chunk has no link to a next one.
        let kept = self.kept.clone();
        self.chunk.into_iter().chain(kept).for_each(|chunk| self.free(shared, chunk));
    }

    /// Writes the encoded events, losses included. `now` is in the clock's units.
    pub fn flush(&mut self, shared: &Shared, now: u64, output: &mut Output<'_>, unwinding: &mut Unwinding) {
        self.encode_rest(shared, (false, now), unwinding);
        output.events(&mut self.encoder);
    }

    /// Encodes events that are held back, the cuts of disabled functions behind them, and losses.
    fn encode_rest(&mut self, shared: &Shared, (is_over, now): (bool, u64), unwinding: &mut Unwinding) {
        let unwinding = Some((unwinding, self.process));
        let mut pairs = PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding };
        if !self.switching.is_empty() {
            self.history.iter_mut().for_each(History::close);
        }
        // All events of a quiet thread are read.
        if !self.active && self.waiting.is_empty() {
            self.switching.end_before(u64::MAX, &mut pairs);
        }
        self.switching.release(false, &mut pairs);
        self.note_loss(shared, is_over, now);
    }
}

/// Returns the last of the full chunks that follow a full one.
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

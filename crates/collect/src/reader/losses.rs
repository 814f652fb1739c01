//! Losses of a thread: events that are in no chunk, noted at the places where they are missing.

use super::*;
use crate::pairing::ALL;
use calltap_abi::{ChunkHeader, ThreadEntry};

/// Numbers of events that a thread has lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lost {
    entries: u64,
    exits: u64,
    jumps: u64,
}

impl Lost {
    /// Returns the losses of a thread until now.
    fn of_thread(entry: &ThreadEntry) -> Lost {
        let [entries, exits, jumps] =
            [&entry.lost_entries, &entry.lost_exits, &entry.lost_jumps].map(|lost| lost.load(Acquire));
        Lost { entries, exits, jumps }
    }

    /// Returns the losses before a chunk.
    fn before(header: &ChunkHeader) -> Lost {
        let [entries, exits, jumps] =
            [&header.lost_entries, &header.lost_exits, &header.lost_jumps].map(|lost| lost.load(Acquire));
        Lost { entries, exits, jumps }
    }
}

impl Reader {
    /// Records the losses before the first event, with that event's time: the agent stores no time
    /// for them. Overwritten events precede all readable ones.
    pub(super) fn begin(&mut self, shared: &Shared, chunk: u32) {
        let ticks = shared.chunk(chunk).and_then(|words| self.cursor.next_ticks(words, self.sparse));
        let (Some(ticks), Some(header)) = (ticks, shared.chunk_header(chunk)) else { return };
        self.begun = true;
        let lost = match shared.thread(self.entry).filter(|_| is_overwritten(shared)) {
            Some(entry) => Lost::of_thread(entry),
            None => Lost::before(header),
        };
        self.note_lost(self.lost(lost), ticks.min(self.until), false);
    }

    /// Notes the events lost between two chunks, at their place.
    pub(super) fn note_gap(&mut self, shared: &Shared, next: u32, unwinding: &mut Unwinding) {
        let Some(header) = shared.chunk_header(next).filter(|_| !is_overwritten(shared)) else { return };
        let lost = self.lost(Lost::before(header));
        if lost == self.noted() {
            return;
        }
        let unwinding = Some((unwinding, self.process));
        let mut pairs = PairedOutput { open: &mut self.open, encoder: &mut self.encoder, unwinding };
        self.switching.release(false, &mut pairs);
        self.note_lost(lost, self.cursor.last_ticks(), true);
    }

    /// Notes the events that the thread has lost behind all that is read. Losses before an unread
    /// chunk are noted with that chunk.
    pub(super) fn note_loss(&mut self, shared: &Shared, is_over: bool, now: u64) {
        let Some(entry) = shared.thread(self.entry) else { return };
        let lost = self.lost(Lost::of_thread(entry));
        let is_linked = |link: &AtomicU32| link.load(Acquire) != 0;
        // Events overwritten meanwhile precede those that are read at last.
        let is_full = !is_overwritten(shared)
            && match self.chunk.map(|chunk| shared.chunk_header(chunk)) {
                Some(Some(header)) => self.cursor.at_end() && !is_linked(&header.next),
                Some(None) => false,
                // A thread without a first chunk has lost all events until now.
                None => !is_linked(&entry.first_chunk),
            };
        if is_over || is_full {
            self.note_lost(lost, if self.begun { self.cursor.last_ticks() } else { now }, is_full);
        }
    }

    /// Encodes losses of which `lost` says more than was noted.
    /// `follows`: the events were lost right behind all that are read.
    fn note_lost(&mut self, lost: Lost, ticks: u64, follows: bool) {
        let noted = self.noted();
        let more = |of: fn(&Lost) -> u64| u32::try_from(of(&lost) - of(&noted)).unwrap_or(u32::MAX);
        let (entries, exits) = (more(|lost| lost.entries), more(|lost| lost.exits));
        let has_jumps = lost.jumps > noted.jumps;
        (self.totals.lost_entries, self.totals.lost_exits) = (lost.entries, lost.exits);
        self.lost_jumps = lost.jumps;
        // Returns of goroutines are counted with the thread's.
        let ended = match follows && !self.has_goroutines {
            true if has_jumps => ALL,
            true => exits,
            false => 0,
        };
        if (entries, exits, has_jumps) != (0, 0, false) {
            let kind = EventKind::Lost { entries, exits };
            self.push_loss(Event { ticks, site: Default::default(), kind }, ended);
        }
    }

    /// Returns the losses that were noted before.
    fn noted(&self) -> Lost {
        let Loss { lost_entries: entries, lost_exits: exits, .. } = self.totals;
        Lost { entries, exits, jumps: self.lost_jumps }
    }

    /// Returns the losses that the program counted, with the slots that reading has skipped; never
    /// fewer than before.
    fn lost(&self, counted: Lost) -> Lost {
        let noted = self.noted();
        Lost {
            entries: counted.entries.saturating_add(self.torn).max(noted.entries),
            exits: counted.exits.max(noted.exits),
            jumps: counted.jumps.max(noted.jumps),
        }
    }
}

/// Whether threads reuse their own oldest chunks.
fn is_overwritten(shared: &Shared) -> bool {
    shared.control().overwrite.load(Relaxed) != 0
}

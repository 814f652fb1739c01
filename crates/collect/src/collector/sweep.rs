//! Sweeps: finds threads that have ended, and reads chunks that are not full.

use super::Collector;
use crate::living::Living;
use crate::reader::{Extent, Reader};
use calltap_abi::ThreadState;
use calltap_process::proc;
use calltap_trace::{Record, Thread};
use std::sync::atomic::Ordering::*;

/// Ended threads are looked for at once where at least this many threads have begun since the last
/// sweep, and at least one in `BEGUN_SHARE` of those that are read. A program that begins threads
/// one after the other has few at a time, and each that is not known to have ended keeps a chunk.
/// By the share, each thread that begins pays for a bounded part of the lists of threads.
const BEGUN: u32 = 16;
const BEGUN_SHARE: u32 = 8;

/// Number of ended threads that are read before the first of them is written: until then, each may
/// have the buffers of a large chunk.
const ENDED_AT_ONCE: usize = 64;

/// A thread that has ended.
struct Ended {
    /// Number of its reader.
    place: usize,
    /// Whether it has open calls, and its process goes on.
    process_goes_on: bool,
}

/// The threads that a sweep reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Threads that have ended.
    Ended,
    /// Threads that have made no events for a while, and those that have ended.
    Quiet,
    /// Threads that have ended with open calls, as these calls do not continue.
    Open,
    /// All threads, as the recording ends.
    All,
}

impl Collector<'_> {
    /// Reads the unfilled chunks of the threads that `which` selects, and ends the readers of
    /// threads that have ended.
    pub(super) fn sweep(&mut self, which: Sweep) {
        let last = which == Sweep::All;
        if which != Sweep::Open {
            self.threads.begun = 0;
        }
        self.read_switches(last);
        let (mut ended, mut living) = (Vec::new(), Living::default());
        for place in 0..self.readers.len() {
            ended.extend(self.sweep_thread(place, which, &mut living));
            if ended.len() == ENDED_AT_ONCE && !last {
                self.end_threads(&mut ended, last);
            }
        }
        self.end_threads(&mut ended, last);
    }

    /// Reads the unfilled chunks of the thread at a place, if `which` selects it. Returns the
    /// thread if it has ended.
    fn sweep_thread(&mut self, place: usize, which: Sweep, living: &mut Living) -> Option<Ended> {
        let last = which == Sweep::All;
        let reader = self.readers[place].as_mut()?;
        if which == Sweep::Open && !reader.has_open_calls() {
            return None;
        }
        if which == Sweep::Quiet && reader.active && !self.overwrite {
            reader.active = false;
            return None;
        }
        // Ids of another pid namespace cannot be looked up: such threads end with their process, at
        // the end.
        let process = self.processes.get(reader.process);
        let pid = process.map(|process| process.pid).filter(|_| {
            let entry = self.shared.process(reader.process);
            entry.map_or(0, |entry| entry.pid_namespace.load(Relaxed)) == self.processes.namespace
        });
        let replaced = process.is_some_and(|process| process.replaced);
        let gone = reader.tid == 0 || pid.is_some_and(|pid| !living.has(pid, reader.tid));
        let over = last || gone || replaced;
        if !over && (self.overwrite || matches!(which, Sweep::Open | Sweep::Ended)) {
            return None;
        }
        let extent = if over { Extent::Rest } else { Extent::Partial };
        reader.read(self.shared, extent, u32::MAX, &mut self.output, &mut self.unwinding);
        let goes_on = || reader.tid == 0 || pid.is_some_and(proc::goes_on);
        over.then(|| Ended { place, process_goes_on: gone && reader.has_open_calls() && goes_on() })
    }

    /// Ends the readers of these threads.
    fn end_threads(&mut self, ended: &mut Vec<Ended>, last: bool) {
        if ended.is_empty() {
            return;
        }
        if !last {
            // The kernel may have recorded more of these threads meanwhile.
            self.read_switches(false);
        }
        self.complete_moves(last);
        for Ended { place, process_goes_on } in ended.drain(..) {
            if let Some(reader) = self.readers[place].take() {
                self.end(*reader, process_goes_on);
            }
        }
    }

    /// Ends the readers of ended threads early, where many threads have begun.
    pub(super) fn end_short_threads(&mut self) {
        if self.threads.begun >= BEGUN.max(self.threads.count / BEGUN_SHARE) {
            self.sweep(Sweep::Ended);
        }
    }

    /// Ends a reader: writes its remaining events and totals, and frees the thread entry.
    fn end(&mut self, mut reader: Reader, process_goes_on: bool) {
        self.threads.count -= 1;
        self.disown(&reader);
        let freed = reader.freed;
        let now = self.ticks_of(self.this_moment());
        reader.end(self.shared, (process_goes_on, now), &mut self.output, &mut self.unwinding);
        self.shared.tell_returned((reader.freed - freed) as u32);
        self.take_goroutines_of(&mut reader);
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.totals.events, reader.totals.entries + reader.totals.exits);
        add(&mut self.ended_calls, reader.totals.entries);
        add(&mut self.totals.lost_entries, reader.totals.lost_entries);
        add(&mut self.totals.lost_exits, reader.totals.lost_exits);
        self.output.record(&Record::Loss(reader.totals));
        if let Some(switches) = &mut self.kernel.switches {
            // A former owner of a thread id that is used again has none.
            if let Some(comm) = switches.name_of(reader.totals.thread).filter(|_| reader.tid != 0) {
                let thread = Thread::new(reader.totals.thread, reader.process, reader.tid, comm);
                self.output.record(&Record::Thread(thread));
            }
            switches.end(reader.totals.thread, &mut self.output);
        }
        if let Some(kernel) = &mut self.kernel.events {
            kernel.end(reader.totals.thread, &mut self.output);
        }
        self.output.end(reader.totals.thread);
        reader.leave_stacks(&mut self.moves.left);
        let entry = reader.entry;
        self.keep_history(reader);
        let (index, Some(entry)) = (entry, self.shared.thread(entry)) else { return };
        if let Ok(mut sums) = self.sums.lock() {
            sums.take(self.shared, entry);
        }
        entry.state.store(ThreadState::Free as u32, Release);
        self.shared.free_thread(index);
    }
}

//! Coroutines that continue in other threads: pairs the events of several threads in the order of
//! their times, and moves frames with the stack on which they lie.
//!
//! Only one thread runs on a stack at a time. A thread continues on a stack only after the previous
//! thread's events on it are in that thread's ring. So once all rings have been read after a
//! moment, all events from before that moment that matter to each other are there, as with
//! goroutines.

use super::Collector;
use crate::pairing::OpenCalls;
use crate::reader::{Extent, Reader};
use calltap_abi::event::code;
use calltap_process::memory::maps;
use calltap_process::proc;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// Number of waiting events from which all rings are read and the events paired.
const MAX_WAITING: usize = 1 << 17;

/// How threads continue on each other's stacks.
#[derive(Default)]
pub(super) struct Moves {
    /// Frames on stacks that threads had left when they ended, by process.
    pub left: HashMap<u32, OpenCalls>,
    /// Whether events of threads wait for those of other threads.
    pub has_waiting: bool,
    /// Number of threads seen when [`Collector::watch_stacks`] last ran.
    watched: u32,
}

impl Collector<'_> {
    /// Makes the readers of processes with several threads watch for each other's stacks.
    /// Goroutines move with their stacks in their own way.
    pub(super) fn watch_stacks(&mut self) {
        if std::mem::replace(&mut self.moves.watched, self.totals.threads) == self.totals.threads {
            return;
        }
        let mut threads: HashMap<u32, u32> = HashMap::new();
        for reader in self.readers.iter().flatten() {
            *threads.entry(reader.process).or_default() += 1;
        }
        let left = &self.moves.left;
        let has_others = |process: u32| {
            left.contains_key(&process) || threads.get(&process).is_some_and(|count| *count > 1)
        };
        if !self.goroutines.are_known() {
            let watching = self.readers.iter_mut().flatten().filter(|reader| has_others(reader.process));
            watching.for_each(|reader| reader.watch_stacks());
        }
    }

    /// Finds the lengths of threads' own stacks where they matter: that of the mapping below the
    /// control block, unless the mapping has other blocks as well.
    pub(super) fn measure_own_stacks(&mut self) {
        let mut readers = self.readers.iter().flatten();
        let asking = readers.find(|reader| reader.asks_own_length().is_some());
        let Some(process) = asking.map(|reader| reader.process) else { return };
        let pid = self.shared.process(process).and_then(proc::find_pid);
        let regions = pid.and_then(|pid| maps::read(pid).ok()).unwrap_or_default();
        let of_process = || self.readers.iter().flatten().filter(|reader| reader.process == process);
        let blocks: Vec<u64> = of_process().map(|reader| reader.block).collect();
        let own = self.readers.iter_mut().flatten().filter(|reader| reader.process == process);
        for reader in own {
            let Some(block) = reader.asks_own_length() else { continue };
            let region = regions.iter().find(|region| (region.start..region.end).contains(&block));
            let has_others = |start| blocks.iter().any(|other| (start..block).contains(other));
            let start = region.map(|region| region.start).filter(|start| !has_others(*start));
            reader.set_own_length(start.map(|start| block - start));
        }
    }

    /// Makes the events of all threads wait whose process has a thread with waiting events. Returns
    /// whether many wait.
    pub(super) fn wait_with_others(&mut self) -> bool {
        let waiting = self.readers.iter().flatten().filter(|reader| reader.is_waiting());
        let processes: HashSet<u32> = waiting.map(|reader| reader.process).collect();
        self.moves.has_waiting = !processes.is_empty();
        if self.moves.has_waiting {
            let all = self.readers.iter_mut().flatten();
            all.filter(|reader| processes.contains(&reader.process)).for_each(|reader| reader.wait());
        }
        self.readers.iter().flatten().map(|reader| reader.waiting_events()).sum::<usize>() > MAX_WAITING
    }

    /// Pairs the waiting events until now.
    pub(super) fn read_moves(&mut self) {
        if !self.moves.has_waiting || self.overwrite {
            return;
        }
        let now = self.now();
        // A thread that has begun since threads were last looked for may have run on the stacks of
        // others before this moment.
        self.find_threads();
        for _ in 0..=self.shared.chunk_count() {
            self.pass(Extent::Partial);
            // A thread's unread events are no older than its newest read event. So the events that
            // wait are no more than one pass reads.
            let behind = self.readers.iter().flatten().filter(|reader| reader.behind);
            let until = behind.map(|reader| reader.last_ticks()).min().unwrap_or(now).min(now);
            self.release_moves(until);
            if until == now {
                break;
            }
        }
    }

    /// Pairs the waiting events of threads that have ended, which are all from before now; with
    /// `last`, of all threads.
    pub(super) fn complete_moves(&mut self, last: bool) {
        self.wait_with_others();
        if last || self.overwrite {
            self.release_moves(u64::MAX);
        } else {
            self.read_moves();
        }
    }

    /// Pairs the events from before `until`. All threads have been read until then.
    pub(super) fn release_moves(&mut self, until: u64) {
        let front = |(place, reader): (usize, &Option<Box<Reader>>)| {
            Some(Reverse((reader.as_ref()?.next_waiting()?, place)))
        };
        let mut next: BinaryHeap<_> = self.readers.iter().enumerate().filter_map(front).collect();
        while let Some(Reverse((ticks, place))) = next.pop()
            && ticks < until
        {
            self.move_stack_to(place);
            let Some(reader) = self.readers[place].as_mut() else { continue };
            reader.release_waiting(&mut self.output, &mut self.unwinding);
            next.extend(reader.next_waiting().map(|ticks| Reverse((ticks, place))));
        }
    }

    /// Moves frames to the thread at `place` if its next event lies on a stack that another thread
    /// has left.
    fn move_stack_to(&mut self, place: usize) {
        let own = self.readers[place].as_ref();
        let Some((own, raw)) = own.and_then(|own| Some((own, own.seeks_stack()?))) else { return };
        let nearest_own = own.distance_above(raw).unwrap_or(u64::MAX);
        let distance = |(other, reader): (usize, &Option<Box<Reader>>)| {
            let reader = reader.as_ref().filter(|reader| other != place && own.may_continue(reader, raw))?;
            Some((reader.distance_above(raw)?, other))
        };
        let nearest = self.readers.iter().enumerate().filter_map(distance).min();
        let frames = match nearest.filter(|(above, _)| *above < nearest_own) {
            Some((_, other)) => self.readers[other].as_mut().map(|other| other.give_stack(raw)),
            // A coroutine that an ended thread has left may have been dropped, and another one have
            // its stack: only a return shows that the frame lives.
            None if raw.code() == code::EXIT => {
                let left = self.moves.left.get_mut(&own.process);
                left.map(|left| left.give_stack(raw, false).0)
            }
            None => None,
        };
        let frames = frames.unwrap_or_default();
        self.readers[place].iter_mut().for_each(|own| own.take_stack(&frames));
    }
}

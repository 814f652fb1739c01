//! The causal chain of a slow call through threads: what its thread did, which threads ended its
//! waits, and what these did meanwhile.
//!
//! The chain follows from the kernel's records alone; questions about open calls are collected on
//! the way and answered later, in one pass ([`Stacks`]).

use super::lane::{Readied, Segment, State, ThreadStates, Wait, Within};
use super::parks::{Callers, Parks};
use super::runs::Runs;
use super::stacks::{Moment, Run, Stacks};
use crate::error::Error;
use crate::sources::source::Source;
use calltap_trace::{ThreadId, Waking};
use std::collections::{BTreeMap, HashMap};

/// Maximum length of a chain: a waker, its waker, and so on.
const MAX_LENGTH: usize = 4;
/// Number of waits of one thread whose wakers are followed, the longest ones.
const FOLLOWED: usize = 8;
/// Smallest share of the explained time, in thousandths, for which a wait is followed.
const SMALL: u64 = 10;

/// A time interval, ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The activity of a thread in an interval.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) thread: ThreadId,
    pub(crate) time: Span,
    pub(crate) ran: u64,
    pub(crate) runnable: u64,
    pub(crate) unknown: u64,
    /// Whether the thread is a goroutine.
    pub(crate) is_goroutine: bool,
    /// Functions in which the thread ran.
    pub(crate) run: Run,
    /// Functions in which it is unknown whether a goroutine ran.
    pub(crate) unseen: Run,
    pub(crate) waits: Vec<Waited>,
}

/// A wait in a chain.
#[derive(Debug)]
pub(crate) struct Waited {
    /// Part of the wait in the explained interval.
    pub(crate) ticks: u64,
    pub(crate) time: Span,
    pub(crate) within: Within,
    /// The calls that waited.
    pub(crate) at: Moment,
    pub(crate) waker: Waker,
    /// Whether calltap caused the wait.
    pub(crate) is_tracing: bool,
    /// The activity of the waker meanwhile.
    pub(crate) meanwhile: Option<Box<Chain>>,
}

/// The waker that ended a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Waker {
    Unknown,
    Interrupt,
    /// The recorder.
    Recorder,
    /// A thread of another process.
    Other {
        pid: u32,
        comm: String,
    },
    /// A thread of a traced process that has no events.
    Untraced {
        tid: u32,
        comm: String,
    },
    /// A traced thread or goroutine, and its calls at the waking.
    Thread(ThreadId, Moment),
    /// The Go runtime, and its calls at the waking if they are known.
    GoRuntime(Option<Moment>),
    /// No record says which goroutine ends the waits of others.
    NotRecorded,
}

/// Builds chains.
pub(crate) struct Chains<'s> {
    source: &'s dyn Source,
    lanes: HashMap<ThreadId, ThreadStates>,
    goroutines: HashMap<ThreadId, Parks>,
    /// Times in which threads ran goroutines, once needed.
    runs: Option<Runs>,
    callers: Callers,
    /// Threads by kernel id, without goroutines.
    threads: BTreeMap<u32, Vec<ThreadId>>,
    has_goroutines: bool,
    pub(crate) stacks: Stacks,
}

impl<'s> Chains<'s> {
    pub(crate) fn new(source: &'s dyn Source) -> Chains<'s> {
        let mut threads = BTreeMap::<u32, Vec<ThreadId>>::new();
        for thread in source.meta().threads.iter().filter(|thread| thread.goroutine.is_none()) {
            threads.entry(thread.tid).or_default().push(thread.id);
        }
        let has_goroutines = source.meta().threads.iter().any(|thread| thread.goroutine.is_some());
        Chains {
            source,
            lanes: HashMap::new(),
            goroutines: HashMap::new(),
            runs: None,
            callers: Callers::new(source.meta()),
            threads,
            has_goroutines,
            stacks: Stacks::default(),
        }
    }

    /// Returns the kernel's records of a thread.
    pub(crate) fn lane(&mut self, thread: ThreadId) -> Result<&ThreadStates, Error> {
        if !self.lanes.contains_key(&thread) {
            let lane = ThreadStates::new(self.source, thread)?;
            self.lanes.insert(thread, lane);
        }
        Ok(&self.lanes[&thread])
    }

    fn is_goroutine(&self, thread: ThreadId) -> bool {
        let thread = self.source.meta().threads.get(thread.0 as usize);
        thread.is_some_and(|thread| thread.goroutine.is_some())
    }

    /// Returns the states of a thread or goroutine from `from` to `to`, oldest first.
    pub(crate) fn segments(&mut self, thread: ThreadId, from: u64, to: u64) -> Result<Vec<Segment>, Error> {
        if !self.is_goroutine(thread) {
            return Ok(self.lane(thread)?.segments(from, to));
        }
        let runs = self.take_runs()?;
        let segments = self.segments_of_goroutine(thread, &runs, from, to);
        self.runs = Some(runs);
        segments
    }

    fn take_runs(&mut self) -> Result<Runs, Error> {
        match self.runs.take() {
            Some(runs) => Ok(runs),
            None => Runs::new(self.source),
        }
    }

    /// Whether it was recorded when threads ran goroutines.
    pub(crate) fn knows_runs(&mut self) -> Result<bool, Error> {
        let runs = self.take_runs()?;
        Ok(self.runs.insert(runs).are_known())
    }

    /// Whether it was recorded which goroutines end the waits of others.
    pub(crate) fn know_wakers(&mut self) -> Result<bool, Error> {
        let runs = self.take_runs()?;
        Ok(self.runs.insert(runs).tell_wakers())
    }

    /// Returns the waits of a goroutine.
    pub(crate) fn parks(&mut self, goroutine: ThreadId) -> &Parks {
        let (source, callers) = (self.source, &self.callers);
        self.goroutines.entry(goroutine).or_insert_with(|| Parks::new(source, goroutine, callers))
    }

    /// Returns the states of a goroutine: while a thread ran it, those of the thread.
    fn segments_of_goroutine(
        &mut self,
        goroutine: ThreadId,
        runs: &Runs,
        from: u64,
        to: u64,
    ) -> Result<Vec<Segment>, Error> {
        let thread = self.source.meta().threads.get(goroutine.0 as usize);
        let process = thread.map_or(0, |thread| thread.process);
        let number = thread.and_then(|thread| thread.goroutine).unwrap_or(0);
        let readied = |start, end| runs.readied(process, number, start, end);
        let own = runs.of(goroutine);
        let first = own.partition_point(|run| run.end <= from);
        let (mut segments, mut now) = (Vec::new(), from);
        for (n, run) in own.iter().enumerate().skip(first).take_while(|(_, run)| run.start < to) {
            let (start, end) = (run.start.clamp(now, to), run.end.clamp(now, to));
            if now < start {
                let before = n.checked_sub(1).map(|n| &own[n]);
                let is_off = before.is_some_and(|before| runs.is_off_between(process, before, run));
                segments.extend(self.parks(goroutine).segments((now, start), is_off, &readied));
            }
            if start < end {
                segments.extend(self.lane(run.on)?.segments(start, end));
                now = end;
            }
        }
        if now < to {
            // The goroutine may be on no thread, up to a run behind this interval.
            let is_off = own.partition_point(|run| run.start < to).checked_sub(1).is_some_and(|n| {
                own.get(n + 1).is_some_and(|next| runs.is_off_between(process, &own[n], next))
            });
            segments.extend(self.parks(goroutine).segments((now, to), is_off, &readied));
        }
        Ok(segments)
    }

    /// Returns the chain of a thread from `from` to `to`.
    pub(crate) fn chain(&mut self, thread: ThreadId, from: u64, to: u64) -> Result<Chain, Error> {
        self.link(thread, from, to, to.saturating_sub(from), &mut Vec::new())
    }

    fn link(
        &mut self,
        thread: ThreadId,
        from: u64,
        to: u64,
        whole: u64,
        path: &mut Vec<ThreadId>,
    ) -> Result<Chain, Error> {
        path.push(thread);
        let segments = self.segments(thread, from, to)?;
        let is_goroutine = self.is_goroutine(thread);
        let (run, unseen) = (self.stacks.run(), self.stacks.run());
        let time = Span { start: from, end: to };
        let waits = Vec::new();
        let (ran, runnable, unknown) = (0, 0, 0);
        let mut chain = Chain { thread, time, ran, runnable, unknown, is_goroutine, run, unseen, waits };
        let mut followed = Vec::new();
        for Segment { start, end, state } in segments {
            let ticks = end - start;
            match state {
                State::Ran => {
                    chain.ran += ticks;
                    self.stacks.stretch(run, thread, start, end);
                }
                State::Runnable => chain.runnable += ticks,
                State::Unknown => {
                    chain.unknown += ticks;
                    if is_goroutine {
                        self.stacks.stretch(unseen, thread, start, end);
                    }
                }
                State::Blocked(Wait { since, within, waking, readied, is_tracing }) => {
                    let at = self.stacks.moment(thread, since);
                    let waker = match &within {
                        _ if is_tracing => Waker::Recorder,
                        Within::Park(_) => self.waker_of_goroutine(readied),
                        _ => self.waker(thread, waking.as_ref())?,
                    };
                    followed.push((chain.waits.len(), start, end));
                    let (time, meanwhile) = (Span { start, end }, None);
                    chain.waits.push(Waited { ticks, time, within, at, waker, is_tracing, meanwhile });
                }
            }
        }
        followed.sort_by_key(|(place, ..)| std::cmp::Reverse(chain.waits[*place].ticks));
        if path.len() < MAX_LENGTH {
            for (place, start, end) in followed.into_iter().take(FOLLOWED) {
                let waited = &mut chain.waits[place];
                // Small waits explain little, and a thread already in the chain is explained there.
                if let Waker::Thread(waker, _) = waited.waker
                    && waited.ticks.saturating_mul(1000) >= whole.saturating_mul(SMALL)
                    && !path.contains(&waker)
                {
                    waited.meanwhile = Some(Box::new(self.link(waker, start, end, whole, path)?));
                }
            }
        }
        path.pop();
        Ok(chain)
    }

    /// Returns the waker of a thread: a thread, or the goroutine that it ran.
    pub(crate) fn waker(&mut self, woken: ThreadId, waking: Option<&Waking>) -> Result<Waker, Error> {
        let Some(Waking { at, interrupt, pid, tid, comm }) = waking else { return Ok(Waker::Unknown) };
        if *interrupt {
            return Ok(Waker::Interrupt);
        }
        let meta = self.source.meta();
        if meta.kernel_events.as_ref().is_some_and(|events| events.is_recorder(*pid)) {
            return Ok(Waker::Recorder);
        }
        let waker = match self.thread_at(*tid, *pid, *at).filter(|thread| *thread != woken) {
            Some(thread) => {
                let by = self.goroutine_on(thread, *at)?.unwrap_or(thread);
                Waker::Thread(by, self.stacks.moment(by, *at))
            }
            // The recorder does not know the thread's process.
            None if *pid == 0 => Waker::Unknown,
            None if *tid != 0 && meta.processes.iter().any(|process| process.pid == *pid) => {
                Waker::Untraced { tid: *tid, comm: comm.clone() }
            }
            None => Waker::Other { pid: *pid, comm: comm.clone() },
        };
        Ok(waker)
    }

    /// Returns the goroutine that a thread ran at a time, if the trace has goroutines and that is
    /// known.
    fn goroutine_on(&mut self, thread: ThreadId, at: u64) -> Result<Option<ThreadId>, Error> {
        if !self.has_goroutines {
            return Ok(None);
        }
        let runs = self.take_runs()?;
        Ok(self.runs.insert(runs).goroutine_on(thread, at))
    }

    /// Returns the waker of a goroutine.
    fn waker_of_goroutine(&mut self, readied: Option<Readied>) -> Waker {
        match readied {
            Some(Readied::ByGoroutine(at, by)) => Waker::Thread(by, self.stacks.moment(by, at)),
            Some(Readied::ByRuntime(at, on)) => Waker::GoRuntime(Some(self.stacks.moment(on, at))),
            Some(Readied::ByPoller) => Waker::GoRuntime(None),
            Some(Readied::Unknown(_)) => Waker::Unknown,
            None => Waker::NotRecorded,
        }
    }

    /// Returns the traced thread that had this id at a time, as the kernel reuses ids. A merged
    /// trace may have the calls of the program and of the kernel in two threads of one id: the
    /// program's comes first.
    fn thread_at(&self, tid: u32, pid: u32, at: u64) -> Option<ThreadId> {
        let meta = self.source.meta();
        let is_of = |thread: &&ThreadId| {
            let process = meta.threads.get(thread.0 as usize).map(|thread| thread.process as usize);
            process.and_then(|process| meta.processes.get(process)).is_some_and(|process| process.pid == pid)
        };
        let own: Vec<ThreadId> = self.threads.get(&tid)?.iter().filter(is_of).copied().collect();
        let span = |thread: &ThreadId| self.source.thread_span(*thread);
        let lives = |thread: &&ThreadId| span(thread).is_some_and(|(first, last)| first <= at && at <= last);
        let begun = |thread: &&ThreadId| span(thread).is_some_and(|(first, _)| first <= at);
        own.iter().find(lives).or_else(|| own.iter().rfind(begun)).or(own.first()).copied()
    }
}

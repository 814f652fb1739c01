//! The times in which threads ran the goroutines of a trace.
//!
//! A thread enters `runtime.execute` to run a goroutine, and `runtime.schedule` after it; between
//! the two it runs that goroutine, in Go, in the kernel or in C. `runtime.coroswitch_m` goes from
//! one goroutine to another. The recorder tells which goroutine a thread ran, if the goroutine
//! recorded an event meanwhile ([`calltap_trace::Stay`]).
//!
//! A goroutine that was on no thread, and was not parked, was ready to run. It is known
//! only if every run of every thread in that time belongs to a known goroutine.

use super::parks::PARK;
use crate::error::Error;
use crate::sources::drive::run_threads;
use crate::sources::source::{Source, threads_with_events};
use crate::tree::{Call, Ending, Enter, Visitor};
use calltap_names::{FunctionNames, GlobSet};
use calltap_trace::{Meta, SiteId, Stay, ThreadId, TracerKind};
use std::collections::HashMap;

/// The function by which a thread begins to run a goroutine.
const EXECUTE: &str = "runtime.execute";
/// The function by which a thread looks for the next goroutine.
const SCHEDULE: &str = "runtime.schedule";
/// The function by which a thread goes to another goroutine directly.
const CORO_SWITCH: &str = "runtime.coroswitch_m";

/// A time in which a thread ran a goroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) on: ThreadId,
    /// Whether it began at `start`, and not before.
    is_begun: bool,
    /// Whether it ended at `end`, and not later.
    is_over: bool,
}

/// A change of what a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// It begins to run a goroutine.
    Begins,
    /// It runs none.
    Ends,
    /// Events are missing before.
    Unknown,
}

/// The changes of a thread with their times, ascending; and whether the goroutine that it ran from
/// each of them on is known.
#[derive(Default)]
struct Changes {
    list: Vec<(u64, Change)>,
    is_known: Vec<bool>,
}

impl Changes {
    /// Returns the time in which the thread ran the goroutine that it ran at `at`.
    /// `until`: the time until which it is known to have run that.
    fn run_at(&mut self, at: u64, on: ThreadId, until: u64) -> Run {
        let next = self.list.partition_point(|(ticks, _)| *ticks <= at);
        let before = next.checked_sub(1).filter(|n| self.list[*n].1 == Change::Begins);
        if let Some(before) = before {
            self.is_known[before] = true;
        }
        let (end, is_over) = match self.list.get(next) {
            Some((end, Change::Begins | Change::Ends)) => (*end, true),
            Some(_) => (at, false),
            None => (until, false),
        };
        Run { start: before.map_or(at, |n| self.list[n].0), end, on, is_begun: before.is_some(), is_over }
    }

    /// Adds the runs of unknown goroutines, and the times of which events are missing.
    fn add_unknown(&self, unknown: &mut Unknown) {
        let at = |n: usize| self.list.get(n).map_or(u64::MAX, |(ticks, _)| *ticks);
        for (n, (ticks, change)) in self.list.iter().enumerate() {
            match change {
                Change::Begins if !self.is_known[n] => unknown.runs.push((*ticks, at(n + 1))),
                Change::Unknown => unknown.missing.push((n.checked_sub(1).map_or(0, at), at(n + 1))),
                _ => {}
            }
        }
    }
}

/// The walk through the events of threads.
struct Walk {
    /// The change that each function stands for.
    changes_of: Vec<Option<Change>>,
    threads: HashMap<ThreadId, Changes>,
}

impl Walk {
    fn push(&mut self, thread: ThreadId, ticks: u64, change: Change) {
        let changes = self.threads.entry(thread).or_default();
        changes.list.push((ticks, change));
        changes.is_known.push(false);
    }

    fn change(&self, site: SiteId) -> Option<Change> {
        self.changes_of.get(site.0 as usize).copied().flatten()
    }
}

impl Visitor for Walk {
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        if let Some(change) = self.change(enter.site).filter(|_| !enter.is_rest) {
            self.push(thread, enter.ticks, change);
        }
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        self.enter(thread, enter);
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        if call.ending == Ending::SwitchedOff && self.change(call.site).is_some() {
            self.push(thread, call.end, Change::Unknown);
        }
    }

    fn lost(&mut self, thread: ThreadId, ticks: u64, _: u32, _: u32) {
        self.push(thread, ticks, Change::Unknown);
    }
}

/// The runs of all goroutines.
#[derive(Default)]
pub(crate) struct Runs {
    /// Runs by goroutine, ascending.
    runs: HashMap<ThreadId, Vec<Run>>,
    /// By process.
    unknown: HashMap<u32, Unknown>,
}

/// Times in which the threads of a process may have run any goroutine.
#[derive(Default)]
struct Unknown {
    /// Runs of unknown goroutines, ascending.
    runs: Vec<(u64, u64)>,
    /// Times of which events are missing, ascending and apart.
    missing: Vec<(u64, u64)>,
}

impl Unknown {
    /// Whether a goroutine that left its thread at `from`, and was on one again at `to`, may have
    /// been on another meanwhile. It would have begun and ended a run there between the two.
    fn may_have_run(&self, from: u64, to: u64) -> bool {
        let first = self.runs.partition_point(|(start, _)| *start < from);
        let mut runs = self.runs[first..].iter().take_while(|(start, _)| *start < to);
        let behind = self.missing.partition_point(|(_, end)| *end <= from);
        let misses = self.missing.get(behind).is_some_and(|(start, _)| *start < to);
        misses || runs.any(|(_, end)| *end <= to)
    }
}

impl Runs {
    /// Finds the runs. There are none if the functions of the runtime were not recorded.
    pub(crate) fn new(source: &dyn Source) -> Result<Runs, Error> {
        let meta = source.meta();
        let Some(changes_of) = recorded(meta) else { return Ok(Runs::default()) };
        let (goroutines, threads): (Vec<ThreadId>, Vec<ThreadId>) =
            threads_with_events(source).into_iter().partition(|thread| is_goroutine(meta, *thread));
        let mut walk = Walk { changes_of, threads: HashMap::new() };
        run_threads(source, &threads, &mut walk, None)?;
        walk.threads.values_mut().for_each(|changes| changes.list.sort_by_key(|(ticks, _)| *ticks));
        let mut runs = HashMap::new();
        for goroutine in goroutines {
            let last = source.thread_span(goroutine).map_or(0, |(_, last)| last);
            runs.insert(goroutine, runs_of(&source.stays(goroutine)?, last, &mut walk.threads));
        }
        let mut unknown = HashMap::<u32, Unknown>::new();
        for (thread, changes) in &walk.threads {
            changes.add_unknown(unknown.entry(process_of(meta, *thread)).or_default());
        }
        for unknown in unknown.values_mut() {
            unknown.runs.sort_unstable();
            unknown.missing = joined(std::mem::take(&mut unknown.missing));
        }
        Ok(Runs { runs, unknown })
    }

    /// Whether it was recorded when threads ran goroutines.
    pub(crate) fn are_known(&self) -> bool {
        self.runs.values().any(|runs| !runs.is_empty())
    }

    /// Returns the runs of a goroutine, ascending.
    pub(crate) fn of(&self, goroutine: ThreadId) -> &[Run] {
        self.runs.get(&goroutine).map_or(&[], Vec::as_slice)
    }

    /// Whether a goroutine of a process was on no thread between two of its runs.
    pub(crate) fn is_off_between(&self, process: u32, one: &Run, other: &Run) -> bool {
        let unknown = self.unknown.get(&process);
        let may_have_run = unknown.is_some_and(|unknown| unknown.may_have_run(one.end, other.start));
        one.is_over && other.is_begun && !may_have_run
    }
}

fn is_goroutine(meta: &Meta, thread: ThreadId) -> bool {
    meta.threads.get(thread.0 as usize).is_some_and(|thread| thread.goroutine.is_some())
}

fn process_of(meta: &Meta, thread: ThreadId) -> u32 {
    meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.process)
}

/// Returns what each function changes, if a tracer of calls has recorded them all the time. A
/// program without coroutines does not have [`CORO_SWITCH`], so the tracer's filter is looked at.
fn recorded(meta: &Meta) -> Option<Vec<Option<Change>>> {
    let tracers = meta.session.iter().flat_map(|session| &session.tracers);
    let switch = FunctionNames::new([CORO_SWITCH], None);
    let mut of_calls = tracers.filter(|tracer| {
        let (filter, notrace) = (GlobSet::new(&tracer.filter), GlobSet::new(&tracer.notrace));
        let selects = filter.is_empty() || filter.has(&switch);
        tracer.kind == TracerKind::FunctionGraph && selects && !notrace.has(&switch)
    });
    let bit = 1 << of_calls.next()?.id;
    let is_limited = |site: SiteId| meta.limited.iter().any(|limited| limited.site == site);
    let sites = || meta.sites.iter().filter(|site| site.tracers & bit != 0 && !is_limited(site.id));
    let has = |name: &str| sites().any(|site| site.name == name);
    if ![EXECUTE, SCHEDULE, PARK].into_iter().all(has) {
        return None;
    }
    let mut changes = vec![None; meta.sites.len()];
    for site in sites() {
        changes[site.id.0 as usize] = match site.name.as_str() {
            EXECUTE | CORO_SWITCH => Some(Change::Begins),
            SCHEDULE => Some(Change::Ends),
            _ => None,
        };
    }
    Some(changes)
}

/// Returns the runs in which a goroutine recorded events, of which the last one was at `last`.
fn runs_of(stays: &[Stay], last: u64, threads: &mut HashMap<ThreadId, Changes>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (n, stay) in stays.iter().enumerate() {
        let Some(changes) = threads.get_mut(&stay.on) else { continue };
        let until = if n + 1 == stays.len() { last.max(stay.at) } else { stay.at };
        let run = changes.run_at(stay.at, stay.on, until);
        match runs.last_mut() {
            Some(last) if last.on == run.on && run.start <= last.end && !last.is_over => {
                (last.end, last.is_over) = (run.end, run.is_over);
            }
            // A run that is known already, or one that contradicts it.
            Some(last) if run.start < last.end => {}
            _ => runs.push(run),
        }
    }
    runs
}

/// Joins times that overlap.
fn joined(mut times: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    times.retain(|(start, end)| start < end);
    times.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in times {
        match joined.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => joined.push((start, end)),
        }
    }
    joined
}

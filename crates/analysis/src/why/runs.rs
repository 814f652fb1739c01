//! The times in which threads ran the goroutines of a trace.
//!
//! A thread enters `runtime.execute` to run a goroutine, and `runtime.schedule` after it; between
//! the two it runs that goroutine, in Go, in the kernel or in C. `runtime.coroswitch_m` goes from
//! one goroutine to another. The recorder tells which goroutine a thread ran, if the goroutine
//! recorded an event meanwhile ([`calltap_trace::GoroutineRun`]).
//!
//! A parked goroutine is made ready to run by `runtime.ready`, on the stack of the thread that runs
//! the goroutine which ends the wait; or by the scheduler between two goroutines, for a timer.
//! Without such a call, the scheduler took it from the list of those for which the network poller
//! has news, or gave it work of the garbage collector.
//!
//! A goroutine that was on no thread, and was not parked, was ready to run. It is known
//! only if every run of every thread in that time belongs to a known goroutine.

use super::lane::Readied;
use super::parks::PARK;
use crate::error::Error;
use crate::sources::drive::run_threads;
use crate::sources::source::{Source, threads_with_events};
use crate::tree::{Call, Ending, Enter, Visitor};
use calltap_names::{FunctionNames, GlobSet};
use calltap_trace::{Datum, GoroutineRun, Meta, SiteId, ThreadId, TracerKind};
use std::collections::HashMap;

/// The function by which a thread begins to run a goroutine.
const EXECUTE: &str = "runtime.execute";
/// The function by which a thread looks for the next goroutine.
pub(crate) const SCHEDULE: &str = "runtime.schedule";
/// The function by which a thread goes to another goroutine directly.
const CORO_SWITCH: &str = "runtime.coroswitch_m";

/// The function that makes a goroutine ready to run.
const READY: &str = "runtime.ready";
/// Name of the value of its calls that is the goroutine's number.
const READIED: &str = "goroutine";

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
    /// The thread begins to run a goroutine.
    Begins,
    /// The thread runs no goroutine.
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

    /// Whether the thread ran no goroutine at a time.
    fn is_between(&self, at: u64) -> bool {
        let before = self.list.partition_point(|(ticks, _)| *ticks <= at).checked_sub(1);
        before.is_some_and(|before| self.list[before].1 == Change::Ends)
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
struct Walk<'s> {
    meta: &'s Meta,
    /// The change that each function stands for.
    changes_of: Vec<Option<Change>>,
    threads: HashMap<ThreadId, Changes>,
    ready: Option<Ready>,
    /// Number of the goroutine in the next event.
    next: Option<u64>,
    readied: HashMap<ThreadId, Vec<(u64, u64)>>,
}

/// The function that makes goroutines ready, and the index of the goroutine's number in its values.
#[derive(Clone, Copy)]
struct Ready {
    site: SiteId,
    value: usize,
}

impl Walk<'_> {
    fn push(&mut self, thread: ThreadId, ticks: u64, change: Change) {
        let changes = self.threads.entry(thread).or_default();
        changes.list.push((ticks, change));
        changes.is_known.push(false);
    }

    fn change(&self, site: SiteId) -> Option<Change> {
        self.changes_of.get(site.0 as usize).copied().flatten()
    }
}

impl Visitor for Walk<'_> {
    fn values(&mut self, _: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        let Some(ready) = self.ready.filter(|ready| ready.site == site && !returns) else { return };
        let captured = self.meta.sites.get(site.0 as usize).and_then(|site| site.captured.as_deref());
        let mut values = captured.into_iter().flat_map(|captured| captured.read(false, bytes));
        self.next = match values.nth(ready.value) {
            Some((_, Datum::Unsigned(number))) => Some(number),
            _ => None,
        };
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        if self.ready.is_some_and(|ready| ready.site == enter.site) && !enter.is_rest {
            // Without its value, the call may have ended any wait.
            match self.next.take() {
                Some(number) => self.readied.entry(thread).or_default().push((enter.ticks, number)),
                None => self.push(thread, enter.ticks, Change::Unknown),
            }
        }
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
    by_thread: ByThread,
    /// By process.
    unknown: HashMap<u32, Unknown>,
    /// When goroutines were made ready; `None` if that was not recorded.
    readied: Option<ReadiedTimes>,
}

/// Runs with their goroutines by thread, ascending: start, end, goroutine.
#[derive(Default)]
struct ByThread(HashMap<ThreadId, Vec<(u64, u64, ThreadId)>>);

impl ByThread {
    fn new(runs: &HashMap<ThreadId, Vec<Run>>) -> ByThread {
        let mut on = HashMap::<ThreadId, Vec<(u64, u64, ThreadId)>>::new();
        for (goroutine, runs) in runs {
            runs.iter().for_each(|run| on.entry(run.on).or_default().push((run.start, run.end, *goroutine)));
        }
        on.values_mut().for_each(|runs| runs.sort_unstable());
        ByThread(on)
    }

    /// Returns the goroutine that a thread ran at a time.
    fn goroutine_on(&self, thread: ThreadId, at: u64) -> Option<ThreadId> {
        let runs = self.0.get(&thread)?;
        let before = runs.partition_point(|(start, ..)| *start <= at).checked_sub(1)?;
        runs.get(before).filter(|(_, end, _)| at <= *end).map(|(.., goroutine)| *goroutine)
    }
}

/// Times at which goroutines were made ready, by process and number of the goroutine, ascending.
type ReadiedTimes = HashMap<(u32, u64), Vec<(u64, Readied)>>;

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
        self.misses(from, to) || runs.any(|(_, end)| *end <= to)
    }

    /// Whether events of any thread are missing in this time.
    fn misses(&self, from: u64, to: u64) -> bool {
        let behind = self.missing.partition_point(|(_, end)| *end <= from);
        self.missing.get(behind).is_some_and(|(start, _)| *start < to)
    }
}

impl Runs {
    /// Finds the runs. There are none if the functions of the runtime were not recorded.
    pub(crate) fn new(source: &dyn Source) -> Result<Runs, Error> {
        let meta = source.meta();
        let Some(changes_of) = recorded(meta) else { return Ok(Runs::default()) };
        let (goroutines, threads): (Vec<ThreadId>, Vec<ThreadId>) =
            threads_with_events(source).into_iter().partition(|thread| is_goroutine(meta, *thread));
        let ready = ready(meta);
        let mut walk =
            Walk { meta, changes_of, threads: HashMap::new(), ready, next: None, readied: HashMap::new() };
        run_threads(source, &threads, &mut walk, None)?;
        walk.threads.values_mut().for_each(|changes| changes.list.sort_by_key(|(ticks, _)| *ticks));
        let mut runs = HashMap::new();
        for goroutine in goroutines {
            let last = source.thread_span(goroutine).map_or(0, |(_, last)| last);
            runs.insert(goroutine, runs_of(&source.goroutine_runs(goroutine)?, last, &mut walk.threads));
        }
        let by_thread = ByThread::new(&runs);
        let readied = ready.map(|_| readied(meta, &walk, &by_thread));
        let mut unknown = HashMap::<u32, Unknown>::new();
        for (thread, changes) in &walk.threads {
            changes.add_unknown(unknown.entry(process_of(meta, *thread)).or_default());
        }
        for unknown in unknown.values_mut() {
            unknown.runs.sort_unstable();
            unknown.missing = joined(std::mem::take(&mut unknown.missing));
        }
        Ok(Runs { runs, by_thread, unknown, readied })
    }

    /// Whether it was recorded when goroutines were made ready to run.
    pub(crate) fn tell_wakers(&self) -> bool {
        self.readied.is_some()
    }

    /// Returns the waker of a goroutine of a process that waited from `start` to `end`; `None` if
    /// it was not recorded.
    pub(crate) fn readied(&self, process: u32, number: u64, start: u64, end: u64) -> Option<Readied> {
        let all = self.readied.as_ref()?.get(&(process, number)).map_or(&[][..], Vec::as_slice);
        let next = all.partition_point(|(at, _)| *at <= start);
        if let Some((_, readied)) = all.get(next).filter(|(at, _)| *at <= end) {
            return Some(*readied);
        }
        let misses = self.unknown.get(&process).is_some_and(|unknown| unknown.misses(start, end));
        Some(if misses { Readied::Unknown(None) } else { Readied::ByPoller })
    }

    /// Whether it was recorded when threads ran goroutines.
    pub(crate) fn are_known(&self) -> bool {
        self.runs.values().any(|runs| !runs.is_empty())
    }

    /// Returns the runs of a goroutine, ascending.
    pub(crate) fn of(&self, goroutine: ThreadId) -> &[Run] {
        self.runs.get(&goroutine).map_or(&[], Vec::as_slice)
    }

    /// Returns the goroutine that a thread ran at a time, if that is known.
    pub(crate) fn goroutine_on(&self, thread: ThreadId, at: u64) -> Option<ThreadId> {
        self.by_thread.goroutine_on(thread, at)
    }

    /// Whether a goroutine of a process was on no thread between two of its runs.
    pub(crate) fn is_off_between(&self, process: u32, one: &Run, other: &Run) -> bool {
        let unknown = self.unknown.get(&process);
        let may_have_run = unknown.is_some_and(|unknown| unknown.may_have_run(one.end, other.start));
        one.is_over && other.is_begun && !may_have_run
    }
}

/// Returns the function that makes goroutines ready, if all its calls were recorded with the
/// goroutine.
fn ready(meta: &Meta) -> Option<Ready> {
    if meta.loss.iter().any(|loss| loss.dropped_entries > 0) {
        return None;
    }
    let is_disabled = |site: SiteId| meta.disabled_by_limit.iter().any(|disabled| disabled.site == site);
    meta.sites
        .iter()
        .filter(|site| site.name == READY && site.tracers != 0 && !is_disabled(site.id))
        .find_map(|site| {
            let values = &site.captured.as_deref()?.arguments;
            let value = values.iter().position(|value| value.name == READIED)?;
            Some(Ready { site: site.id, value })
        })
}

/// Returns the wakers of each goroutine, with the times.
fn readied(meta: &Meta, walk: &Walk<'_>, by_thread: &ByThread) -> ReadiedTimes {
    let mut all = HashMap::<(u32, u64), Vec<(u64, Readied)>>::new();
    for (thread, calls) in &walk.readied {
        let is_between = |at: u64| walk.threads.get(thread).is_some_and(|changes| changes.is_between(at));
        for (at, number) in calls {
            let by = match by_thread.goroutine_on(*thread, *at) {
                Some(goroutine) => Readied::ByGoroutine(*at, goroutine),
                None if is_between(*at) => Readied::ByRuntime(*at, *thread),
                None => Readied::Unknown(Some(*at)),
            };
            all.entry((process_of(meta, *thread), *number)).or_default().push((*at, by));
        }
    }
    all.values_mut().for_each(|times| times.sort_unstable_by_key(|(at, _)| *at));
    all
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
    let is_disabled = |site: SiteId| meta.disabled_by_limit.iter().any(|disabled| disabled.site == site);
    let sites = || meta.sites.iter().filter(|site| site.tracers & bit != 0 && !is_disabled(site.id));
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
fn runs_of(goroutine_runs: &[GoroutineRun], last: u64, threads: &mut HashMap<ThreadId, Changes>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (n, stay) in goroutine_runs.iter().enumerate() {
        let Some(changes) = threads.get_mut(&stay.on) else { continue };
        let until = if n + 1 == goroutine_runs.len() { last.max(stay.at) } else { stay.at };
        let run = changes.run_at(stay.at, stay.on, until);
        match runs.last_mut() {
            Some(last) if last.on == run.on && run.start <= last.end && !last.is_over => {
                (last.end, last.is_over) = (run.end, run.is_over);
            }
            // Another thread took the goroutine from a queue before this one looked for the next.
            Some(last)
                if last.on != run.on && run.is_begun && (last.start..last.end).contains(&run.start) =>
            {
                (last.end, last.is_over) = (run.start, true);
                runs.push(run);
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

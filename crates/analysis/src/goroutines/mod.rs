//! The goroutines of a trace: the parent and the function of each, and how long it waited.
//!
//! The starter and the first function are those that the runtime has noted. They are unknown in
//! programs of Go before 1.21. The time between the first and the last event of a goroutine is that
//! in which it was seen: it may have begun earlier and ended later. A goroutine waits from
//! `runtime.gopark` until it runs again; the time is unknown if the returns of that function were
//! not recorded.

mod output;
mod scheduled;
mod tree;

pub use scheduled::Scheduled;

use crate::answers::Lookup;
use crate::error::Error;
use crate::head::{facts, head};
use crate::names::Names;
use crate::report::Format;
use crate::sources::drive::{Progress, run_threads};
use crate::sources::part::Part;
use crate::sources::source::{Source, threads_with_events};
use crate::symbols::Symbols;
use crate::tree::{Enter, Visitor};
use crate::why::chain::Chains;
use crate::why::lane::{Segment, State, Wait, Within};
use crate::why::parks::{PARK, Parks};
use calltap_names::demangle;
use calltap_trace::{Meta, SiteId, Thread, ThreadId, TracerKind};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Write;

/// Scope and form of the list.
#[derive(Default)]
pub struct Options {
    /// Maximum number of rows.
    pub limit: Option<usize>,
    /// Whether linker names are kept.
    pub linker_names: bool,
    /// Characters of a line; None: no limit.
    pub width: Option<usize>,
    /// Names first functions that were not traced.
    pub lookup: Option<Lookup>,
}

/// The starter of a goroutine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Starter {
    /// The program's version of Go does not note it.
    Unknown,
    /// The runtime, on a thread's own stack.
    Runtime,
    /// Another goroutine.
    Goroutine(u64),
}

/// Index of a process, and number of a goroutine in it.
type Key = (u32, u64);

/// A goroutine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Goroutine {
    /// Id of its process.
    pub pid: u32,
    /// Number of the goroutine.
    pub number: u64,
    /// The goroutine or program that started it.
    pub starter: Starter,
    /// Name of the function that it was started with, if known.
    pub function: Option<String>,
    /// Number of shown goroutines above it in the tree.
    pub depth: usize,
    /// Number of its calls.
    pub calls: u64,
    /// First event, in nanoseconds since the beginning of the recording.
    pub first_ns: u64,
    /// Time between its first and its last event, in nanoseconds.
    pub seen_ns: u64,
    /// Time in which it waited, in nanoseconds; `None` if unknown.
    pub waited_ns: Option<u64>,
    /// Whether it still waited when recording ended, so that it waited for longer than that.
    pub waits: bool,
    /// Times in the states besides waits; `None` if it was not recorded when threads ran
    /// goroutines.
    pub states: Option<States>,
}

/// Times of a goroutine in states other than waiting, in nanoseconds. They and the waits add up to
/// the time in which it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// A thread ran it.
    pub ran_ns: u64,
    /// Ready to run: the goroutine had no thread, or its thread had no processor.
    pub runnable_ns: u64,
    /// Blocked with its thread: in a system call or on a page.
    pub blocked_ns: u64,
    /// Time in which its state is unknown.
    pub unknown_ns: u64,
}

/// A finished list: a tree in depth-first order.
pub struct Goroutines {
    /// The rows.
    pub rows: Vec<Goroutine>,
    /// Number of rows cut off by the limit.
    pub cut: u64,
    head: String,
    /// Facts of the head, for JSON.
    facts: Map<String, Value>,
    timed: bool,
    width: Option<usize>,
}

/// Counts the calls of each thread.
struct Counter<'m> {
    meta: &'m Meta,
    calls: BTreeMap<ThreadId, u64>,
    /// Whether returns of the function that parks goroutines were not recorded.
    parks_without_return: bool,
}

impl Visitor for Counter<'_> {
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        *self.calls.entry(thread).or_default() += u64::from(!enter.is_rest);
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        *self.calls.entry(thread).or_default() += 1;
        let site = self.meta.sites.get(enter.site.0 as usize);
        self.parks_without_return |= site.is_some_and(|site| site.name == PARK);
    }
}

/// The facts about a goroutine, in ticks.
struct GoroutineFacts {
    started: Option<calltap_trace::GoStart>,
    thread: ThreadId,
    calls: u64,
    span: (u64, u64),
    waited: Option<u64>,
    /// Whether it still waited at the end.
    waits: bool,
    states: Option<States>,
}

impl GoroutineFacts {
    /// Adds a further part of the same goroutine.
    fn add(&mut self, other: &GoroutineFacts) {
        self.calls += other.calls;
        self.waits = if self.span.1 > other.span.1 { self.waits } else { other.waits };
        self.states = self.states.zip(other.states).map(|(one, two)| one.and(two));
        self.span = (self.span.0.min(other.span.0), self.span.1.max(other.span.1));
        self.waited = self.waited.zip(other.waited).map(|(one, two)| one + two);
    }
}

/// Reads the goroutines of a recording.
pub fn collect(
    source: &dyn Source,
    mut options: Options,
    progress: Progress<'_>,
) -> Result<Goroutines, Error> {
    let meta = source.meta();
    let of_thread = |id: &ThreadId| meta.threads.get(id.0 as usize);
    let mut threads = threads_with_events(source);
    threads.retain(|id| of_thread(id).is_some_and(|thread| thread.goroutine.is_some()));
    let mut counter = Counter { meta, calls: BTreeMap::new(), parks_without_return: false };
    let totals = run_threads(source, &threads, &mut counter, progress)?;
    let seen = gather(source, &threads, &counter)?;
    let names = Names::new(meta, options.linker_names);
    let symbols = Symbols::new(meta, &names);
    let begin = beginning(source);
    let mut rows = Vec::new();
    for (key, depth) in tree::in_order(&seen) {
        let seen = &seen[&key];
        rows.push(Goroutine {
            pid: meta.processes.get(key.0 as usize).map_or(0, |process| process.pid),
            number: key.1,
            starter: starter(seen),
            function: first_function(seen, key.0, &symbols, &mut options),
            depth,
            calls: seen.calls,
            first_ns: source.to_ns(seen.span.0).saturating_sub(begin),
            seen_ns: source.duration_ns(seen.span.1 - seen.span.0),
            waited_ns: seen.waited.map(|ticks| source.duration_ns(ticks)),
            waits: seen.waits,
            states: seen.states,
        });
    }
    let most = options.limit.unwrap_or(usize::MAX);
    let cut = rows.len().saturating_sub(most) as u64;
    rows.truncate(most);
    let (head, facts) = (head(source, &totals), facts::of_view(source, &names, &totals));
    Ok(Goroutines { rows, cut, head, facts, timed: source.has_time(), width: options.width })
}

/// Returns the beginning of the trace, in nanoseconds; with a clock that only orders, 0.
fn beginning(source: &dyn Source) -> u64 {
    if source.has_time() { Part::beginning(source) } else { 0 }
}

/// Gathers the facts about each goroutine.
fn gather(
    source: &dyn Source,
    threads: &[ThreadId],
    counter: &Counter<'_>,
) -> Result<BTreeMap<Key, GoroutineFacts>, Error> {
    let meta = source.meta();
    let knows_waits = knows_waits(source) && !counter.parks_without_return;
    let mut chains = Chains::new(source);
    let knows_runs = knows_waits && chains.knows_runs()?;
    let mut all = BTreeMap::<Key, GoroutineFacts>::new();
    for thread in threads {
        let (Some(Thread { process, goroutine: Some(number), started, .. }), Some(span)) =
            (meta.threads.get(thread.0 as usize), source.thread_span(*thread))
        else {
            continue;
        };
        let calls = counter.calls.get(thread).copied().unwrap_or(0);
        let parks = knows_waits.then(|| chains.parks(*thread));
        let waits = parks.is_some_and(Parks::is_waiting);
        let (mut waited, mut states) = (parks.map(Parks::ticks), None);
        if knows_runs {
            let ticks = ticks_by_state(&chains.segments(*thread, span.0, span.1)?);
            (waited, states) = (Some(ticks.waited), Some(ticks.states(source)));
        }
        let seen = GoroutineFacts { started: *started, thread: *thread, calls, span, waited, waits, states };
        match all.get_mut(&(*process, *number)) {
            Some(before) => before.add(&seen),
            None => drop(all.insert((*process, *number), seen)),
        }
    }
    Ok(all)
}

/// Ticks of a goroutine in each state.
#[derive(Default)]
struct Ticks {
    waited: u64,
    ran: u64,
    runnable: u64,
    blocked: u64,
    unknown: u64,
}

impl Ticks {
    fn states(&self, source: &dyn Source) -> States {
        let ns = |ticks| source.duration_ns(ticks);
        States {
            ran_ns: ns(self.ran),
            runnable_ns: ns(self.runnable),
            blocked_ns: ns(self.blocked),
            unknown_ns: ns(self.unknown),
        }
    }
}

/// Sums up the states of a goroutine.
fn ticks_by_state(segments: &[Segment]) -> Ticks {
    let mut ticks = Ticks::default();
    for Segment { start, end, state } in segments {
        let sum = match state {
            State::Ran => &mut ticks.ran,
            State::Runnable => &mut ticks.runnable,
            State::Blocked(Wait { within: Within::Park(_), .. }) => &mut ticks.waited,
            State::Blocked(_) => &mut ticks.blocked,
            State::Unknown => &mut ticks.unknown,
        };
        *sum += end - start;
    }
    ticks
}

impl States {
    fn and(self, other: States) -> States {
        States {
            ran_ns: self.ran_ns + other.ran_ns,
            runnable_ns: self.runnable_ns + other.runnable_ns,
            blocked_ns: self.blocked_ns + other.blocked_ns,
            unknown_ns: self.unknown_ns + other.unknown_ns,
        }
    }
}

/// Whether calls of the function that parks goroutines were recorded with their returns, all the
/// time and in all processes, and are all read.
fn knows_waits(source: &dyn Source) -> bool {
    let meta = source.meta();
    if source.part().is_some() || !meta.slow.is_empty() || !meta.kept.is_empty() {
        return false;
    }
    let tracers = meta.session.iter().flat_map(|session| &session.tracers);
    let with_returns = tracers.filter(|tracer| tracer.kind == TracerKind::FunctionGraph);
    let bits = with_returns.fold(0, |bits, tracer| bits | 1 << tracer.id);
    let mut parking = meta.sites.iter().filter(|site| site.name == PARK).peekable();
    let is_disabled = |site: SiteId| meta.disabled_by_limit.iter().any(|disabled| disabled.site == site);
    parking.peek().is_some() && parking.all(|site| site.tracers & bits != 0 && !is_disabled(site.id))
}

fn starter(seen: &GoroutineFacts) -> Starter {
    match seen.started {
        None => Starter::Unknown,
        // A goroutine for a thread of C has no first function: the runtime did not note its start.
        Some(started) if started.function == 0 => Starter::Unknown,
        Some(started) if started.by == 0 => Starter::Runtime,
        Some(started) => Starter::Goroutine(started.by),
    }
}

/// Names the function that a goroutine was started with: a traced one, else from its file.
fn first_function(
    seen: &GoroutineFacts,
    process: u32,
    symbols: &Symbols<'_>,
    options: &mut Options,
) -> Option<String> {
    let address = seen.started.map(|started| started.function).filter(|address| *address != 0)?;
    let ticks = seen.span.0;
    if let Some(name) = symbols.code(seen.thread, ticks, address) {
        return Some(name);
    }
    let module = symbols.place(process, ticks, address).module?;
    let name = options.lookup.as_mut()?(module, address.wrapping_sub(module.bias))?;
    Some(if options.linker_names { name } else { demangle(&name) })
}

/// Reads the goroutines of a recording and writes them.
pub fn write(
    source: &dyn Source,
    options: Options,
    format: Format,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<(), Error> {
    collect(source, options, progress)?.write(format, out)?;
    Ok(())
}

//! Calls by function, interval by interval, from events as they arrive.
//!
//! A call counts in the interval in which it begins; its duration counts in the interval in which
//! it ends, as in every view. The time spent in a function is that of its outermost activations as
//! far as they lie in the interval, including open ones.
//!
//! The end of an interval is announced before the events that lead up to it are read
//! ([`Live::interval_ends`]). Events after that time are held back for the next interval, so that
//! one thread never spends more than the length of an interval in a function.

use crate::error::NotOneOf;
use crate::sources::drive::feed_batch;
use crate::tree::{Call, Ending, Enter, Open, Stack, Totals, Visitor};
use calltap_names::demangle;
use calltap_names::file_name;
use calltap_trace::{Batch, ClockKind, ClockMap, ClockPair, Event, Record, Site, SiteId, ThreadId};
use std::collections::HashMap;
use std::mem::take;
use std::str::FromStr;

/// The calls of one function in one interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FunctionCalls {
    /// Name, demangled.
    pub function: String,
    /// File name of the module.
    pub module: String,
    /// Sites of the function: several if several processes loaded the function.
    pub sites: Vec<SiteId>,
    /// Number of calls that began.
    pub calls: u64,
    /// Number of calls that ended.
    pub ended: u64,
    /// Mean duration of the calls that ended, nanoseconds; 0 if none did.
    pub avg_ns: u64,
    /// Longest call that ended, nanoseconds.
    pub max_ns: u64,
    /// Time spent in it and in its callees, nanoseconds, summed over all threads.
    pub total_ns: u64,
    /// Whether it was disabled for a part of the interval, so that its counts are incomplete.
    pub is_partial: bool,
}

/// The calls of all functions in one interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// Length in nanoseconds.
    pub length_ns: u64,
    /// Number of events.
    pub events: u64,
    /// Number of lost calls and returns.
    pub lost: u64,
    /// A row for every function that was ever called.
    pub rows: Vec<FunctionCalls>,
}

/// A column to sort by: numbers descend, names ascend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Column {
    /// Calls per second.
    #[default]
    Calls,
    /// Time spent.
    Total,
    /// Mean duration.
    Avg,
    /// Longest duration.
    Max,
    /// Name.
    Function,
}

impl Column {
    /// All columns, in order.
    pub const ALL: [Column; 5] = [Self::Calls, Self::Total, Self::Avg, Self::Max, Self::Function];

    /// Returns the name that `from_str` parses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Total => "total",
            Self::Avg => "avg",
            Self::Max => "max",
            Self::Function => "function",
        }
    }

    /// Returns the next column, and the first after the last.
    pub fn next(self) -> Column {
        let at = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

impl FromStr for Column {
    type Err = NotOneOf;

    fn from_str(name: &str) -> Result<Self, NotOneOf> {
        let found = Self::ALL.into_iter().find(|column| column.name() == name);
        found.ok_or_else(|| NotOneOf::new("column", name, &Self::ALL.map(Self::name)))
    }
}

impl Interval {
    /// Returns `number` per second.
    pub fn rate(&self, number: u64) -> f64 {
        if self.length_ns == 0 { 0.0 } else { number as f64 * 1e9 / self.length_ns as f64 }
    }

    /// Returns `ns` as a percentage of the interval: more than 100 if several threads spent them.
    pub fn percent(&self, ns: u64) -> f64 {
        crate::units::percent(ns, self.length_ns)
    }

    /// Sorts the rows by a column, then by name.
    pub fn sort(&mut self, by: Column) {
        let number = |row: &FunctionCalls| match by {
            Column::Calls => row.calls,
            Column::Total => row.total_ns,
            Column::Avg => row.avg_ns,
            Column::Max => row.max_ns,
            Column::Function => 0,
        };
        let by_name = |a: &FunctionCalls, b: &FunctionCalls| {
            a.function.cmp(&b.function).then_with(|| a.module.cmp(&b.module))
        };
        self.rows.sort_by(|a, b| number(b).cmp(&number(a)).then_with(|| by_name(a, b)));
    }
}

/// A traced function.
#[derive(Debug)]
struct Function {
    linker_name: String,
    module: String,
    sites: Vec<SiteId>,
    /// Demangled name, made at the first call: most functions are never called.
    name: Option<String>,
}

/// Sums of one site in one interval, times in ticks.
#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    calls: u64,
    ended: u64,
    durations: u64,
    longest: u64,
    spent: u64,
}

impl Sums {
    fn add(self, other: Sums) -> Sums {
        Sums {
            calls: self.calls + other.calls,
            ended: self.ended + other.ended,
            durations: self.durations.saturating_add(other.durations),
            longest: self.longest.max(other.longest),
            spent: self.spent.saturating_add(other.spent),
        }
    }
}

/// Adds up calls, one thread at a time.
#[derive(Default)]
struct Adder {
    /// Sums by site; the last entry stands for all undescribed sites.
    sums: Vec<Sums>,
    /// Number of open activations in the current thread, by site; all 0 between threads.
    open: Vec<u32>,
    /// Beginning of the interval, ticks: earlier time is in the sums of former intervals.
    since: u64,
}

/// Events or the end of a thread after the end of the interval.
enum Later {
    Events(Batch),
    Ended(ThreadId),
}

impl Later {
    fn thread(&self) -> ThreadId {
        match self {
            Later::Events(batch) => batch.thread,
            Later::Ended(thread) => *thread,
        }
    }
}

impl Adder {
    fn spend(&mut self, site: SiteId, start: u64, end: u64) {
        let spent = end.saturating_sub(start.max(self.since));
        let sums = &mut self.sums[site.0 as usize];
        sums.spent = sums.spent.saturating_add(spent);
    }

    /// Makes a thread the current one.
    fn enter_thread(&mut self, stack: &Stack) {
        stack.open().for_each(|open| self.open[open.site.0 as usize] += 1);
    }

    /// Resets the open activations when a thread is done.
    fn leave_thread(&mut self, stack: &Stack) {
        stack.open().for_each(|open| self.open[open.site.0 as usize] = 0);
    }

    /// Adds the time of a thread's open calls at the end of the interval, `now`.
    fn spend_open(&mut self, stack: &Stack, now: u64) {
        for Open { site, start, .. } in stack.open().filter(|open| open.cut.is_none()) {
            if std::mem::replace(&mut self.open[site.0 as usize], 1) == 0 {
                self.spend(site, start, now);
            }
        }
        self.leave_thread(stack);
    }
}

impl Visitor for Adder {
    #[inline(always)]
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.open[enter.site.0 as usize] += 1;
        self.sums[enter.site.0 as usize].calls += u64::from(!enter.is_rest);
    }

    #[inline(always)]
    fn close(&mut self, _: ThreadId, call: &Call) {
        let open = &mut self.open[call.site.0 as usize];
        *open -= 1;
        // A call that was cut before the thread's last events may have ended at any time before
        // them, and so may one of a goroutine that has ended when another takes its place.
        let is_known = !matches!(call.ending, Ending::SwitchedOff | Ending::Lost | Ending::ThreadEnded);
        if *open == 0 && is_known {
            self.spend(call.site, call.start, call.end);
        }
        if !call.ending.is_cut() {
            let sums = &mut self.sums[call.site.0 as usize];
            sums.ended += 1;
            sums.durations = sums.durations.saturating_add(call.total);
            sums.longest = sums.longest.max(call.total);
        }
    }

    #[inline(always)]
    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        self.sums[enter.site.0 as usize].calls += 1;
    }
}

/// Takes records and events as they arrive, and sums up each interval.
#[derive(Default)]
pub struct Live {
    clock: Option<ClockKind>,
    /// The first clock pair, and the one at the end of the last interval.
    first: Option<ClockPair>,
    last: Option<ClockPair>,
    /// Module paths by module id.
    modules: HashMap<u32, String>,
    functions: Vec<Function>,
    /// Indices of `functions` by module path, address and name.
    known: HashMap<(String, u64, String), usize>,
    /// Index of each site's function.
    sites: Vec<Option<usize>>,
    threads: HashMap<ThreadId, Stack>,
    /// End of the current interval, in ticks, once announced, and the events after it.
    ends: Option<u64>,
    later: Vec<Later>,
    adder: Adder,
    totals: Totals,
    /// Numbers of events and losses up to the end of the last interval.
    before: (u64, u64),
}

impl Live {
    /// Applies a record.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Session(session) => self.clock = Some(session.clock),
            Record::Module(module) => drop(self.modules.insert(module.id, module.path.clone())),
            Record::Sites { sites } => sites.iter().for_each(|site| self.site(site)),
            Record::Clock(pair) => drop(self.first.get_or_insert(*pair)),
            _ => {}
        }
    }

    fn site(&mut self, site: &Site) {
        let path = self.modules.get(&site.module).cloned().unwrap_or_default();
        let module = file_name(&path).to_owned();
        let new = self.functions.len();
        let at = *self.known.entry((path, site.address, site.name.clone())).or_insert(new);
        if at == new {
            let linker_name = site.name.clone();
            self.functions.push(Function { linker_name, module, sites: Vec::new(), name: None });
        }
        let place = site.id.0 as usize;
        if self.sites.len() <= place {
            self.sites.resize(place + 1, None);
        }
        if self.sites[place].replace(at).is_none() {
            self.functions[at].sites.push(site.id);
        }
    }

    /// Takes events of one thread.
    pub fn events(&mut self, batch: &Batch) {
        let Some(ends) = self.ends else { return self.process(batch) };
        let is_later = self.has_later(batch.thread);
        // The times of a thread's events never decrease, except for events that the tree clamps to
        // the time of their predecessor.
        let first = batch.events.iter().position(|event| is_later || event.ticks >= ends);
        let Some(first) = first else { return self.process(batch) };
        let part =
            |events: &[Event]| Batch { thread: batch.thread, events: events.to_vec(), ..Batch::default() };
        let (now, later) = batch.events.split_at(first);
        self.process(&part(now));
        self.later.push(Later::Events(part(later)));
    }

    /// Whether events of a thread after the end of the interval are held back.
    fn has_later(&self, thread: ThreadId) -> bool {
        self.later.iter().any(|later| later.thread() == thread)
    }

    fn process(&mut self, batch: &Batch) {
        self.make_room();
        let stack = self.threads.entry(batch.thread).or_default();
        self.adder.enter_thread(stack);
        let sites = self.sites.len() as u32;
        feed_batch(stack, batch.thread, batch, sites, &mut self.adder, &mut self.totals);
        self.adder.leave_thread(stack);
    }

    fn make_room(&mut self) {
        self.adder.sums.resize(self.sites.len() + 1, Sums::default());
        self.adder.open.resize(self.sites.len() + 1, 0);
    }

    /// Ends a thread.
    pub fn end(&mut self, thread: ThreadId) {
        if self.has_later(thread) {
            return self.later.push(Later::Ended(thread));
        }
        let Some(mut ended) = self.threads.remove(&thread) else { return };
        self.adder.enter_thread(&ended);
        ended.finish(thread, Ending::Running, &mut self.adder, &mut self.totals);
    }

    /// Announces that the interval ends at `at`. All events until then arrive before
    /// [`Live::interval`] is called, and some later ones.
    pub fn interval_ends(&mut self, at: ClockPair) {
        self.ends = Some(at.ticks);
    }

    /// Closes the interval that ends at `at`, when everything up to then was taken. Returns `None`
    /// the first time, which begins the first interval.
    pub fn interval(&mut self, at: ClockPair) -> Option<Interval> {
        let interval = self.close_interval(at);
        self.ends = None;
        for later in take(&mut self.later) {
            match later {
                Later::Events(batch) => self.process(&batch),
                Later::Ended(thread) => self.end(thread),
            }
        }
        interval
    }

    fn close_interval(&mut self, at: ClockPair) -> Option<Interval> {
        self.make_room();
        for stack in self.threads.values() {
            self.adder.spend_open(stack, at.ticks);
        }
        self.adder.since = at.ticks;
        let last = self.last.replace(at);
        let first = self.first.or(last).unwrap_or(at);
        let (clock, _) = ClockMap::new(self.clock.unwrap_or(ClockKind::Coarse), &[first, at]);
        // Rows are made before the first interval too: a function called then keeps its row.
        let rows = self.rows(&clock);
        let (events, lost) = self.counts();
        let interval = last.map(|last| Interval {
            // The clock of the events measures the times in the rows, too.
            length_ns: if clock.has_time() {
                clock.duration_ns(at.ticks.saturating_sub(last.ticks))
            } else {
                at.monotonic_ns.saturating_sub(last.monotonic_ns)
            },
            events: events - self.before.0,
            lost: lost - self.before.1,
            rows,
        });
        self.adder.sums.fill(Sums::default());
        self.before = (events, lost);
        interval
    }

    /// Returns the numbers of events and losses so far.
    fn counts(&self) -> (u64, u64) {
        (self.totals.events, self.totals.lost_entries + self.totals.lost_exits)
    }

    fn rows(&mut self, clock: &ClockMap) -> Vec<FunctionCalls> {
        let mut rows = Vec::new();
        for function in &mut self.functions {
            let of_sites = function.sites.iter().map(|site| self.adder.sums[site.0 as usize]);
            let sums = of_sites.fold(Sums::default(), Sums::add);
            if function.name.is_none() && sums.calls + sums.ended == 0 {
                continue;
            }
            let name = function.name.get_or_insert_with(|| demangle(&function.linker_name));
            rows.push(FunctionCalls {
                function: name.clone(),
                module: function.module.clone(),
                sites: function.sites.clone(),
                calls: sums.calls,
                ended: sums.ended,
                avg_ns: clock.duration_ns(sums.durations).checked_div(sums.ended).unwrap_or(0),
                max_ns: clock.duration_ns(sums.longest),
                total_ns: clock.duration_ns(sums.spent),
                is_partial: false,
            });
        }
        rows
    }
}

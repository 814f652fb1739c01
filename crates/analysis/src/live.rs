//! Calls by function, interval by interval, from events as they come.
//!
//! A call counts in the interval in which it begins; its duration, as every view has it, in the one in which it ends. The time spent in a function is
//! that of its outermost activations as far as they lie in the interval, also of those that go on.
//!
//! The end of an interval is announced before the events that lead up to it are read ([`Live::interval_ends`]). What a thread has done after that moment
//! is kept for the next interval, so that one thread never spends more than the length of an interval in a function.

use crate::names::base_name;
use crate::sources::drive::feed_batch;
use crate::tree::{Call, Ending, Enter, Open, Stack, Totals, Visitor};
use calltap_names::demangle;
use calltap_trace::{Batch, ClockKind, ClockMap, ClockPair, Event, Record, Site, SiteId, ThreadId};
use std::collections::HashMap;
use std::mem::take;
use std::str::FromStr;

/// One function in one interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// Name, demangled.
    pub function: String,
    /// File name of the module.
    pub module: String,
    /// Its sites: several where several processes loaded it by themselves.
    pub sites: Vec<SiteId>,
    /// Calls that began.
    pub calls: u64,
    /// Calls that ended.
    pub ended: u64,
    /// Mean duration of the calls that ended, nanoseconds; 0 if none did.
    pub avg_ns: u64,
    /// The longest of them, nanoseconds.
    pub max_ns: u64,
    /// Time spent in it and in what it called, nanoseconds, of all threads together.
    pub total_ns: u64,
    /// It was disabled for some of the interval: what is counted of it is not all.
    pub is_partial: bool,
}

/// What happened in an interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// How long it was, nanoseconds.
    pub length_ns: u64,
    /// Events.
    pub events: u64,
    /// Calls and returns that were lost.
    pub lost: u64,
    /// Every function that was ever called.
    pub rows: Vec<Row>,
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
    /// All of them, in order.
    pub const ALL: [Column; 5] = [Self::Calls, Self::Total, Self::Avg, Self::Max, Self::Function];

    /// What `from_str` understands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Total => "total",
            Self::Avg => "avg",
            Self::Max => "max",
            Self::Function => "function",
        }
    }

    /// The next one, and after the last the first.
    pub fn next(self) -> Column {
        let at = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

impl FromStr for Column {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|column| column.name() == name);
        found.ok_or_else(|| {
            format!("'{name}' is not a column; columns are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

impl Interval {
    /// `number` per second.
    pub fn rate(&self, number: u64) -> f64 {
        if self.length_ns == 0 { 0.0 } else { number as f64 * 1e9 / self.length_ns as f64 }
    }

    /// So many nanoseconds as a percentage of the interval: more than 100 where several threads spent them.
    pub fn percent(&self, ns: u64) -> f64 {
        crate::units::percent(ns, self.length_ns)
    }

    /// Puts the rows in order; equal ones by name.
    pub fn sort(&mut self, by: Column) {
        let number = |row: &Row| match by {
            Column::Calls => row.calls,
            Column::Total => row.total_ns,
            Column::Avg => row.avg_ns,
            Column::Max => row.max_ns,
            Column::Function => 0,
        };
        let by_name = |a: &Row, b: &Row| a.function.cmp(&b.function).then_with(|| a.module.cmp(&b.module));
        self.rows.sort_by(|a, b| number(b).cmp(&number(a)).then_with(|| by_name(a, b)));
    }
}

/// A function that is traced.
#[derive(Debug)]
struct Function {
    linker_name: String,
    module: String,
    sites: Vec<SiteId>,
    /// Demangled when it is first called: most never are.
    name: Option<String>,
}

/// Sums of one site in one interval; times in ticks.
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

/// Adds up what the tree says of one thread at a time.
#[derive(Default)]
struct Adder {
    /// By site; the last stands for all that are not described.
    sums: Vec<Sums>,
    /// Open activations in the current thread, by site; all 0 between two threads.
    open: Vec<u32>,
    /// When the interval began, in ticks: what was before is in the sums of earlier ones.
    since: u64,
}

/// What has happened after the end of the interval.
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

    /// The thread becomes the current one.
    fn enter_thread(&mut self, stack: &Stack) {
        stack.open().for_each(|open| self.open[open.site.0 as usize] += 1);
    }

    /// None is the current one any more.
    fn leave_thread(&mut self, stack: &Stack) {
        stack.open().for_each(|open| self.open[open.site.0 as usize] = 0);
    }

    /// The interval ends at `now`: adds the time of the calls of a thread that go on.
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
        // Of a call that was cut before its thread's last events, nothing says that it went on until these.
        if *open == 0 && !matches!(call.ending, Ending::SwitchedOff | Ending::Lost) {
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

/// Takes records and events as they come, and says what happened in each interval.
#[derive(Default)]
pub struct Live {
    clock: Option<ClockKind>,
    /// The first moment that is known, and the end of the last interval.
    first: Option<ClockPair>,
    last: Option<ClockPair>,
    /// Paths by module.
    modules: HashMap<u32, String>,
    functions: Vec<Function>,
    /// By path of the module, address and name.
    known: HashMap<(String, u64, String), usize>,
    /// The function of a site.
    sites: Vec<Option<usize>>,
    threads: HashMap<ThreadId, Stack>,
    /// When the interval ends, in ticks, as soon as that is known; and what came that happened later.
    ends: Option<u64>,
    later: Vec<Later>,
    adder: Adder,
    totals: Totals,
    /// Events and losses up to the end of the last interval.
    before: (u64, u64),
}

impl Live {
    /// Takes a record.
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
        let module = base_name(&path).to_owned();
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
        let Some(ends) = self.ends else { return self.happen(batch) };
        let is_later = self.has_later(batch.thread);
        // The time of a thread's events never decreases, but for those that the tree takes to happen at the time of their predecessor.
        let first = batch.events.iter().position(|event| is_later || event.ticks >= ends);
        let Some(first) = first else { return self.happen(batch) };
        let part =
            |events: &[Event]| Batch { thread: batch.thread, events: events.to_vec(), ..Batch::default() };
        let (now, later) = batch.events.split_at(first);
        self.happen(&part(now));
        self.later.push(Later::Events(part(later)));
    }

    /// Has something come of a thread that happened after the interval?
    fn has_later(&self, thread: ThreadId) -> bool {
        self.later.iter().any(|later| later.thread() == thread)
    }

    fn happen(&mut self, batch: &Batch) {
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

    /// A thread has ended.
    pub fn end(&mut self, thread: ThreadId) {
        if self.has_later(thread) {
            return self.later.push(Later::Ended(thread));
        }
        let Some(mut ended) = self.threads.remove(&thread) else { return };
        self.adder.enter_thread(&ended);
        ended.finish(thread, Ending::Running, &mut self.adder, &mut self.totals);
    }

    /// The interval ends at `at`. All that has happened until then comes before [`Live::interval`] is called, and some of what happens after.
    pub fn interval_ends(&mut self, at: ClockPair) {
        self.ends = Some(at.ticks);
    }

    /// Everything up to `at` was taken: what has happened since this was last said. None the first time, which begins the first interval.
    pub fn interval(&mut self, at: ClockPair) -> Option<Interval> {
        let interval = self.close_interval(at);
        self.ends = None;
        for later in take(&mut self.later) {
            match later {
                Later::Events(batch) => self.happen(&batch),
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
        // Also before the first interval: a function that was called then has a row in it.
        let rows = self.rows(&clock);
        let (events, lost) = self.counts();
        let interval = last.map(|last| Interval {
            // By the clock of the events, as the times in the rows.
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

    /// Events and losses so far.
    fn counts(&self) -> (u64, u64) {
        (self.totals.events, self.totals.lost_entries + self.totals.lost_exits)
    }

    fn rows(&mut self, clock: &ClockMap) -> Vec<Row> {
        let mut rows = Vec::new();
        for function in &mut self.functions {
            let of_sites = function.sites.iter().map(|site| self.adder.sums[site.0 as usize]);
            let sums = of_sites.fold(Sums::default(), Sums::add);
            if function.name.is_none() && sums.calls + sums.ended == 0 {
                continue;
            }
            let name = function.name.get_or_insert_with(|| demangle(&function.linker_name));
            rows.push(Row {
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

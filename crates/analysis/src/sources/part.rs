//! A part of a trace: selected threads, time, functions alone or with their callees or callers,
//! levels, or long calls.
//!
//! A [`Part`] is a [`Source`] in front of every view, which sees the part as if only that had been
//! recorded. A call that began before the part or continues after it is cut
//! ([`calltap_trace::Ending::Outside`]): it has no duration, and within the part it is context for
//! its callers and callees.

use crate::error::Error;
use crate::names::Names;
use crate::sources::picker::Picker;
use crate::sources::source::{BatchStream, SharedSource, Source, next_readable};
use crate::units::{counted, duration};
use calltap_names::Word;
use calltap_trace::{
    Batch, FunctionRules, GoroutineRun, Incident, KernelLog, Meta, RunState, Sieve, Sifting, SiteId, Switch,
    ThreadId, Waking,
};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::mem;

/// Selection of a part. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default)]
pub struct Which {
    /// The threads; `None`: all.
    pub threads: Option<Vec<ThreadId>>,
    /// The earliest time, inclusive.
    pub from: Option<u64>,
    /// The latest time, exclusive.
    pub until: Option<u64>,
    /// Selects calls of matching functions, and their callees; empty: all.
    pub roots: Vec<Word>,
    /// Selects calls of matching functions, and the calls that lead to them; empty: all.
    pub targets: Vec<Word>,
    /// Number of levels, counted from the outermost calls, or from the functions of `roots`.
    pub depth: Option<usize>,
    /// Selects calls that take longer, nanoseconds.
    pub longer: Option<u64>,
    /// Of these, selects the calls of matching functions alone; empty: all.
    pub functions: Vec<Word>,
}

/// The selection in ticks and sites.
struct Rules {
    sifting: Sifting,
    /// Whether calls of the function are selected with their callees, by site.
    roots: Vec<bool>,
    /// Whether calls of the function are selected with the calls that lead to them, by site.
    targets: Vec<bool>,
    /// Whether calls of the function are selected by themselves, by site; `None`: all.
    functions: Option<Vec<bool>>,
}

impl Rules {
    fn of(&self, site: SiteId) -> FunctionRules {
        let is = |all: &[bool]| all.get(site.0 as usize).copied().unwrap_or(false);
        FunctionRules { is_root: is(&self.roots), is_target: is(&self.targets), levels: None }
    }

    fn is_chosen(&self, site: SiteId) -> bool {
        self.functions.as_ref().is_none_or(|all| all.get(site.0 as usize).copied().unwrap_or(false))
    }
}

/// A part of a source.
pub struct Part<'a> {
    source: &'a dyn Source,
    threads: Option<Vec<ThreadId>>,
    rules: Option<Rules>,
    said: Option<String>,
    spans: OnceCell<BTreeMap<ThreadId, (u64, u64)>>,
}

impl<'a> Part<'a> {
    /// Makes the selected part; without any selection, all of the source.
    pub fn new(source: &'a dyn Source, which: Which) -> Part<'a> {
        let clauses = clauses(source, &which);
        let said = (!clauses.is_empty()).then(|| clauses.join("; "));
        let rules = rules(source, &which);
        Part { source, threads: which.threads, rules, said, spans: OnceCell::new() }
    }

    /// Returns the beginning of the recording, nanoseconds of CLOCK_MONOTONIC, from which displayed
    /// times count: the first clock pair or the first event, as a delayed recorder may read the
    /// clocks for the first time after the first events.
    pub fn beginning(source: &dyn Source) -> u64 {
        let meta = source.meta();
        let clock = meta.clock.first().map(|pair| pair.monotonic_ns);
        let began = clock.or(meta.session.as_ref().map(|session| session.start_monotonic_ns));
        began.into_iter().chain(Part::events(source).map(|(first, _)| first)).min().unwrap_or(0)
    }

    /// Returns the time of the last event, nanoseconds of CLOCK_MONOTONIC; `None` without events.
    pub fn end(source: &dyn Source) -> Option<u64> {
        Part::events(source).map(|(_, last)| last)
    }

    /// Returns the times of the first and the last event, nanoseconds of CLOCK_MONOTONIC; `None`
    /// without events.
    fn events(source: &dyn Source) -> Option<(u64, u64)> {
        let threads = (0..source.meta().threads.len() as u32).map(ThreadId);
        let spans = threads.filter_map(|thread| source.thread_span(thread));
        let (first, last) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        Some((source.to_ns(first), source.to_ns(last)))
    }

    fn has(&self, thread: ThreadId) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads.contains(&thread))
    }

    /// Returns the threads that have events in the part, with the first and the last tick.
    fn spans(&self, rules: &Rules) -> &BTreeMap<ThreadId, (u64, u64)> {
        self.spans.get_or_init(|| {
            let threads = (0..self.source.meta().threads.len() as u32).map(ThreadId);
            threads.filter_map(|thread| Some((thread, self.span(thread, rules)?))).collect()
        })
    }

    fn span(&self, thread: ThreadId, rules: &Rules) -> Option<(u64, u64)> {
        let (first, last) = self.source.thread_span(thread).filter(|_| self.has(thread))?;
        if first >= rules.sifting.to {
            return None;
        }
        let mut stream = self.thread_batches(thread);
        let (mut batch, mut damage) = (Batch::default(), crate::sources::source::Damage::default());
        while next_readable(&mut *stream, &mut batch, &mut damage) {
            if let Some(event) = batch.events.first() {
                return Some((event.ticks, last.clamp(event.ticks, rules.sifting.to.max(event.ticks))));
            }
        }
        None
    }
}

fn rules(source: &dyn Source, which: &Which) -> Option<Rules> {
    let Which { from, until, roots, targets, depth, longer, functions, .. } = which;
    let has_words = [roots, targets, functions].into_iter().any(|words| !words.is_empty());
    let has_limits = depth.is_some() || longer.is_some();
    if from.is_none() && until.is_none() && !has_words && !has_limits {
        return None;
    }
    let names = Names::new(source.meta(), false);
    let named = |words: &[Word]| -> Vec<bool> {
        let is = |site| names.selects(SiteId(site), words);
        (0..source.meta().sites.len() as u32).map(is).collect()
    };
    let tick = |ns: u64| first_tick(ns, |ticks| source.to_ns(ticks));
    let longest =
        |ns: u64| first_tick(ns.saturating_add(1), |ticks| source.duration_ns(ticks)).saturating_sub(1);
    Some(Rules {
        sifting: Sifting {
            from: from.map_or(0, tick),
            to: until.map_or(u64::MAX, tick),
            rooted: !roots.is_empty(),
            targeted: !targets.is_empty(),
            depth: depth.unwrap_or(usize::MAX),
            longer: longer.map(longest),
        },
        roots: named(roots),
        targets: named(targets),
        functions: (!functions.is_empty()).then(|| named(functions)),
    })
}

/// Returns the first tick at or after a time; times never decrease with ticks.
fn first_tick(ns: u64, to_ns: impl Fn(u64) -> u64) -> u64 {
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if to_ns(middle) >= ns { high = middle } else { low = middle + 1 }
    }
    low
}

/// Returns the switches of a time: it begins with the state that the thread is in, and behind its
/// end the state is unknown.
fn within(mut switches: Vec<Switch>, from: u64, to: u64) -> Vec<Switch> {
    let behind = switches.partition_point(|switch| switch.at < to);
    if behind < switches.len() {
        switches.truncate(behind);
        switches.push(Switch { at: to, to: RunState::Unknown });
    }
    let before = switches.partition_point(|switch| switch.at <= from);
    if let Some(last) = before.checked_sub(1) {
        switches.drain(..last);
        switches[0].at = from;
    }
    switches
}

/// Describes the selection as clauses.
fn clauses(source: &dyn Source, which: &Which) -> Vec<String> {
    let start = Part::beginning(source);
    let seconds = |ns: &u64| {
        let since = ns.saturating_sub(start);
        format!("{}.{:06} s", since / 1_000_000_000, since / 1000 % 1_000_000)
    };
    let mut clauses = Vec::new();
    clauses.extend(which.from.as_ref().map(|ns| format!("from {}", seconds(ns))));
    clauses.extend(which.until.as_ref().map(|ns| format!("until {}", seconds(ns))));
    let misses = |(first, last): &(u64, u64)| {
        which.from.is_some_and(|from| from > *last) || which.until.is_some_and(|until| until <= *first)
    };
    let missed = Part::events(source).filter(|_| source.has_time()).filter(misses);
    clauses.extend(
        missed.map(|(first, last)| format!("all events are from {} to {}", seconds(&first), seconds(&last))),
    );
    if let Some(threads) = &which.threads {
        let all = source.meta().threads.len() as u64;
        clauses.push(format!("{} of {}", threads.len(), counted(all, "thread")));
    }
    let mut named = |words: &[Word], before: &str, behind: &str| {
        let words: Vec<&str> = words.iter().map(Word::text).collect();
        if !words.is_empty() {
            clauses.push(format!("{before}{}{behind}", words.join(", ")));
        }
    };
    named(&which.roots, "", " and what it calls");
    named(&which.targets, "", " and what leads to it");
    named(&which.functions, "calls of ", " alone (others count as their callers' own time)");
    clauses.extend(which.depth.map(|depth| format!("{} deep", counted(depth as u64, "level"))));
    let longer = |ns| format!("calls longer than {} (others count as their callers' own time)", duration(ns));
    clauses.extend(which.longer.map(longer));
    clauses
}

/// The events of a part, of one thread or of all in file order.
struct Sifted<'a> {
    part: &'a Part<'a>,
    rules: &'a Rules,
    stream: Box<dyn BatchStream + 'a>,
    sieves: BTreeMap<ThreadId, Sieve>,
    pickers: BTreeMap<ThreadId, Picker>,
    /// Whether the stream has one thread only, so that nothing after its part needs to be read.
    single: bool,
    read: Batch,
    /// Events that have passed the sieves, before calls are picked.
    sifted: Batch,
}

fn clear(batch: &mut Batch) {
    batch.events.clear();
    batch.values.clear();
}

impl BatchStream for Sifted<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        if self.rules.functions.is_none() {
            return self.sift_into(batch);
        }
        let mut sifted = mem::take(&mut self.sifted);
        let more = loop {
            if !self.sift_into(&mut sifted)? {
                break false;
            }
            self.pick(&sifted, batch);
            if !batch.events.is_empty() {
                break true;
            }
        };
        self.sifted = sifted;
        Ok(more)
    }
}

impl Sifted<'_> {
    /// Reads the next events that pass the sieves.
    fn sift_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        loop {
            clear(batch);
            let over = self.single && self.sieves.values().all(Sieve::is_over) && !self.sieves.is_empty();
            if over || !self.stream.next_into(&mut self.read)? {
                return Ok(self.finish(batch));
            }
            let thread = self.read.thread;
            if !self.part.has(thread) {
                continue;
            }
            batch.thread = thread;
            let sieve = self.sieves.entry(thread).or_insert_with(|| Sieve::new(self.rules.sifting));
            for (place, event) in self.read.events.iter().enumerate() {
                sieve.take(event, self.rules.of(event.site), self.read.values.of(place), batch);
            }
            if !batch.events.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Copies the calls of the chosen functions.
    fn pick(&mut self, from: &Batch, to: &mut Batch) {
        clear(to);
        to.thread = from.thread;
        let picker = self.pickers.entry(from.thread).or_default();
        for (place, event) in from.events.iter().enumerate() {
            picker.take(event, self.rules.is_chosen(event.site), from.values.of(place), to);
        }
    }

    /// Appends the ends of calls that are open in threads whose events are exhausted.
    fn finish(&mut self, batch: &mut Batch) -> bool {
        for (thread, sieve) in self.sieves.iter_mut().filter(|(_, sieve)| !sieve.is_over()) {
            batch.thread = *thread;
            sieve.finish(batch);
            if !batch.events.is_empty() {
                return true;
            }
        }
        false
    }
}

/// The events of a part's threads, one thread after the other.
struct Chain<'a> {
    part: &'a Part<'a>,
    threads: std::vec::IntoIter<ThreadId>,
    current: Option<Box<dyn BatchStream + 'a>>,
}

impl BatchStream for Chain<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        loop {
            if let Some(stream) = &mut self.current
                && stream.next_into(batch)?
            {
                return Ok(true);
            }
            let Some(thread) = self.threads.next() else { return Ok(false) };
            self.current = Some(self.part.thread_batches(thread));
        }
    }
}

impl Source for Part<'_> {
    fn meta(&self) -> &Meta {
        self.source.meta()
    }

    fn part(&self) -> Option<&str> {
        self.said.as_deref()
    }

    fn complaints(&self) -> &[String] {
        self.source.complaints()
    }

    fn event_count(&self) -> u64 {
        self.source.event_count()
    }

    fn has_time(&self) -> bool {
        self.source.has_time()
    }

    fn to_ns(&self, ticks: u64) -> u64 {
        self.source.to_ns(ticks)
    }

    fn duration_ns(&self, ticks: u64) -> u64 {
        self.source.duration_ns(ticks)
    }

    fn batches(&self) -> Box<dyn BatchStream + '_> {
        match (&self.rules, &self.threads) {
            (None, None) => self.source.batches(),
            // The batches of other threads need not be read.
            (_, Some(threads)) => {
                Box::new(Chain { part: self, threads: threads.clone().into_iter(), current: None })
            }
            (Some(rules), None) => Box::new(self.sifted(rules, self.source.batches(), false)),
        }
    }

    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_> {
        let stream = self.source.thread_batches(thread);
        match &self.rules {
            Some(rules) => Box::new(self.sifted(rules, stream, true)),
            None => stream,
        }
    }

    fn has_switches(&self) -> bool {
        self.source.has_switches()
    }

    fn switches(&self, thread: ThreadId) -> Result<Option<Vec<Switch>>, Error> {
        let switches = self.source.switches(thread)?;
        let times = self.rules.as_ref().map(|rules| (rules.sifting.from, rules.sifting.to));
        Ok(switches.map(|switches| match times {
            Some((from, to)) => within(switches, from, to),
            None => switches,
        }))
    }

    fn wakings(&self, thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        let mut wakings = self.source.wakings(thread)?;
        let span = self.thread_span(thread);
        wakings
            .entries
            .retain(|waking| span.is_some_and(|(first, last)| (first..=last).contains(&waking.at)));
        Ok(wakings)
    }

    fn incidents(&self, thread: ThreadId) -> Result<KernelLog<Incident>, Error> {
        let mut incidents = self.source.incidents(thread)?;
        if let Some(Rules { sifting, .. }) = &self.rules {
            incidents.entries.retain(|incident| (sifting.from..sifting.to).contains(&incident.at));
        }
        Ok(incidents)
    }

    fn goroutine_runs(&self, goroutine: ThreadId) -> Result<Vec<GoroutineRun>, Error> {
        self.source.goroutine_runs(goroutine)
    }

    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        match &self.rules {
            Some(rules) => self.spans(rules).get(&thread).copied(),
            None => self.source.thread_span(thread).filter(|_| self.has(thread)),
        }
    }

    fn shared(&self) -> Option<&dyn SharedSource> {
        let is_all = self.rules.is_none() && self.threads.is_none();
        self.source.shared().filter(|_| is_all)
    }
}

impl<'a> Part<'a> {
    fn sifted(&'a self, rules: &'a Rules, stream: Box<dyn BatchStream + 'a>, single: bool) -> Sifted<'a> {
        let (sieves, pickers) = (BTreeMap::new(), BTreeMap::new());
        let (read, sifted) = (Batch::default(), Batch::default());
        Sifted { part: self, rules, stream, sieves, pickers, single, read, sifted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::{Blocked, Running, Unknown};

    #[test]
    fn states_are_cut_at_the_bounds_of_a_part() {
        let all = [(10, Running), (20, Blocked), (50, Running), (60, Unknown)];
        let cut = |from, to| {
            let switches = all.iter().map(|(at, to)| Switch { at: *at, to: *to }).collect();
            within(switches, from, to).iter().map(|switch| (switch.at, switch.to)).collect::<Vec<_>>()
        };
        assert_eq!(cut(0, u64::MAX), all);
        assert_eq!(cut(30, 40), [(30, Blocked), (40, Unknown)]);
        assert_eq!(cut(15, 55), [(15, Running), (20, Blocked), (50, Running), (55, Unknown)]);
        assert_eq!(cut(20, 50), [(20, Blocked), (50, Unknown)]);
        assert_eq!(cut(0, 5), [(5, Unknown)]);
        assert_eq!(cut(70, 80), [(70, Unknown)]);
    }
}

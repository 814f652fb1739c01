//! Adding up calls by function.

use super::{Options, Report, Row, SortKey, Times};
use crate::head::head;
use crate::{Call, Enter, Error, Names, Progress, Source, Visitor, run_by_thread};
use calltap_trace::{SiteId, ThreadId};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::io;

/// Sums of one function, ticks: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Stats {
    squares: u128,
    calls: u64,
    outermost: u64,
    own: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Stats {
    const NONE: Self = Self { squares: 0, calls: 0, outermost: 0, own: 0, sum: 0, min: u64::MAX, max: 0 };

    fn add(&mut self, other: &Self) {
        self.squares = self.squares.saturating_add(other.squares);
        self.calls += other.calls;
        self.outermost = self.outermost.saturating_add(other.outermost);
        self.own = self.own.saturating_add(other.own);
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Sample standard deviation in ticks.
    fn deviation(&self) -> f64 {
        if self.calls < 2 {
            return 0.0;
        }
        let (n, sum) = (u128::from(self.calls), u128::from(self.sum));
        // Exact while it fits: means far larger than their deviation would cancel in floating point.
        let spread = match self.squares.checked_mul(n) {
            Some(squares) => squares.saturating_sub(sum * sum) as f64,
            None => (self.squares as f64 * n as f64 - sum as f64 * sum as f64).max(0.0),
        };
        (spread / (n as f64 * (n - 1) as f64)).sqrt()
    }
}

struct Collector {
    stats: Vec<Stats>,
    /// Calls without time, by site.
    marks: Vec<u64>,
    /// Open activations in the current thread, by site.
    open: Vec<u32>,
    /// Sites with calls in the current thread (in the trace, unless by thread).
    touched: Vec<u32>,
    by_thread: bool,
    finished: Vec<(ThreadId, SiteId, Stats, u64)>,
}

impl Visitor for Collector {
    #[inline(always)]
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.open[enter.site.0 as usize] += 1;
    }

    #[inline(always)]
    fn close(&mut self, _: ThreadId, call: &Call) {
        let at = call.site.0 as usize;
        let stats = &mut self.stats[at];
        let open = &mut self.open[at];
        *open -= 1;
        if stats.calls == 0 {
            self.touched.push(call.site.0);
        }
        stats.calls += 1;
        stats.sum = stats.sum.wrapping_add(call.total);
        stats.own = stats.own.wrapping_add(call.self_ticks);
        stats.outermost = stats.outermost.wrapping_add(if *open == 0 { call.total } else { 0 });
        stats.squares = stats.squares.wrapping_add(u128::from(call.total) * u128::from(call.total));
        stats.min = stats.min.min(call.total);
        stats.max = stats.max.max(call.total);
    }

    #[inline(always)]
    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        let marks = &mut self.marks[enter.site.0 as usize];
        if *marks == 0 {
            self.touched.push(enter.site.0);
        }
        *marks += 1;
    }

    fn thread_end(&mut self, thread: ThreadId) -> io::Result<()> {
        if self.by_thread {
            self.flush(thread);
        }
        Ok(())
    }
}

impl Collector {
    fn flush(&mut self, thread: ThreadId) {
        self.touched.sort_unstable();
        for at in self.touched.drain(..) {
            let (stats, marks) = (&mut self.stats[at as usize], &mut self.marks[at as usize]);
            // A function that was both timed and marked is in the list twice.
            if stats.calls + *marks > 0 {
                self.finished.push((thread, SiteId(at), *stats, *marks));
                (*stats, *marks) = (Stats::NONE, 0);
            }
        }
    }
}

pub(super) fn collect(
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, Error> {
    let sites = source.meta().sites.len() + 1;
    let mut collector = Collector {
        stats: vec![Stats::NONE; sites],
        marks: vec![0; sites],
        open: vec![0; sites],
        touched: Vec::new(),
        by_thread: options.by_thread,
        finished: Vec::new(),
    };
    let totals = run_by_thread(source, &mut collector, progress)?;
    if !options.by_thread {
        collector.flush(ThreadId(0));
    }
    let names = Names::new(source.meta(), options.linker_names);
    let mut rows = rows(source, options, &names, collector.finished);
    let cut = limit(&mut rows, options);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let head = head(source, &totals);
    Ok(Report { rows, totals, cut, head, timed: source.has_time(), by_thread: options.by_thread })
}

fn rows(
    source: &dyn Source,
    options: &Options,
    names: &Names<'_>,
    finished: Vec<(ThreadId, SiteId, Stats, u64)>,
) -> Vec<(ThreadId, Row)> {
    let (functions, shown) = (same_functions(source, names), shown(source, options, names));
    let mut index = HashMap::new();
    let mut merged: Vec<(ThreadId, SiteId, Stats, u64)> = Vec::new();
    for (thread, site, stats, marks) in finished {
        let at = site.0 as usize;
        if !shown[at] {
            continue;
        }
        let at = *index.entry((thread, functions[at])).or_insert(merged.len());
        match merged.get_mut(at) {
            Some((_, _, sum, calls)) => {
                sum.add(&stats);
                *calls += marks;
            }
            None => merged.push((thread, site, stats, marks)),
        }
    }
    let mut rows: Vec<(ThreadId, Row)> = merged
        .into_iter()
        .map(|(thread, site, stats, marks)| {
            let row = Row {
                function: names.function(site).to_owned(),
                module: names.module(site).to_owned(),
                thread: options.by_thread.then(|| (names.comm(thread).to_owned(), names.tid(thread))),
                calls: stats.calls + marks,
                times: times(source, &stats),
            };
            (thread, row)
        })
        .collect();
    rows.sort_by(|(thread_a, a), (thread_b, b)| thread_a.cmp(thread_b).then_with(|| order(a, b, options)));
    rows
}

/// A number per site, the same for sites that are one function: of several processes, or of a module that was
/// loaded twice.
fn same_functions(source: &dyn Source, names: &Names<'_>) -> Vec<usize> {
    let mut known = HashMap::new();
    (0..=source.meta().sites.len())
        .map(|at| {
            let site = SiteId(at as u32);
            let address = source.meta().sites.get(at).map(|site| site.address);
            *known.entry((address, names.linker(site), names.module_path(site))).or_insert(at)
        })
        .collect()
}

/// Whether each site passes the filter.
fn shown(source: &dyn Source, options: &Options, names: &Names<'_>) -> Vec<bool> {
    (0..=source.meta().sites.len() as u32)
        .map(SiteId)
        .map(|site| {
            let matching = |g: &crate::Glob| g.matches(names.linker(site)) || g.matches(names.function(site));
            options.filter.is_empty() || options.filter.iter().any(matching)
        })
        .collect()
}

fn times(source: &dyn Source, stats: &Stats) -> Option<Times> {
    if stats.calls == 0 || !source.has_time() {
        return None;
    }
    let ns = |ticks| source.duration_ns(ticks);
    let ns_per_tick = ns(1 << 32) as f64 / (1u64 << 32) as f64;
    Some(Times {
        total_ns: ns(stats.outermost),
        self_ns: ns(stats.own),
        avg_ns: ns(stats.sum) / stats.calls,
        min_ns: ns(stats.min),
        max_ns: ns(stats.max),
        stdev_ns: (stats.deviation() * ns_per_tick).round() as u64,
    })
}

fn order(a: &Row, b: &Row, options: &Options) -> Ordering {
    let number = |row: &Row| {
        let times = row.times.unwrap_or_default();
        match options.sort {
            SortKey::Total => times.total_ns,
            SortKey::SelfTime => times.self_ns,
            SortKey::Avg => times.avg_ns,
            SortKey::Min => times.min_ns,
            SortKey::Max => times.max_ns,
            SortKey::Stdev => times.stdev_ns,
            SortKey::Calls | SortKey::Function | SortKey::Module => row.calls,
        }
    };
    let by_name = || a.function.cmp(&b.function).then_with(|| a.module.cmp(&b.module));
    let first = match options.sort {
        SortKey::Function => by_name(),
        SortKey::Module => a.module.cmp(&b.module),
        _ => number(b).cmp(&number(a)),
    };
    let first = if options.reverse { first.reverse() } else { first };
    first.then_with(|| b.calls.cmp(&a.calls)).then_with(by_name)
}

/// Keeps the first rows (of each thread); returns how many were dropped.
fn limit(rows: &mut Vec<(ThreadId, Row)>, options: &Options) -> u64 {
    let Some(limit) = options.limit else { return 0 };
    let before = rows.len();
    let (mut current, mut kept) = (None, 0);
    rows.retain(|(thread, _)| {
        if current != Some(*thread) {
            (current, kept) = (Some(*thread), 0);
        }
        kept += 1;
        kept <= limit
    });
    (before - rows.len()) as u64
}

//! Sums of calls by function, from which tables of functions are made.

use crate::error::Error;
use crate::histogram::{Counts, Histograms};
use crate::off::Off;
use crate::sources::drive::Progress;
use crate::sources::share::run_shared;
use crate::sources::source::Source;
use crate::tree::{Call, Enter, Totals, Visitor};
use calltap_trace::{SiteId, ThreadId};
use std::io;

/// Data kept of each function besides its [`Stats`]; `()` keeps none, at no cost.
pub(crate) trait Extra: Send + Sync {
    /// Data of one function.
    type Of: Default + Send;

    /// Makes an empty value for the same number of functions.
    fn fresh(&self) -> Self;

    /// Adds a call of a function that ended.
    fn close(&mut self, function: usize, call: &Call, outermost: bool);

    /// Takes the data of a function and resets it.
    fn take(&mut self, function: usize) -> Self::Of;

    /// Adds the data of the same function from elsewhere.
    fn add(sum: &mut Self::Of, other: &Self::Of);
}

impl Extra for () {
    type Of = ();

    fn fresh(&self) {}

    #[inline(always)]
    fn close(&mut self, _: usize, _: &Call, _: bool) {}

    fn take(&mut self, _: usize) {}

    fn add(_: &mut (), _: &()) {}
}

impl Extra for Histograms {
    type Of = Counts;

    fn fresh(&self) -> Histograms {
        Histograms::new(self.functions())
    }

    #[inline(always)]
    fn close(&mut self, function: usize, call: &Call, _: bool) {
        self.record(function, call.total);
    }

    fn take(&mut self, function: usize) -> Counts {
        self.take(function)
    }

    fn add(sum: &mut Counts, other: &Counts) {
        sum.add(other);
    }
}

/// The sums of one function, of one thread or of all.
pub(crate) struct Sum<T> {
    /// The thread; the first one if threads are not told apart.
    pub(crate) thread: ThreadId,
    pub(crate) site: SiteId,
    pub(crate) stats: Stats,
    /// Number of calls without time.
    pub(crate) marks: u64,
    /// Off-CPU part of the time in `stats`; `None` if context switches were not recorded.
    pub(crate) offs: Option<SumOff>,
    pub(crate) extra: T,
}

impl<T> Sum<T> {
    /// Adds the sums of the same function from elsewhere.
    pub(crate) fn add<E: Extra<Of = T>>(&mut self, other: &Self) {
        self.stats.add(&other.stats);
        self.marks += other.marks;
        if let (Some(off), Some(more)) = (&mut self.offs, other.offs) {
            off.outermost += more.outermost;
            off.own += more.own;
        }
        E::add(&mut self.extra, &other.extra);
    }
}

/// Off-CPU time of a function, ticks.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SumOff {
    /// Off-CPU time of outermost activations.
    pub(crate) outermost: Off,
    pub(crate) own: Off,
}

/// Sums of one function, ticks: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Stats {
    pub(crate) squares: u128,
    pub(crate) calls: u64,
    pub(crate) outermost: u64,
    pub(crate) own: u64,
    pub(crate) sum: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Stats {
    pub(crate) const NONE: Self =
        Self { squares: 0, calls: 0, outermost: 0, own: 0, sum: 0, min: u64::MAX, max: 0 };

    pub(crate) fn add(&mut self, other: &Self) {
        self.squares = self.squares.saturating_add(other.squares);
        self.calls += other.calls;
        self.outermost = self.outermost.saturating_add(other.outermost);
        self.own = self.own.saturating_add(other.own);
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the sample standard deviation in ticks.
    pub(crate) fn deviation(&self) -> f64 {
        variance(self.calls, self.sum, self.squares).sqrt()
    }
}

/// Returns the sample variance of `calls` durations from their sum and the sum of their squares; 0
/// of a single one.
pub(crate) fn variance(calls: u64, sum: u64, squares: u128) -> f64 {
    if calls < 2 {
        return 0.0;
    }
    let (n, sum) = (u128::from(calls), u128::from(sum));
    // Integers are exact where they fit: with means far larger than the deviation, floating point
    // would cancel.
    let spread = match squares.checked_mul(n) {
        Some(squares) => squares.saturating_sub(sum * sum) as f64,
        None => (squares as f64 * n as f64 - sum as f64 * sum as f64).max(0.0),
    };
    spread / (n as f64 * (n - 1) as f64)
}

/// Known time within an activation: that of the outermost calls of its function that have returned.
#[derive(Clone, Copy, Default)]
struct Known {
    ticks: u64,
    off: Off,
}

struct Collector<E: Extra> {
    stats: Vec<Stats>,
    /// Number of calls without time, by site.
    marks: Vec<u64>,
    /// Off-CPU time by site, as `stats`; empty if context switches were not recorded.
    offs: Vec<SumOff>,
    /// Number of open activations in the current thread, by site.
    open: Vec<u32>,
    /// Times of returned calls in the open activations of each recursive function, by depth of
    /// recursion, in case the end of the activation around them is unknown.
    inner: Vec<Vec<Known>>,
    /// Sites with calls in the current thread, or unless by thread, in the trace.
    touched: Vec<u32>,
    by_thread: bool,
    extra: E,
    finished: Vec<Sum<E::Of>>,
}

impl<E: Extra> Visitor for Collector<E> {
    #[inline(always)]
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.open[enter.site.0 as usize] += 1;
    }

    #[inline(always)]
    fn close(&mut self, _: ThreadId, call: &Call) {
        let at = call.site.0 as usize;
        let open = &mut self.open[at];
        *open -= 1;
        let outermost = *open == 0;
        if !outermost || !self.inner[at].is_empty() {
            self.pass_inner(at, call);
        }
        if call.ending.is_cut() {
            return if call.ending.is_of_call() {
                self.count(at)
            };
        }
        let stats = &mut self.stats[at];
        if stats.calls == 0 {
            self.touched.push(call.site.0);
        }
        stats.calls += 1;
        stats.sum = stats.sum.wrapping_add(call.total);
        stats.own = stats.own.wrapping_add(call.self_ticks);
        stats.outermost = stats.outermost.wrapping_add(if outermost { call.total } else { 0 });
        stats.squares = stats.squares.wrapping_add(u128::from(call.total) * u128::from(call.total));
        stats.min = stats.min.min(call.total);
        stats.max = stats.max.max(call.total);
        if let Some(off) = self.offs.get_mut(at).filter(|_| !call.off.is_none()) {
            off.own += call.self_off;
            off.outermost += if outermost { call.off } else { Off::default() };
        }
        self.extra.close(at, call, outermost);
    }

    #[inline(always)]
    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        self.count(enter.site.0 as usize);
    }

    fn thread_end(&mut self, thread: ThreadId) -> io::Result<()> {
        if self.by_thread {
            self.flush(thread);
        }
        Ok(())
    }
}

impl<E: Extra> Collector<E> {
    /// Hands the known time of a call of a recursive function to the activation around it, or adds
    /// it to the sums if that of the outermost one is not known.
    #[inline(never)]
    fn pass_inner(&mut self, at: usize, call: &Call) {
        let (depth, inner) = (self.open[at] as usize, &mut self.inner[at]);
        let within = if inner.len() > depth + 1 { inner.pop().unwrap_or_default() } else { Known::default() };
        let is_cut = call.ending.is_cut();
        let known = if is_cut { within } else { Known { ticks: call.total, off: call.off } };
        if depth > 0 {
            inner.resize(inner.len().max(depth + 1), Known::default());
            inner[depth].ticks = inner[depth].ticks.wrapping_add(known.ticks);
            inner[depth].off += known.off;
            return;
        }
        inner.clear();
        if is_cut {
            self.stats[at].outermost = self.stats[at].outermost.wrapping_add(known.ticks);
            self.offs.get_mut(at).into_iter().for_each(|off| off.outermost += known.off);
        }
    }

    /// Counts a call without time.
    #[inline]
    fn count(&mut self, site: usize) {
        let marks = &mut self.marks[site];
        if *marks == 0 {
            self.touched.push(site as u32);
        }
        *marks += 1;
    }

    fn flush(&mut self, thread: ThreadId) {
        self.touched.sort_unstable();
        for at in self.touched.drain(..) {
            let (stats, marks) = (&mut self.stats[at as usize], &mut self.marks[at as usize]);
            // A function that was both timed and marked is in the list twice.
            if stats.calls + *marks > 0 {
                let extra = self.extra.take(at as usize);
                let (stats, marks) = (*stats, *marks);
                let offs = self.offs.get_mut(at as usize).map(std::mem::take);
                self.finished.push(Sum { thread, site: SiteId(at), stats, marks, offs, extra });
                (self.stats[at as usize], self.marks[at as usize]) = (Stats::NONE, 0);
            }
        }
    }
}

/// Sums by function (and thread), and the totals of the trace.
pub(crate) type Sums<E> = (Vec<Sum<<E as Extra>::Of>>, Totals);

/// Reads all events and sums them up by function, or by thread and function. Threads ascend;
/// functions are in no particular order.
pub(crate) fn collect<E: Extra>(
    source: &dyn Source,
    by_thread: bool,
    extra: E,
    progress: Progress<'_>,
) -> Result<Sums<E>, Error> {
    let sites = source.meta().sites.len() + 1;
    let has_switches = source.has_switches();
    let make = || Collector {
        stats: vec![Stats::NONE; sites],
        marks: vec![0; sites],
        offs: vec![SumOff::default(); if has_switches { sites } else { 0 }],
        open: vec![0; sites],
        inner: vec![Vec::new(); sites],
        touched: Vec::new(),
        by_thread,
        extra: extra.fresh(),
        finished: Vec::new(),
    };
    let (collectors, totals) = run_shared(source, &make, progress)?;
    let mut sums: Vec<Sum<E::Of>> = Vec::new();
    for mut collector in collectors {
        if !by_thread {
            collector.flush(ThreadId(0));
        }
        sums.append(&mut collector.finished);
    }
    // Each function, of each thread if threads are told apart, gets one sum.
    sums.sort_by_key(|sum| (sum.thread, sum.site));
    sums.dedup_by(|next, sum| {
        let is_same = (next.thread, next.site) == (sum.thread, sum.site);
        if is_same {
            sum.add::<E>(next);
        }
        is_same
    });
    Ok((sums, totals))
}

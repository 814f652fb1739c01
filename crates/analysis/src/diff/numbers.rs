//! The measures of one function, or call path, in one recording.

use super::Measure;
use super::measure::PERMILLES;
use crate::histogram::{Counts, Histograms};
use crate::sources::source::Source;
use crate::sums::{Extra, Stats, variance};
use crate::tree::Call;

/// The compared numbers; the default stands for a function that was never called.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    pub(super) calls: u64,
    /// Times; `None` if no call was timed.
    pub(super) times: Option<Times>,
}

#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) total: Sample,
    pub(super) own: Sample,
    /// Durations of all calls, recursive ones included.
    pub(super) every: Sample,
    pub(super) max_ns: u64,
    /// Parts of the total, in the order of [`Measure::STATES`]; `None` if unknown for any call.
    pub(super) states: Option<[Sample; 4]>,
    /// Percentiles in the order of [`PERMILLES`]; `None` by path.
    pub(super) percentiles: Option<[Percentile; 4]>,
}

/// Count, sum and variance of durations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) count: u64,
    pub(super) sum_ns: u64,
    pub(super) variance_ns2: f64,
}

/// A percentile, and the range in which it lies; no range with too few calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Percentile {
    pub(super) ns: u64,
    pub(super) between_ns: Option<(u64, u64)>,
}

impl Numbers {
    /// Returns a measure: 0 of a function that was never called, `None` without times.
    pub(super) fn value(&self, measure: Measure) -> Option<u64> {
        if measure == Measure::Calls || self.calls == 0 {
            return Some(self.calls);
        }
        let times = self.times.as_ref()?;
        let percentile = |at: usize| times.percentiles.map(|all| all[at].ns);
        let state = |at: usize| times.states.map(|all| all[at].sum_ns);
        match measure {
            Measure::Calls => Some(self.calls),
            Measure::Total => Some(times.total.sum_ns),
            Measure::SelfTime => Some(times.own.sum_ns),
            Measure::Avg => times.every.sum_ns.checked_div(times.every.count),
            Measure::P50 => percentile(0),
            Measure::P90 => percentile(1),
            Measure::P99 => percentile(2),
            Measure::P999 => percentile(3),
            Measure::Max => Some(times.max_ns),
            Measure::Cpu => state(0),
            Measure::Runnable => state(1),
            Measure::Blocked => state(2),
            Measure::Tracing => state(3),
        }
    }
}

/// Number, sum and sum of squares of the durations of one function, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Squares {
    pub(super) count: u64,
    pub(super) sum: u64,
    pub(super) squares: u128,
}

impl Squares {
    #[inline(always)]
    pub(super) fn record(&mut self, ticks: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(ticks);
        self.squares = self.squares.saturating_add(u128::from(ticks) * u128::from(ticks));
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
    }

    pub(super) fn sample(&self, source: &dyn Source) -> Sample {
        let ns_per_tick = source.duration_ns(1 << 32) as f64 / (1u64 << 32) as f64;
        Sample {
            count: self.count,
            sum_ns: source.duration_ns(self.sum),
            variance_ns2: variance(self.count, self.sum, self.squares) * ns_per_tick * ns_per_tick,
        }
    }
}

/// The time that threads spent in each state during calls, in the order of [`Measure::STATES`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct States {
    parts: [Squares; 4],
    /// Whether the states of any call are unknown.
    is_unknown: bool,
}

impl States {
    pub(super) fn record(&mut self, call: &Call) {
        let Some(cpu) = call.off.cpu(call.total) else {
            self.is_unknown = true;
            return;
        };
        let parts = [cpu, call.off.runnable, call.off.blocked, call.off.tracing];
        self.parts.iter_mut().zip(parts).for_each(|(part, ticks)| part.record(ticks));
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.parts.iter_mut().zip(&other.parts).for_each(|(part, other)| part.add(other));
        self.is_unknown |= other.is_unknown;
    }

    pub(super) fn samples(&self, source: &dyn Source) -> Option<[Sample; 4]> {
        let is_known = source.has_switches() && !self.is_unknown;
        is_known.then(|| self.parts.map(|part| part.sample(source)))
    }
}

/// Sums that a comparison needs beyond those of a report, for each function.
pub(super) struct Spreads {
    functions: Vec<(Squares, Squares)>,
    /// States during outermost calls; empty if context switches were not recorded.
    states: Vec<States>,
    histograms: Histograms,
}

/// The sums of one function: outermost calls, self time, states, and all durations.
#[derive(Default)]
pub(super) struct Spread {
    outermost: Squares,
    own: Squares,
    states: States,
    counts: Counts,
}

impl Spreads {
    pub(super) fn new(functions: usize, switched: bool) -> Self {
        Self {
            functions: vec![Default::default(); functions],
            states: vec![States::default(); if switched { functions } else { 0 }],
            histograms: Histograms::new(functions),
        }
    }
}

impl Extra for Spreads {
    type Of = Spread;

    fn fresh(&self) -> Spreads {
        Spreads::new(self.functions.len(), !self.states.is_empty())
    }

    #[inline(always)]
    fn close(&mut self, function: usize, call: &Call, outermost: bool) {
        let (outer, own) = &mut self.functions[function];
        if outermost {
            outer.record(call.total);
            if let Some(states) = self.states.get_mut(function) {
                states.record(call);
            }
        }
        own.record(call.self_ticks);
        self.histograms.record(function, call.total);
    }

    fn take(&mut self, function: usize) -> Spread {
        let (outermost, own) = std::mem::take(&mut self.functions[function]);
        let states = self.states.get_mut(function).map(std::mem::take).unwrap_or_default();
        Spread { outermost, own, states, counts: self.histograms.take(function) }
    }

    fn add(sum: &mut Spread, other: &Spread) {
        sum.outermost.add(&other.outermost);
        sum.own.add(&other.own);
        sum.states.add(&other.states);
        sum.counts.add(&other.counts);
    }
}

/// Returns the numbers of a function.
pub(super) fn of_function(source: &dyn Source, stats: &Stats, marks: u64, spread: &Spread) -> Numbers {
    let calls = stats.calls + marks;
    if stats.calls == 0 || !source.has_time() {
        return Numbers { calls, times: None };
    }
    let every = Squares { count: stats.calls, sum: stats.sum, squares: stats.squares };
    let ns = |ticks: u64| source.duration_ns(ticks.clamp(stats.min, stats.max));
    let percentiles = PERMILLES.map(|permille| Percentile {
        ns: ns(spread.counts.permille(permille)),
        between_ns: super::rule::ranks(spread.counts.len(), permille)
            .map(|(low, high)| (ns(spread.counts.at_rank(low)), ns(spread.counts.at_rank(high)))),
    });
    let times = Times {
        total: spread.outermost.sample(source),
        own: spread.own.sample(source),
        every: every.sample(source),
        max_ns: source.duration_ns(stats.max),
        states: spread.states.samples(source),
        percentiles: Some(percentiles),
    };
    Numbers { calls, times: Some(times) }
}

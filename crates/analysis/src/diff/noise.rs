//! Decides which differences are noise.
//!
//! One recording of a program is a sample: recorded again, its calls take other times. Several
//! recordings show how much they vary (`evidence`). With one recording per side, the variation is
//! estimated from how its calls differ among themselves, by this rule:
//!
//! - call counts are exact: any difference counts;
//! - a sum of times (total, self) or a mean differs if the difference exceeds `ERRORS` standard
//!   errors, by the variance of the single calls in both traces;
//! - a percentile differs if the ranges in which it lies, at `ERRORS` standard errors of its rank,
//!   do not overlap, which assumes nothing about the distribution;
//! - a time must differ by at least a share of the larger one
//!   ([`Options::min_change`](super::Options)): recordings differ in ways in which calls of one
//!   recording do not, such as the processor's clock, the placement of code and stack, and other
//!   programs;
//! - a percentile must differ by at least `STEP_NS`, about the error of reading a clock (2 ms with
//!   the coarse clock);
//! - with fewer than `MIN_CALLS` calls, or for a longest call, the verdict is `?`.

use super::numbers::{Numbers, Percentile, Sample};
use super::rule::{ERRORS, MIN_CALLS, Rule};
use super::{Measure, evidence};

/// Whether and how a number differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No difference beyond the noise.
    Same,
    /// Beyond the noise, and more in B.
    More,
    /// Beyond the noise, and less in B.
    Less,
    /// Undecided: too few calls.
    Unknown,
}

impl Verdict {
    /// Whether the number differs beyond the noise.
    pub fn differs(self) -> bool {
        matches!(self, Verdict::More | Verdict::Less)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::More => "more",
            Verdict::Less => "less",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Judges a measure of one function in the recordings of both sides. `None` if a side does not have
/// the measure.
pub(super) fn judge(measure: Measure, a: &[Numbers], b: &[Numbers], rule: Rule) -> Option<Verdict> {
    let value = |side| Some(evidence::Mean::of(side, measure)?.rounded());
    let (from, to) = (value(a)?, value(b)?);
    let direction = if to > from { Verdict::More } else { Verdict::Less };
    let change = from.abs_diff(to);
    let small = measure.is_time() && (change as f64) < rule.min_change * from.max(to) as f64;
    if from == to || small || (measure.is_percentile() && change < rule.step_ns) {
        return Some(Verdict::Same);
    }
    let beyond = match (a, b) {
        ([a], [b]) => within_recordings(measure, a, b),
        _ => evidence::differs(a, b, measure, rule),
    };
    Some(match beyond {
        Some(true) => direction,
        Some(false) => Verdict::Same,
        None => Verdict::Unknown,
    })
}

/// Whether two recordings differ by more than their calls do.
fn within_recordings(measure: Measure, a: &Numbers, b: &Numbers) -> Option<bool> {
    // A time that only one side has is not noise.
    let (Some(x), Some(y), true) = (&a.times, &b.times, measure.is_time()) else { return Some(true) };
    let percentile = |at: usize| match (x.percentiles, y.percentiles) {
        (Some(x), Some(y)) => apart(&x[at], &y[at]),
        _ => None,
    };
    let state = |at: usize| match (x.states, y.states) {
        (Some(x), Some(y)) => sums_differ(&x[at], &y[at]),
        _ => None,
    };
    match measure {
        Measure::Calls => Some(true),
        Measure::Total => sums_differ(&x.total, &y.total),
        Measure::SelfTime => sums_differ(&x.own, &y.own),
        Measure::Avg => means_differ(&x.every, &y.every),
        Measure::P50 => percentile(0),
        Measure::P90 => percentile(1),
        Measure::P99 => percentile(2),
        Measure::P999 => percentile(3),
        Measure::Max => None,
        Measure::Cpu => state(0),
        Measure::Runnable => state(1),
        Measure::Blocked => state(2),
        Measure::Tracing => state(3),
    }
}

/// Whether two sums differ beyond the noise. Call counts are exact; only the time of each call
/// varies.
fn sums_differ(a: &Sample, b: &Sample) -> Option<bool> {
    let error = (a.count as f64 * a.variance_ns2 + b.count as f64 * b.variance_ns2).sqrt();
    (a.count.min(b.count) >= MIN_CALLS).then(|| a.sum_ns.abs_diff(b.sum_ns) as f64 > ERRORS * error)
}

fn means_differ(a: &Sample, b: &Sample) -> Option<bool> {
    let mean = |sample: &Sample| sample.sum_ns as f64 / sample.count as f64;
    let error = |sample: &Sample| sample.variance_ns2 / sample.count as f64;
    (a.count.min(b.count) >= MIN_CALLS)
        .then(|| (mean(a) - mean(b)).abs() > ERRORS * (error(a) + error(b)).sqrt())
}

/// Whether the ranges of two percentiles do not overlap. Each end is off by up to 1/128.
fn apart(a: &Percentile, b: &Percentile) -> Option<bool> {
    let (a, b) = (a.between_ns?, b.between_ns?);
    let below = |high: u64, low: u64| (high as f64) * (129.0 / 128.0) < (low as f64) * (127.0 / 128.0);
    Some(below(a.1, b.0) || below(b.1, a.0))
}

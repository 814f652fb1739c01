//! What is noise, and what is not.
//!
//! One recording of a program is a sample: recorded again, its calls take other times. How much other is told by several recordings (`evidence`). With one
//! recording a side it is guessed from how its calls differ among themselves. The rule then:
//!
//! - numbers of calls are exact: any difference is one;
//! - a sum of times (total, self) or a mean differs if the difference is more than `ERRORS` standard errors, by the variance of the single
//!   calls in both traces;
//! - a percentile differs if the ranges in which it lies, at `ERRORS` standard errors of its rank, do not meet (which assumes nothing about
//!   the distribution);
//! - in any case by at least a share of the larger one ([`Options::min_change`](super::Options)): recordings differ from each other in ways in
//!   which calls of one recording do not: the processor's clock, where code and stack lie, what else runs;
//! - percentiles also by at least `STEP_NS`, about what the reading of a clock adds to a duration and takes from it (2 ms with the coarse clock);
//! - of fewer than `LEAST` calls nothing is said, nor of a longest call: `?`.

use super::numbers::{Numbers, Percentile, Sample};
use super::rule::{ERRORS, LEAST, Rule};
use super::{Measure, evidence};

/// Whether a number differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not beyond the noise.
    Same,
    /// More in B.
    More,
    /// Less in B.
    Less,
    /// Not known: too few calls to tell.
    Unknown,
}

impl Verdict {
    /// Beyond the noise?
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

/// Judges a measure of one function in the recordings of both sides. None if one of them does not have it.
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

/// Do two recordings differ by more than their calls do?
fn within_recordings(measure: Measure, a: &Numbers, b: &Numbers) -> Option<bool> {
    // That it is there at all is not noise.
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

/// The numbers of calls are taken as they are; what varies is the time of each.
fn sums_differ(a: &Sample, b: &Sample) -> Option<bool> {
    let error = (a.count as f64 * a.variance_ns2 + b.count as f64 * b.variance_ns2).sqrt();
    (a.count.min(b.count) >= LEAST).then(|| a.sum_ns.abs_diff(b.sum_ns) as f64 > ERRORS * error)
}

fn means_differ(a: &Sample, b: &Sample) -> Option<bool> {
    let mean = |sample: &Sample| sample.sum_ns as f64 / sample.count as f64;
    let error = |sample: &Sample| sample.variance_ns2 / sample.count as f64;
    (a.count.min(b.count) >= LEAST).then(|| (mean(a) - mean(b)).abs() > ERRORS * (error(a) + error(b)).sqrt())
}

/// Do two percentiles lie in ranges that do not meet? Each end is off by up to 1/128.
fn apart(a: &Percentile, b: &Percentile) -> Option<bool> {
    let (a, b) = (a.between_ns?, b.between_ns?);
    let below = |high: u64, low: u64| (high as f64) * (129.0 / 128.0) < (low as f64) * (127.0 / 128.0);
    Some(below(a.1, b.0) || below(b.1, a.0))
}

//! What several recordings of a side prove.
//!
//! A recording is one observation: whatever slows the machine down for a while slows all calls of a recording down, so that calls of one recording say little
//! of another. The mean of a side is therefore judged by how its recordings differ from each other. `b - ratio * a` is known up to a margin, by Welch's t-test: the
//! recordings of both sides may vary differently.
//!
//! What is said of many functions is said of all of them at once: the rate of errors, [`ERROR_RATE`], is shared between them (Bonferroni).

use super::numbers::Numbers;
use super::{Measure, rule::Rule};
use distrs::StudentsT;

/// Recordings a side that it takes to try a condition on times. Fewer prove only what is larger than their differences by far.
pub const LEAST_RECORDINGS: usize = 5;
/// How often a comparison of equal programs may say of anything that it differs.
pub const ERROR_RATE: f64 = 0.001;
/// A percentile is off by so much of itself.
const PERCENTILE_STEP: f64 = 1.0 / 128.0;

/// A measure of a function in the recordings of one side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mean {
    /// Recordings that have it.
    pub(super) recordings: usize,
    pub(super) mean: f64,
    /// Variance of the recordings.
    variance: f64,
}

impl Mean {
    /// None if calls of a recording have no times.
    pub(super) fn of(recordings: &[Numbers], measure: Measure) -> Option<Mean> {
        // A recording without a call has a sum, which is 0, and neither mean nor percentile.
        let is_sum = matches!(measure, Measure::Total | Measure::SelfTime | Measure::Calls)
            || Measure::STATES.contains(&measure);
        let called = recordings.iter().any(|numbers| numbers.calls > 0);
        let having = recordings.iter().filter(|numbers| is_sum || !called || numbers.calls > 0);
        let values: Option<Vec<f64>> =
            having.map(|numbers| numbers.value(measure).map(|value| value as f64)).collect();
        values.map(|values| Mean::of_values(&values))
    }

    pub(super) fn of_values(values: &[f64]) -> Mean {
        let number = values.len() as f64;
        let mean = values.iter().sum::<f64>() / number.max(1.0);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Mean { recordings: values.len(), mean, variance: squares / (number - 1.0).max(1.0) }
    }

    /// Do all recordings have the same?
    pub(super) fn is_constant(&self) -> bool {
        self.variance == 0.0
    }

    pub(super) fn rounded(&self) -> u64 {
        self.mean.round() as u64
    }
}

/// By how much `b - ratio * a` may be off, in either direction with a probability of `error`; none if a side that varies has one recording.
pub(super) fn margin(measure: Measure, a: &Mean, b: &Mean, ratio: f64, error: f64) -> Option<f64> {
    let squared_error = |side: &Mean, factor: f64| {
        let single = side.recordings < 2 && measure.is_time() && factor != 0.0;
        (!single).then(|| factor * factor * side.variance / side.recordings.max(1) as f64)
    };
    let (of_a, of_b) = (squared_error(a, ratio)?, squared_error(b, 1.0)?);
    let resolution = if measure.is_percentile() { PERCENTILE_STEP * (ratio * a.mean + b.mean) } else { 0.0 };
    let sum = of_a + of_b;
    if sum == 0.0 {
        return Some(resolution);
    }
    // Welch and Satterthwaite; rounded down, which is careful.
    let share = |part: f64, side: &Mean| part * part / (side.recordings.max(2) - 1) as f64;
    let freedom = (sum * sum / (share(of_a, a) + share(of_b, b))).floor().max(1.0);
    Some(StudentsT::ppf(1.0 - error, freedom) * sum.sqrt() + resolution)
}

/// The confidence interval of `b - a`, when `comparisons` are made.
pub(super) fn interval(measure: Measure, a: &Mean, b: &Mean, comparisons: usize) -> Option<(f64, f64)> {
    let error = ERROR_RATE / 2.0 / comparisons.max(1) as f64;
    let margin = margin(measure, a, b, 1.0, error)?;
    Some((b.mean - a.mean - margin, b.mean - a.mean + margin))
}

/// Is a measure of B different? None if that is not known. What differs little is the same by the `rule`, which has looked at it already.
pub(super) fn differs(a: &[Numbers], b: &[Numbers], measure: Measure, rule: Rule) -> Option<bool> {
    let (low, high) = interval(measure, &Mean::of(a, measure)?, &Mean::of(b, measure)?, rule.comparisons)?;
    Some(low > 0.0 || high < 0.0)
}

#[cfg(test)]
mod tests;

//! Evidence from several recordings of a side: means, margins and confidence intervals.
//!
//! A recording is one observation: a disturbance of the machine slows all calls of a recording, so
//! the calls of one recording say little about another. The mean of a side is therefore judged by
//! how its recordings differ from each other. The margin of `b - ratio * a` comes from Welch's
//! t-test, as the recordings of both sides may vary differently.
//!
//! A statement about many functions holds for all of them at once: they share the error rate
//! `ERROR_RATE` (Bonferroni).

use super::numbers::Numbers;
use super::{Measure, rule::Rule};
use distrs::StudentsT;

/// Number of recordings per side that a condition on times needs. Fewer prove only changes far
/// larger than their differences.
pub const MIN_RECORDINGS: usize = 5;
/// Probability that a comparison of equal programs reports any difference.
pub(crate) const ERROR_RATE: f64 = 0.001;
/// Relative error of a percentile.
const PERCENTILE_STEP: f64 = 1.0 / 128.0;

/// Mean of a measure of a function over the recordings of one side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mean {
    /// Number of recordings that have the measure.
    pub(super) recordings: usize,
    pub(super) mean: f64,
    /// Variance between the recordings.
    variance: f64,
}

impl Mean {
    /// Returns the mean, or `None` if a recording has calls without times.
    pub(super) fn of(recordings: &[Numbers], measure: Measure) -> Option<Mean> {
        // A recording without calls has a sum, 0, but no mean and no percentile.
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

    /// Whether all recordings have the same value.
    pub(super) fn is_constant(&self) -> bool {
        self.variance == 0.0
    }

    pub(super) fn rounded(&self) -> u64 {
        self.mean.round() as u64
    }
}

/// Returns the margin of error of `b - ratio * a`, which is exceeded in either direction with
/// probability `error`; `None` if a side that varies has one recording.
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
    // Welch-Satterthwaite; rounding down widens the margin.
    let share = |part: f64, side: &Mean| part * part / (side.recordings.max(2) - 1) as f64;
    let freedom = (sum * sum / (share(of_a, a) + share(of_b, b))).floor().max(1.0);
    Some(StudentsT::ppf(1.0 - error, freedom) * sum.sqrt() + resolution)
}

/// Returns the confidence interval of `b - a` if `comparisons` are made.
pub(super) fn interval(measure: Measure, a: &Mean, b: &Mean, comparisons: usize) -> Option<(f64, f64)> {
    let error = ERROR_RATE / 2.0 / comparisons.max(1) as f64;
    let margin = margin(measure, a, b, 1.0, error)?;
    Some((b.mean - a.mean - margin, b.mean - a.mean + margin))
}

/// Whether a measure differs in B; `None` if that cannot be decided. The `rule` has already sorted
/// out small differences.
pub(super) fn differs(a: &[Numbers], b: &[Numbers], measure: Measure, rule: Rule) -> Option<bool> {
    // A maximum is a single call: the distribution of maxima has tails beyond any margin.
    if measure == Measure::Max {
        return None;
    }
    let (low, high) = interval(measure, &Mean::of(a, measure)?, &Mean::of(b, measure)?, rule.comparisons)?;
    Some(low > 0.0 || high < 0.0)
}

#[cfg(test)]
mod tests;

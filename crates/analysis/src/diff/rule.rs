//! Thresholds below which differences count as noise.

/// Number of standard errors: by chance alone, one of 16,000 values differs by more.
pub(super) const ERRORS: f64 = 4.0;
/// Number of calls of a function in each trace that a judgement of its times needs.
pub(super) const MIN_CALLS: u64 = 10;

/// Percentiles that differ by less are equal, nanoseconds.
pub(super) const STEP_NS: u64 = 20;

/// Thresholds of a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Times that differ by a smaller share are equal.
    pub(super) min_change: f64,
    /// Percentiles that differ by less are equal, nanoseconds.
    pub(super) step_ns: u64,
    /// Number of comparisons that share the error rate.
    pub(super) comparisons: usize,
}

/// Returns the ranks between which a percentile of `calls` durations lies; `None` with too few
/// calls.
pub(super) fn ranks(calls: u64, permille: u32) -> Option<(u64, u64)> {
    let (n, p) = (calls as f64, f64::from(permille) / 1000.0);
    let off = ERRORS * (n * p * (1.0 - p)).sqrt();
    let (low, high) = ((n * p - off).floor(), (n * p + off).ceil() + 1.0);
    (calls >= MIN_CALLS && low >= 1.0 && high <= n).then_some((low as u64, high as u64))
}

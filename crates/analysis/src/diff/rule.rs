//! What is taken for noise in any case.

/// Standard errors: by chance alone, one of 16,000 differs by more.
pub const ERRORS: f64 = 4.0;
/// Calls of a function in each trace that it takes to judge its times.
pub const LEAST: u64 = 10;

/// Percentiles that differ by less are the same.
pub const STEP_NS: u64 = 20;

/// What is taken for noise in any case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Of times: a smaller share.
    pub(super) min_change: f64,
    /// Of percentiles: less.
    pub(super) step_ns: u64,
    /// Numbers that are compared: what is said must be true of all.
    pub(super) comparisons: usize,
}

/// The ranks between which a percentile of so many calls lies; none if they are too few to have both.
pub(super) fn ranks(calls: u64, permille: u32) -> Option<(u64, u64)> {
    let (n, p) = (calls as f64, f64::from(permille) / 1000.0);
    let off = ERRORS * (n * p * (1.0 - p)).sqrt();
    let (low, high) = ((n * p - off).floor(), (n * p + off).ceil() + 1.0);
    (calls >= LEAST && low >= 1.0 && high <= n).then_some((low as u64, high as u64))
}

//! What is expected of calltap, and whether it is met.

/// A figure beside its limit: `0.31 (<= 0.4: met)`.
pub fn at_most(value: f64, limit: f64, digits: usize) -> String {
    format!("{value:.digits$} (<= {limit}: {})", if value <= limit { "met" } else { "NOT MET" })
}

/// The same for a figure that should be large.
pub fn at_least(value: f64, limit: f64, digits: usize) -> String {
    format!("{value:.digits$} (>= {limit}: {})", if value >= limit { "met" } else { "NOT MET" })
}

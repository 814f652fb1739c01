//! Limits of figures, and whether they are met.

/// Returns a figure with its upper limit: `0.31 (<= 0.4: met)`.
pub fn at_most(value: f64, limit: f64, digits: usize) -> String {
    format!("{value:.digits$} (<= {limit}: {})", if value <= limit { "met" } else { "NOT MET" })
}

/// Returns a figure with its lower limit: `0.9 (>= 0.4: met)`.
pub fn at_least(value: f64, limit: f64, digits: usize) -> String {
    format!("{value:.digits$} (>= {limit}: {})", if value >= limit { "met" } else { "NOT MET" })
}

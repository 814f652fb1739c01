//! Slow calls and what explains them.

use super::chain::Chain;
use super::slow::Slow;
use crate::source::Source;

/// Slow calls and their chains.
pub(crate) struct Explained {
    pub(crate) chains: Vec<(Slow, Chain)>,
    /// When it began, ticks turned into nanoseconds.
    pub(crate) began: u64,
}

impl Explained {
    /// Nanoseconds from the beginning of the recording to a time.
    pub(crate) fn since_start(&self, source: &dyn Source, ticks: u64) -> u64 {
        source.to_ns(ticks).saturating_sub(self.began)
    }
}

//! Slow calls with the chains that explain them.

use super::chain::Chain;
use super::slow::Slow;
use crate::sources::part::Part;
use crate::sources::source::Source;

/// Slow calls and their chains.
pub(crate) struct Explained {
    pub(crate) chains: Vec<(Slow, Chain)>,
}

/// Returns nanoseconds from the beginning of the trace to a time.
pub(crate) fn since_start(source: &dyn Source, ticks: u64) -> u64 {
    source.to_ns(ticks).saturating_sub(Part::beginning(source))
}

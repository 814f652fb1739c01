//! Slow calls with the chains that explain them.

use super::chain::Chain;
use super::slow::Slow;
use crate::sources::source::Source;

/// Slow calls and their chains.
pub(crate) struct Explained {
    pub(crate) chains: Vec<(Slow, Chain)>,
}

/// Returns nanoseconds from the beginning of the recording to a time.
pub(crate) fn since_start(source: &dyn Source, ticks: u64) -> u64 {
    let began = source.meta().session.as_ref().map_or(0, |session| session.start_monotonic_ns);
    source.to_ns(ticks).saturating_sub(began)
}

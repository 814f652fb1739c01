//! The clock of a session's events.

use calltap_abi::Clock;
use calltap_collect::shm::Shared;
use calltap_process::clock;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;

calltap_sites::reasons! {
    /// Why events do not have the time stamp counter as their clock.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum NoTsc;

    Distrusted { source: String } = "tsc-distrusted",
        "the kernel does not trust the time stamp counter here (its clock source is {source}): times are those of a 1 ms tick", "none: the machine's counter is unstable";
    OrderOnly { why: Box<NoTsc> } = "order-only",
        "{why} (order only)", "record it (record -p): a recorder keeps a clock";
    CoarseAlone = "coarse-alone",
        "--clock coarse needs a recorder: events have an order only", "record it (record -p), or use another clock";
}

/// Returns the requested clock, or its substitute and the reason if the time stamp counter cannot
/// be trusted.
pub(crate) fn usable_clock(wanted: Clock) -> (Clock, Option<NoTsc>) {
    match (wanted, clock::source_instead_of_tsc()) {
        (Clock::Tsc | Clock::Sparse, Some(source)) => (Clock::Coarse, Some(NoTsc::Distrusted { source })),
        _ => (wanted, None),
    }
}

/// Advances the coarse clock.
pub(crate) fn tick(shared: &Shared, stop: &AtomicBool) {
    while !stop.load(Acquire) {
        shared.control().tick.store(clock::monotonic_ns(), Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_sites::reason::assert_documented;

    #[test]
    fn reasons_are_unique_and_documented() {
        assert_documented(NoTsc::ALL);
    }
}

//! The clock of a session's events.

use crate::load_agent;
use calltap_abi::Clock;
use calltap_collect::shm::Shared;
use calltap_process::clock;
use calltap_process::target::Target;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;

/// Returns the requested clock, or its substitute and the reason if the time stamp counter cannot
/// be trusted.
pub fn usable_clock(wanted: Clock) -> (Clock, Option<String>) {
    match (wanted, clock::tsc_distrust()) {
        (Clock::Tsc | Clock::Sparse, Some(why)) => (Clock::Coarse, Some(why)),
        _ => (wanted, None),
    }
}

/// Returns the clock for a running process, which may have forbidden itself to read the time stamp
/// counter.
pub fn usable_clock_of(target: &Target, wanted: Clock) -> (Clock, Option<String>) {
    match usable_clock(wanted) {
        (Clock::Tsc | Clock::Sparse, _) if !load_agent::may_read_tsc(target) => (
            Clock::Coarse,
            Some("the process forbids itself to read the time stamp counter (PR_SET_TSC)".into()),
        ),
        usable => usable,
    }
}

/// Advances the coarse clock.
pub fn tick(shared: &Shared, stop: &AtomicBool) {
    while !stop.load(Acquire) {
        shared.control().tick.store(clock::monotonic_ns(), Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

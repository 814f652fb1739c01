//! The present time, in the units of events.

use super::Collector;
use calltap_abi::Clock;
use calltap_process::clock;
use calltap_trace::{ClockPair, Record};
use std::sync::atomic::Ordering::*;

impl Collector<'_> {
    /// Returns the present time in ticks and nanoseconds; ticks are nanoseconds where events are
    /// not timed by the TSC.
    pub(super) fn this_moment(&self) -> ClockPair {
        if self.timed {
            return clock::pair();
        }
        let now = clock::monotonic_ns();
        ClockPair { ticks: now, monotonic_ns: now }
    }

    /// Converts a moment to the units of events. With the counter clock this is the present count.
    pub(super) fn ticks_of(&self, moment: ClockPair) -> u64 {
        let control = self.shared.control();
        match control.clock.load(Relaxed) == Clock::Counter as u32 {
            true => control.counter.load(Acquire),
            false => moment.ticks,
        }
    }

    /// Returns the present time, and records it as a clock pair where events are timed by the TSC.
    pub(super) fn compare_clocks(&mut self) -> ClockPair {
        let pair = self.this_moment();
        if self.timed {
            self.output.record(&Record::Clock(pair));
        }
        pair
    }

    /// Returns the present time in the units of events.
    pub(super) fn now(&self) -> u64 {
        self.ticks_of(self.this_moment())
    }
}

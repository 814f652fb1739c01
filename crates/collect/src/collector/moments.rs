//! What time it is, in the units of events.

use super::Collector;
use calltap_abi::Clock;
use calltap_process::clock;
use calltap_trace::{ClockPair, Record};
use std::sync::atomic::Ordering::*;

impl Collector<'_> {
    pub(super) fn this_moment(&self) -> ClockPair {
        if self.timed {
            return clock::pair();
        }
        let now = clock::monotonic_ns();
        ClockPair { ticks: now, monotonic_ns: now }
    }

    /// A moment in the units of events: where these are counted, the number of now.
    pub(super) fn ticks_of(&self, moment: ClockPair) -> u64 {
        let control = self.shared.control();
        match control.clock.load(Relaxed) == Clock::Counter as u32 {
            true => control.counter.load(Acquire),
            false => moment.ticks,
        }
    }

    /// This moment, for the trace.
    pub(super) fn compare_clocks(&mut self) -> ClockPair {
        let pair = self.this_moment();
        if self.timed {
            self.output.record(&Record::Clock(pair));
        }
        pair
    }

    /// This moment, in the units of events.
    pub(super) fn now(&self) -> u64 {
        self.ticks_of(self.this_moment())
    }
}

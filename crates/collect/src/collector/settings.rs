//! Settings of a collector, chained behind [`Collector::new`].

use super::{Collector, Live};
use crate::governor::Rates;
use crate::profile::Sums;
use calltap_trace::ClockPair;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

impl<'a> Collector<'a> {
    /// Adds the profile sums of ended threads to `sums`.
    pub fn summing(self, sums: Arc<Mutex<Sums>>) -> Self {
        Collector { sums, ..self }
    }

    /// Publishes the number of calls read in `calls` now and then.
    pub fn telling(self, calls: &'a AtomicU64) -> Self {
        Collector { calls: Some(calls), ..self }
    }

    /// Sets the time at which the session began.
    pub fn since(self, began: ClockPair) -> Self {
        Collector { began: Some(began), ..self }
    }

    /// Leaves out events behind `ticks`, in the clock's own units.
    pub fn until(self, ticks: u64) -> Self {
        Collector { until: ticks, ..self }
    }

    /// Sets how many threads may begin to be traced at once.
    pub fn expecting(mut self, threads: usize) -> Self {
        self.threads.expected = u32::try_from(threads).unwrap_or(u32::MAX);
        self
    }

    /// Counts events by site as well, for the governor.
    pub fn counting(self, rates: Option<Arc<Rates>>) -> Self {
        Collector { rates, ..self }
    }

    /// Hands events over interval by interval, for a live view.
    pub fn live(mut self, live: Option<Live<'a>>) -> Self {
        self.handover.live = live;
        self
    }

    /// Measures how long a tick is before the first event is handed over.
    pub fn settled(mut self, settled: bool) -> Self {
        self.handover.settles = settled;
        self
    }
}

//! What a collector does beyond reading: settings that are chained behind [`Collector::new`].

use super::{Collector, Live};
use crate::governor::Rates;
use crate::profile::Sums;
use calltap_trace::ClockPair;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

impl<'a> Collector<'a> {
    /// Sums of ended threads go there.
    pub fn summing(self, sums: Arc<Mutex<Sums>>) -> Self {
        Collector { sums, ..self }
    }

    /// Says there, now and then, how many calls were read.
    pub fn telling(self, calls: &'a AtomicU64) -> Self {
        Collector { calls: Some(calls), ..self }
    }

    /// The session began at that time.
    pub fn since(self, began: ClockPair) -> Self {
        Collector { began: Some(began), ..self }
    }

    /// Events behind that time, in the clock's own units, are left out.
    pub fn until(self, ticks: u64) -> Self {
        Collector { until: ticks, ..self }
    }

    /// So many threads may begin to be traced at once.
    pub fn expecting(self, threads: usize) -> Self {
        Collector { expected: u32::try_from(threads).unwrap_or(u32::MAX), ..self }
    }

    /// Counts events by site as well.
    pub fn counting(self, rates: Option<Arc<Rates>>) -> Self {
        Collector { rates, ..self }
    }

    /// Hands over interval by interval.
    pub fn live(self, live: Option<Live<'a>>) -> Self {
        Collector { live, ..self }
    }

    /// How long a tick is, is known before the first event is handed over.
    pub fn settled(self, settled: bool) -> Self {
        Collector { settled, ..self }
    }
}

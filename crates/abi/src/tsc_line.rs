//! The time stamp counter for threads that may not read it: a clock that they may read, converted.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time stamp counter as a linear function of CLOCK_MONOTONIC_RAW, which the kernel derives
/// from the counter at a constant rate.
#[derive(Debug, Default)]
#[repr(C)]
pub struct TscLine {
    /// How far the clock is ahead of the machine's in the process's time namespace, nanoseconds.
    pub ahead_ns: AtomicU64,
    /// A moment of the machine's clock, nanoseconds.
    pub origin_ns: AtomicU64,
    /// The counter at that moment.
    pub origin_ticks: AtomicU64,
    /// Ticks in 2^32 nanoseconds. The recorder measures the rate from the origin on, again and
    /// again: the longer ago that is, the more exact it becomes.
    pub rate: AtomicU64,
}

impl TscLine {
    /// Returns the counter at a moment of the process's clock.
    pub fn ticks(&self, now_ns: u64) -> u64 {
        let now_ns = now_ns.wrapping_sub(self.ahead_ns.load(Relaxed));
        let since = u128::from(now_ns.saturating_sub(self.origin_ns.load(Relaxed)));
        let ticks = (since * u128::from(self.rate.load(Relaxed))) >> 32;
        self.origin_ticks.load(Relaxed).wrapping_add(ticks as u64)
    }

    /// Sets the origin of the line.
    pub fn begin(&self, ticks: u64, now_ns: u64) {
        self.origin_ticks.store(ticks, Relaxed);
        self.origin_ns.store(now_ns, Relaxed);
    }

    /// Draws the line through its origin and another moment of the machine.
    pub fn draw_through(&self, ticks: u64, now_ns: u64) {
        let since_ns = u128::from(now_ns.saturating_sub(self.origin_ns.load(Relaxed)));
        let since = u128::from(ticks.saturating_sub(self.origin_ticks.load(Relaxed)));
        if let Some(rate) = (since << 32).checked_div(since_ns) {
            self.rate.store(rate as u64, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_leads_through_its_two_points_and_beyond() {
        let line = TscLine::default();
        line.begin(50_000, 1_000);
        assert_eq!(line.ticks(2_000), 50_000);
        line.draw_through(50_000, 1_000);
        line.draw_through(55_000, 3_000);
        assert_eq!([500, 1_000, 2_000, 3_000].map(|ns| line.ticks(ns)), [50_000, 50_000, 52_500, 55_000]);
        let year_ns = 365 * 86_400 * 1_000_000_000;
        assert_eq!(line.ticks(1_000 + year_ns), 50_000 + year_ns / 2 * 5);
    }
}

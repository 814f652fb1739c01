//! `trace_clock`: the clocks, and the conversion of CLOCK_MONOTONIC times to them.

use calltap_trace::{ClockKind, ClockPair};

/// A clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// CLOCK_MONOTONIC, under each of the kernel's names for clocks that do not differ here.
    Mono,
    /// No time: the number of the record.
    Counter,
    /// Hundredths of a second since the system came up.
    Uptime,
    /// CLOCK_MONOTONIC_RAW, nanoseconds.
    Raw,
    /// CLOCK_BOOTTIME, nanoseconds.
    Boot,
    /// CLOCK_TAI, nanoseconds.
    Tai,
    /// The processor's time stamp counter, as the agent read it.
    Tsc,
}

/// All clocks by name, in the kernel's order.
pub(crate) const CLOCKS: [(&str, Clock); 10] = [
    ("local", Clock::Mono),
    ("global", Clock::Mono),
    ("counter", Clock::Counter),
    ("uptime", Clock::Uptime),
    ("perf", Clock::Mono),
    ("mono", Clock::Mono),
    ("mono_raw", Clock::Raw),
    ("boot", Clock::Boot),
    ("tai", Clock::Tai),
    ("x86-tsc", Clock::Tsc),
];

impl Clock {
    /// Whether times of the clock are printed as nanoseconds are.
    pub(crate) fn in_ns(self) -> bool {
        !matches!(self, Clock::Counter | Clock::Tsc)
    }

    /// Whether the clock can be shown for events that were stamped by `recorded`.
    pub(crate) fn exists(self, recorded: ClockKind) -> bool {
        self != Clock::Tsc || recorded == ClockKind::Tsc
    }
}

/// The system's clocks, read at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moment {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic_ns: u64,
    /// The clock that stamps events, in ticks.
    pub ticks: u64,
    /// CLOCK_MONOTONIC_RAW, nanoseconds.
    pub raw_ns: u64,
    /// CLOCK_BOOTTIME, nanoseconds.
    pub boot_ns: u64,
    /// CLOCK_TAI, nanoseconds.
    pub tai_ns: u64,
}

impl Moment {
    /// Returns the event clock and CLOCK_MONOTONIC of this moment.
    pub fn pair(&self) -> ClockPair {
        ClockPair { ticks: self.ticks, monotonic_ns: self.monotonic_ns }
    }
}

/// The time of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub ns: u64,
    /// Ticks of the event clock, if they were read.
    pub ticks: Option<u64>,
}

/// A stretch of time with the clocks at both ends.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stretch {
    /// The clocks at the beginning.
    pub from: Moment,
    /// The clocks at the end.
    pub to: Moment,
}

impl Stretch {
    /// Converts a CLOCK_MONOTONIC time to another clock, by linear interpolation of the offset
    /// between both clocks.
    fn by(&self, read: impl Fn(&Moment) -> u64, ns: u64) -> u64 {
        let Stretch { from, to } = self;
        let ahead = |moment| i128::from(read(moment)) - i128::from(moment.monotonic_ns);
        let length = to.monotonic_ns.saturating_sub(from.monotonic_ns).max(1);
        let along = ns.saturating_sub(from.monotonic_ns).min(length);
        let change = (ahead(to) - ahead(from)) * i128::from(along) / i128::from(length);
        u64::try_from(i128::from(ns) + ahead(from) + change).unwrap_or(0)
    }

    /// Returns a time by a clock. [`Clock::Counter`] has none: its time is CLOCK_MONOTONIC.
    pub(crate) fn time(&self, clock: Clock, when: When) -> u64 {
        match clock {
            Clock::Mono | Clock::Counter => when.ns,
            Clock::Uptime => self.by(|moment| moment.boot_ns, when.ns) / 10_000_000,
            Clock::Raw => self.by(|moment| moment.raw_ns, when.ns),
            Clock::Boot => self.by(|moment| moment.boot_ns, when.ns),
            Clock::Tai => self.by(|moment| moment.tai_ns, when.ns),
            Clock::Tsc => when.ticks.unwrap_or_else(|| self.by(|moment| moment.ticks, when.ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_run_evenly_between_the_moments_at_which_clocks_were_read() {
        let from = Moment { monotonic_ns: 1000, ticks: 5000, raw_ns: 900, boot_ns: 11_000, tai_ns: 71_000 };
        let to = Moment { monotonic_ns: 2000, ticks: 8000, raw_ns: 1902, boot_ns: 12_000, tai_ns: 72_000 };
        let stretch = Stretch { from, to };
        let time = |clock, ns| stretch.time(clock, When { ns, ticks: None });
        assert_eq!([1000, 1500, 2000].map(|ns| time(Clock::Raw, ns)), [900, 1401, 1902]);
        assert_eq!([1000, 1500, 2000].map(|ns| time(Clock::Tsc, ns)), [5000, 6500, 8000]);
        assert_eq!((time(Clock::Boot, 1234), time(Clock::Tai, 1234)), (11_234, 71_234));
        // Times before the stretch keep the offset of its beginning.
        assert_eq!(time(Clock::Raw, 700), 600);
        assert_eq!(stretch.time(Clock::Tsc, When { ns: 1, ticks: Some(77) }), 77);
    }
}

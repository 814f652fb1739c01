//! `trace_clock`: the clocks, and a moment by each of them.

use calltap_trace::{ClockKind, ClockPair};

/// A clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// CLOCK_MONOTONIC, by the names that the kernel has for what is the same here.
    Mono,
    /// No time: a number for each record.
    Counter,
    /// Hundredths of a second since the system came up.
    Uptime,
    /// CLOCK_MONOTONIC_RAW.
    Raw,
    /// CLOCK_BOOTTIME.
    Boot,
    /// CLOCK_TAI.
    Tai,
    /// The processor's, as it was read.
    Tsc,
}

/// All, as the kernel lists them.
pub const CLOCKS: [(&str, Clock); 10] = [
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
    /// Does it count nanoseconds, or what is shown as if it did?
    pub fn in_ns(self) -> bool {
        !matches!(self, Clock::Counter | Clock::Tsc)
    }

    /// Can it be shown of events that have another clock?
    pub fn exists(self, recorded: ClockKind) -> bool {
        self != Clock::Tsc || recorded == ClockKind::Tsc
    }
}

/// The system's clocks, read at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moment {
    /// CLOCK_MONOTONIC, nanoseconds,
    pub monotonic_ns: u64,
    /// and ticks of the clock that events have.
    pub ticks: u64,
    /// CLOCK_MONOTONIC_RAW, nanoseconds.
    pub raw_ns: u64,
    /// CLOCK_BOOTTIME.
    pub boot_ns: u64,
    /// CLOCK_TAI.
    pub tai_ns: u64,
}

impl Moment {
    /// What is known of the event clock.
    pub fn pair(&self) -> ClockPair {
        ClockPair { ticks: self.ticks, monotonic_ns: self.monotonic_ns }
    }
}

/// When something happened.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub ns: u64,
    /// Ticks of the event clock, where they were read.
    pub ticks: Option<u64>,
}

/// The stretch of time that events come from: how clocks ran in it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stretch {
    /// Its begin,
    pub from: Moment,
    /// and its end.
    pub to: Moment,
}

impl Stretch {
    /// A time by a clock that was read at both ends; how far it is ahead of CLOCK_MONOTONIC changes evenly between them.
    fn by(&self, read: impl Fn(&Moment) -> u64, ns: u64) -> u64 {
        let Stretch { from, to } = self;
        let ahead = |moment| i128::from(read(moment)) - i128::from(moment.monotonic_ns);
        let length = to.monotonic_ns.saturating_sub(from.monotonic_ns).max(1);
        let along = ns.saturating_sub(from.monotonic_ns).min(length);
        let change = (ahead(to) - ahead(from)) * i128::from(along) / i128::from(length);
        u64::try_from(i128::from(ns) + ahead(from) + change).unwrap_or(0)
    }

    /// A time by a clock. None of its own: [`Clock::Counter`].
    pub fn time(&self, clock: Clock, when: When) -> u64 {
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
        // What happened before keeps its distance.
        assert_eq!(time(Clock::Raw, 700), 600);
        assert_eq!(stretch.time(Clock::Tsc, When { ns: 1, ticks: Some(77) }), 77);
    }
}

//! The clocks of a trace, read by the recorder.
//!
//! Unsafe because reading the time stamp counter is an intrinsic.
#![allow(unsafe_code)]

use calltap_abi::Clock;
use calltap_trace::{ClockKind, ClockPair};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::fs;
use std::sync::OnceLock;

/// How far the clocks of a time namespace are ahead of the machine's, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeOffsets {
    /// Offset of CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW.
    pub monotonic: i64,
    /// Offset of CLOCK_BOOTTIME.
    pub boot: i64,
}

impl TimeOffsets {
    /// Reads the offsets in the time namespace of a process: a number, or `self`. Kernels without
    /// time namespaces have none.
    pub fn of(process: impl std::fmt::Display) -> TimeOffsets {
        TimeOffsets::parse(&fs::read_to_string(format!("/proc/{process}/timens_offsets")).unwrap_or_default())
    }

    /// Parses lines of a clock's name, seconds and nanoseconds.
    fn parse(text: &str) -> TimeOffsets {
        let of = |clock: &str| {
            let mut words = text.lines().find_map(|line| line.strip_prefix(clock))?.split_whitespace();
            let mut number = || words.next()?.parse::<i64>().ok();
            Some(number()?.wrapping_mul(1_000_000_000).wrapping_add(number()?))
        };
        TimeOffsets {
            monotonic: of("monotonic").unwrap_or_default(),
            boot: of("boottime").unwrap_or_default(),
        }
    }

    /// Returns those of this process.
    fn own() -> TimeOffsets {
        static OWN: OnceLock<TimeOffsets> = OnceLock::new();
        *OWN.get_or_init(|| TimeOffsets::of("self"))
    }
}

/// Returns the machine's CLOCK_MONOTONIC, nanoseconds. The kernel's records have these times, in
/// every time namespace.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic).wrapping_add_signed(-TimeOffsets::own().monotonic)
}

/// Returns CLOCK_REALTIME, nanoseconds since the epoch.
pub fn realtime_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// Returns the machine's CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME and CLOCK_TAI at a moment of
/// [`monotonic_ns`] in the recent past, nanoseconds.
pub fn others_ns(at: u64) -> [u64; 3] {
    let tai = clock_gettime_dynamic(DynamicClockId::Tai).map_or(0, total);
    let own = TimeOffsets::own();
    let raw = nanoseconds(ClockId::MonotonicRaw).wrapping_add_signed(-own.monotonic);
    let boot = nanoseconds(ClockId::Boottime).wrapping_add_signed(-own.boot);
    let others = [raw, boot, tai];
    let now = monotonic_ns();
    others.map(|other| other.wrapping_sub(now).wrapping_add(at))
}

/// Returns the time since boot in the unit of [`crate::proc::start_time`].
pub fn boot_ticks() -> u64 {
    let second = u128::from(rustix::param::clock_ticks_per_second());
    (u128::from(nanoseconds(ClockId::Boottime)) * second / 1_000_000_000) as u64
}

fn nanoseconds(clock: ClockId) -> u64 {
    total(clock_gettime(clock))
}

fn total(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn tsc() -> u64 {
    // SAFETY: rdtsc reads a counter and changes nothing; every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Measures how long one reading of the time stamp counter takes, nanoseconds: the fastest of ten
/// rounds.
pub fn reading_ns() -> f64 {
    const READINGS: u32 = 1000;
    let round = || {
        let start = std::time::Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(tsc());
        }
        start.elapsed().as_nanos() as f64 / f64::from(READINGS)
    };
    (0..10).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Returns the processor time that another process has used.
pub fn cpu_of(pid: u32) -> Option<std::time::Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid as i32)).ok()?;
    clock.now().ok().map(Into::into)
}

/// Returns one moment on both the time stamp counter and CLOCK_MONOTONIC.
pub fn pair() -> ClockPair {
    let (ticks, monotonic_ns) = paired(monotonic_ns);
    ClockPair { ticks, monotonic_ns }
}

/// Returns one moment on both the time stamp counter and the machine's CLOCK_MONOTONIC_RAW,
/// nanoseconds.
pub fn raw_pair() -> (u64, u64) {
    paired(|| nanoseconds(ClockId::MonotonicRaw).wrapping_add_signed(-TimeOffsets::own().monotonic))
}

/// Returns one moment on both the time stamp counter and a clock: of five readings, the one that
/// took the shortest.
fn paired(clock: impl Fn() -> u64) -> (u64, u64) {
    let read = || {
        let before = tsc();
        let at = clock();
        let took = tsc().wrapping_sub(before);
        (took, (before + took / 2, at))
    };
    (0..5).map(|_| read()).min_by_key(|(took, _)| *took).map_or_else(|| read().1, |(_, pair)| pair)
}

/// Returns the kernel's clock source if that is not the time stamp counter. The kernel watches the
/// counter and changes its clock source when the counter is unstable.
pub fn source_instead_of_tsc() -> Option<String> {
    let name = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(name.trim().to_owned()).filter(|name| name != "tsc")
}

/// Returns the trace's name for a clock of the agent.
pub fn kind(clock: Clock) -> ClockKind {
    match clock {
        Clock::Tsc => ClockKind::Tsc,
        Clock::Sparse => ClockKind::Sparse,
        Clock::Coarse => ClockKind::Coarse,
        Clock::Counter => ClockKind::Counter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_time_namespace_are_read() {
        let text = "monotonic       1000000         5\nboottime              -2         7\n";
        let expected = TimeOffsets { monotonic: 1_000_000_000_000_005, boot: -1_999_999_993 };
        assert_eq!(TimeOffsets::parse(text), expected);
        assert_eq!(TimeOffsets::parse(""), TimeOffsets::default());
    }
}

//! `ftraced`: the daemon that converts calls which were recorded when first made. It is a timer of
//! a session's controller, which once a second looks for such calls. This file has its state; the
//! session's planner converts.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Shortest time between two wakeups.
const WAKES: Duration = Duration::from_secs(1);
/// Maximum number of conversions: with more, the daemon warns, and stops.
pub const OVERFLOW: u64 = 100_000;
/// Maximum number of failures that are listed.
const LISTED: usize = 1000;

/// State of the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ftraced {
    /// Whether it converts on its own (`ftraced_enabled`).
    pub enabled: bool,
    /// Number of writes to `ftraced_enabled`. Each also converts the recorded calls at once.
    pub writes: u64,
    /// Converted calls that still exist.
    pub converted: u64,
    /// Calls converted since it was last enabled.
    pub changes: u64,
    /// Nanoseconds of the first update.
    pub first_ns: u64,
    /// Nanoseconds of all later updates together.
    pub later_ns: u64,
    /// Calls that were not recorded, for lack of a free record.
    pub skipped: u64,
    /// Recorded calls that no longer exist, or were not as expected.
    pub failures: Vec<String>,
}

impl Default for Ftraced {
    fn default() -> Ftraced {
        Ftraced {
            enabled: true,
            writes: 0,
            converted: 0,
            changes: 0,
            first_ns: 0,
            later_ns: 0,
            skipped: 0,
            failures: Vec::new(),
        }
    }
}

impl Ftraced {
    /// Notes a write to `ftraced_enabled`.
    pub fn write(&mut self, enabled: bool) {
        self.enabled = enabled;
        self.writes += 1;
    }

    /// Adopts the latest write. Returns whether there was one, so that recorded calls are to be
    /// converted.
    pub fn obey(&mut self, written: &Ftraced) -> bool {
        if written.writes == self.writes {
            return false;
        }
        if written.enabled && !self.enabled {
            self.changes = 0;
        }
        (self.enabled, self.writes) = (written.enabled, written.writes);
        true
    }

    /// Notes an update that changed `changes` calls; `converted` are converted in all. Returns a
    /// warning if these are too many, and stops.
    pub fn update(&mut self, changes: u64, converted: u64, time: Duration) -> Option<String> {
        let ns = time.as_nanos() as u64;
        match self.first_ns {
            0 => self.first_ns = ns,
            _ => self.later_ns += ns,
        }
        self.converted = converted;
        self.changes += changes;
        if self.changes <= OVERFLOW {
            return None;
        }
        self.enabled = false;
        Some(format!(
            "hm, dftrace overflow: {changes} change{} ({} total) in {} usecs: ftraced is stopped, and records no more calls",
            if changes == 1 { "" } else { "s" },
            self.changes,
            time.as_micros(),
        ))
    }

    /// Lists a failure, once.
    pub fn fail(&mut self, what: String) {
        if self.failures.len() < LISTED && !self.failures.contains(&what) {
            self.failures.push(what);
        }
    }
}

/// The time of the next wakeup.
#[derive(Debug)]
pub struct Alarm(Instant);

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm(Instant::now() + WAKES)
    }
}

impl Alarm {
    /// Returns whether it is time to wake up; if so, sets the next wakeup.
    pub fn rings(&mut self) -> bool {
        let rings = Instant::now() >= self.0;
        if rings {
            *self = Alarm::default();
        }
        rings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_conversions_stop_daemon_until_enabled_again() {
        let mut own = Ftraced::default();
        assert_eq!(own.update(99_999, 99_999, Duration::from_micros(5)), None);
        assert_eq!(own.update(1, 100_000, Duration::from_micros(5)), None);
        assert!(own.enabled);
        let warning = own.update(1, 100_001, Duration::from_micros(7)).unwrap();
        assert!(warning.starts_with("hm, dftrace overflow: 1 change (100001 total) in 7 usecs"), "{warning}");
        assert!(!own.enabled);
        assert_eq!((own.first_ns, own.later_ns), (5000, 12_000));
        let mut written = own.clone();
        written.write(true);
        assert!(own.obey(&written) && own.enabled);
        assert_eq!(own.update(1, 100_002, Duration::ZERO), None);
    }

    #[test]
    fn every_write_requests_a_conversion() {
        let mut own = Ftraced::default();
        for enabled in [true, true, false, false] {
            let mut written = own.clone();
            assert!(!own.obey(&written), "nothing was written");
            written.write(enabled);
            assert!(own.obey(&written));
            assert_eq!(own.enabled, enabled);
        }
    }
}

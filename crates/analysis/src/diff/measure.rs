//! What is compared of a function.

use std::str::FromStr;

/// A number of a function, in each of two traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Measure {
    /// Time of outermost activations.
    #[default]
    Total,
    /// Time without calls made.
    SelfTime,
    /// Number of calls.
    Calls,
    /// Mean time per call.
    Avg,
    /// What half of the calls do not exceed.
    P50,
    /// What nine of ten calls do not exceed.
    P90,
    /// What 99 of a hundred calls do not exceed.
    P99,
    /// What 999 of a thousand calls do not exceed.
    P999,
    /// Longest call.
    Max,
    /// What of the total its threads ran,
    Cpu,
    /// could have run, without a processor,
    Runnable,
    /// slept,
    Blocked,
    /// and were held by calltap.
    Tracing,
}

use Measure::*;

/// The percentiles kept of each function.
pub(super) const PERMILLES: [u32; 4] = [500, 900, 990, 999];

impl Measure {
    /// All there are.
    pub const ALL: [Measure; 13] =
        [Total, SelfTime, Calls, Avg, P50, P90, P99, P999, Max, Cpu, Runnable, Blocked, Tracing];

    /// What the total is made of.
    pub(super) const STATES: [Measure; 4] = [Cpu, Runnable, Blocked, Tracing];

    /// Their names, in the same order.
    pub const NAMES: &[&str] = &[
        "total", "self", "calls", "avg", "p50", "p90", "p99", "p99.9", "max", "cpu", "runnable", "blocked",
        "tracing",
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[Self::ALL.iter().position(|measure| *measure == self).unwrap_or(0)]
    }

    /// Its name in JSON.
    pub(super) fn key(self) -> String {
        if self.is_time() { format!("{}_ns", self.name().replace('.', "_")) } else { self.name().to_owned() }
    }

    /// Is it a time?
    pub fn is_time(self) -> bool {
        self != Calls
    }

    pub(super) fn is_percentile(self) -> bool {
        matches!(self, P50 | P90 | P99 | P999)
    }

    /// Is it kept by call path, too? A histogram for each of a million paths would not fit.
    pub fn is_by_path(self) -> bool {
        !self.is_percentile()
    }
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().position(|known| *known == name);
        let unknown = || format!("'{name}' cannot be compared; known are {}", Self::NAMES.join(", "));
        found.map(|at| Self::ALL[at]).ok_or_else(unknown)
    }
}

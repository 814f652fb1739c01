//! The measures of a function that can be compared.

use crate::error::NotOneOf;
use std::str::FromStr;

/// A number of a function that is compared between two traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Measure {
    /// Time of outermost activations.
    #[default]
    Total,
    /// Time of its calls without the calls that they made.
    SelfTime,
    /// Number of calls.
    Calls,
    /// Mean time per call.
    Avg,
    /// Median duration: half of the calls are not longer.
    P50,
    /// 90th percentile of durations.
    P90,
    /// 99th percentile of durations.
    P99,
    /// 99.9th percentile of durations.
    P999,
    /// Longest call.
    Max,
    /// Part of the total in which the threads ran.
    Cpu,
    /// Part of the total in which the threads were runnable but had no processor.
    Runnable,
    /// Part of the total in which the threads were blocked.
    Blocked,
    /// Part of the total in which calltap held the threads.
    Tracing,
}

use Measure::*;

/// The percentiles kept of each function, in parts per thousand.
pub(super) const PERMILLES: [u32; 4] = [500, 900, 990, 999];

impl Measure {
    /// All measures.
    pub const ALL: [Measure; 13] =
        [Total, SelfTime, Calls, Avg, P50, P90, P99, P999, Max, Cpu, Runnable, Blocked, Tracing];

    /// The measures that the total is the sum of.
    pub(super) const STATES: [Measure; 4] = [Cpu, Runnable, Blocked, Tracing];

    /// Names of all measures, in the order of [`ALL`](Self::ALL).
    pub const NAMES: &[&str] = &[
        "total", "self", "calls", "avg", "p50", "p90", "p99", "p99.9", "max", "cpu", "runnable", "blocked",
        "tracing",
    ];

    /// Returns the measure's name.
    pub fn name(self) -> &'static str {
        Self::NAMES[Self::ALL.iter().position(|measure| *measure == self).unwrap_or(0)]
    }

    /// Returns the measure's key in JSON.
    pub(super) fn key(self) -> String {
        if self.is_time() { format!("{}_ns", self.name().replace('.', "_")) } else { self.name().to_owned() }
    }

    /// Whether the measure is a time.
    pub(crate) fn is_time(self) -> bool {
        self != Calls
    }

    pub(super) fn is_percentile(self) -> bool {
        matches!(self, P50 | P90 | P99 | P999)
    }

    /// Whether the measure is also kept by call path. A histogram for each of a million paths would
    /// not fit into memory.
    pub fn is_by_path(self) -> bool {
        !self.is_percentile()
    }
}

impl FromStr for Measure {
    type Err = NotOneOf;

    fn from_str(name: &str) -> Result<Self, NotOneOf> {
        let found = Self::NAMES.iter().position(|known| *known == name);
        found.map(|at| Self::ALL[at]).ok_or_else(|| NotOneOf::new("measure", name, Self::NAMES))
    }
}

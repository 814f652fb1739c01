//! Converts clock ticks to nanoseconds of CLOCK_MONOTONIC and back.

use serde::{Deserialize, Serialize};

/// Nanoseconds between two pairs below which the slope between them is worse than that of longer
/// lines: the error of reading both clocks is some ten nanoseconds.
const CLOSE: u64 = 100_000_000;
/// Number of fraction bits of a slope.
const SHIFT: u32 = 48;

/// The unit of events' `ticks`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// The processor's time stamp counter, read at every event.
    Tsc,
    /// The time stamp counter, read once per block of events; times in between are interpolated.
    Sparse,
    /// Nanoseconds of CLOCK_MONOTONIC, from a word that the recorder updates about once a
    /// millisecond.
    Coarse,
    /// A number that increases by one at every event of the process: an order, not a time.
    Counter,
    /// Nanoseconds of CLOCK_MONOTONIC, read at every event, in imported traces.
    Monotonic,
    /// Nanoseconds of another kernel clock, which
    /// [`Session::clock_note`](crate::Session::clock_note) names, in imported traces.
    Kernel,
}

/// A moment read on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockPair {
    /// Time of the trace's clock.
    pub ticks: u64,
    /// Time of CLOCK_MONOTONIC in nanoseconds.
    pub monotonic_ns: u64,
}

/// Map from the trace's clock to CLOCK_MONOTONIC: straight lines from pair to pair, the overall
/// slope beyond the ends.
///
/// Later ticks never give an earlier time. All arithmetic is integer, so that the same file gives
/// the same numbers everywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockMap {
    kind: ClockKind,
    /// The pairs, ascending in both; each `slope` is that of the line to the next.
    knots: Vec<Knot>,
    overall: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Knot {
    ticks: u64,
    ns: u64,
    slope: u64,
}

impl ClockMap {
    /// Creates a map from the session's clock and the pairs read while recording. Returns
    /// complaints about these as well.
    pub fn new(kind: ClockKind, pairs: &[ClockPair]) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        let identity = 1 << SHIFT;
        if !matches!(kind, ClockKind::Tsc | ClockKind::Sparse) {
            return (Self { kind, knots: Vec::new(), overall: identity }, complaints);
        }
        let mut sorted = pairs.to_vec();
        sorted.sort_by_key(|pair| (pair.ticks, pair.monotonic_ns));
        let mut knots: Vec<Knot> = Vec::with_capacity(sorted.len());
        let mut dropped = 0;
        for ClockPair { ticks, monotonic_ns: ns } in sorted {
            match knots.last() {
                Some(last) if ticks <= last.ticks || ns < last.ns => dropped += 1,
                _ => knots.push(Knot { ticks, ns, slope: identity }),
            }
        }
        let last = knots.last().map_or(0, |last| last.ns);
        let mut before = None;
        knots.retain(|knot| {
            let is_far = before.is_none_or(|before| knot.ns - before >= CLOSE) || knot.ns == last;
            before = if is_far { Some(knot.ns) } else { before };
            is_far
        });
        if dropped > 0 {
            complaints.push(format!("{dropped} clock pairs contradict their predecessors and are not used"));
        }
        let [first, .., last] = knots[..] else {
            complaints.push(
                "the clock was never compared with CLOCK_MONOTONIC: only the order of events is known"
                    .to_owned(),
            );
            return (Self { kind, knots: Vec::new(), overall: identity }, complaints);
        };
        let overall = slope(first, last);
        for at in 1..knots.len() {
            knots[at - 1].slope = slope(knots[at - 1], knots[at]);
        }
        if let Some(last) = knots.last_mut() {
            last.slope = overall;
        }
        (Self { kind, knots, overall }, complaints)
    }

    /// Whether ticks are time, not just order. The length of a tick of the time stamp counter is
    /// known only from two pairs.
    pub fn has_time(&self) -> bool {
        match self.kind {
            ClockKind::Counter => false,
            ClockKind::Tsc | ClockKind::Sparse => !self.knots.is_empty(),
            ClockKind::Coarse | ClockKind::Monotonic | ClockKind::Kernel => true,
        }
    }

    /// Returns CLOCK_MONOTONIC in nanoseconds at `ticks`.
    #[inline]
    pub fn to_ns(&self, ticks: u64) -> u64 {
        let at = self.knots.partition_point(|knot| knot.ticks <= ticks);
        match (at.checked_sub(1).and_then(|at| self.knots.get(at)), self.knots.first()) {
            (Some(knot), _) => knot.ns.saturating_add(scale(ticks - knot.ticks, knot.slope)),
            (None, Some(first)) => first.ns.saturating_sub(scale(first.ticks - ticks, self.overall)),
            (None, None) => ticks,
        }
    }

    /// Returns the duration of `ticks` ticks in nanoseconds.
    #[inline]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        scale(ticks, self.overall)
    }

    /// Returns the ticks at `ns`: the inverse of [`Self::to_ns`], to within the length of a tick.
    pub fn from_ns(&self, ns: u64) -> u64 {
        let at = self.knots.partition_point(|knot| knot.ns <= ns);
        match (at.checked_sub(1).and_then(|at| self.knots.get(at)), self.knots.first()) {
            (Some(knot), _) => {
                let ticks = knot.ticks.saturating_add(unscale(ns - knot.ns, knot.slope));
                self.knots.get(at).map_or(ticks, |next| ticks.min(next.ticks))
            }
            (None, Some(first)) => first.ticks.saturating_sub(unscale(first.ns - ns, self.overall)),
            (None, None) => ns,
        }
    }
}

/// Returns the slope of a line, rounded down so that the line never passes its end.
fn slope(from: Knot, to: Knot) -> u64 {
    let exact = (u128::from(to.ns - from.ns) << SHIFT) / u128::from(to.ticks - from.ticks);
    u64::try_from(exact).unwrap_or(u64::MAX)
}

#[inline]
fn scale(ticks: u64, slope: u64) -> u64 {
    u64::try_from((u128::from(ticks) * u128::from(slope)) >> SHIFT).unwrap_or(u64::MAX)
}

fn unscale(ns: u64, slope: u64) -> u64 {
    if slope == 0 {
        return 0;
    }
    u64::try_from((u128::from(ns) << SHIFT).div_ceil(u128::from(slope))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ticks: u64, monotonic_ns: u64) -> ClockPair {
        ClockPair { ticks, monotonic_ns }
    }

    #[test]
    fn goes_through_its_pairs_and_beyond() {
        const M: u64 = 1_000_000;
        let pairs = [pair(1000 * M, 500 * M), pair(3000 * M, 1500 * M), pair(4000 * M, 1700 * M)];
        let (map, complaints) = ClockMap::new(ClockKind::Tsc, &pairs);
        assert!(complaints.is_empty());
        for (ticks, ns) in
            [(0, 100), (1000, 500), (2000, 1000), (3000, 1500), (3500, 1600), (4000, 1700), (4030, 1712)]
        {
            assert!(map.to_ns(ticks * M).abs_diff(ns * M) <= 1, "{ticks}: {} not {ns}", map.to_ns(ticks * M));
        }
        assert_eq!(map.duration_ns(3000 * M), 1200 * M - 1);
    }

    #[test]
    fn pair_close_behind_another_bends_no_line() {
        const M: u64 = 1_000_000;
        let (map, _) =
            ClockMap::new(ClockKind::Tsc, &[pair(0, 0), pair(10 * M, 10 * M + 30), pair(50 * M, 50 * M)]);
        assert_eq!((map.to_ns(10 * M), map.to_ns(30 * M)), (10 * M, 30 * M));
        let (map, _) = ClockMap::new(ClockKind::Tsc, &[pair(0, 0), pair(10 * M, 20 * M)]);
        assert_eq!(map.to_ns(5 * M), 10 * M);
    }

    #[test]
    fn never_runs_backwards_and_inverts() {
        let pairs = [
            pair(7, 3),
            pair(1 << 40, 1 << 39),
            pair((1 << 40) + 1, u64::MAX / 2),
            pair(u64::MAX - 9, u64::MAX - 1),
        ];
        let (map, _) = ClockMap::new(ClockKind::Sparse, &pairs);
        let mut before = 0;
        for ticks in (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
            let ns = map.to_ns(ticks);
            assert!(ns >= before, "{ticks}");
            before = ns;
        }
        let (map, _) =
            ClockMap::new(ClockKind::Tsc, &[pair(1_000_000, 5_000_000), pair(25_000_000, 15_000_000)]);
        for ticks in (0..30_000_000).step_by(9973) {
            let back = map.from_ns(map.to_ns(ticks));
            assert!(back.abs_diff(ticks) <= 3, "{ticks} {back}");
        }
        assert_eq!(map.to_ns(u64::MAX / 2).cmp(&0), std::cmp::Ordering::Greater);
    }

    #[test]
    fn without_pairs_a_tick_is_a_nanosecond() {
        let (map, complaints) = ClockMap::new(ClockKind::Tsc, &[pair(5, 5)]);
        assert_eq!((map.to_ns(77), map.from_ns(77), map.duration_ns(77)), (77, 77, 77));
        assert!(!map.has_time());
        assert_eq!(complaints.len(), 1);
        let (map, complaints) = ClockMap::new(ClockKind::Counter, &[]);
        assert!(complaints.is_empty() && !map.has_time() && map.to_ns(9) == 9);
        let (map, _) = ClockMap::new(ClockKind::Coarse, &[pair(1, 9), pair(2, 99)]);
        assert!(map.has_time() && map.to_ns(9) == 9);
    }

    #[test]
    fn pairs_that_contradict_are_dropped() {
        let (map, complaints) =
            ClockMap::new(ClockKind::Tsc, &[pair(10, 10), pair(20, 5), pair(10, 11), pair(30, 30)]);
        assert_eq!(complaints.len(), 1);
        assert_eq!(map.to_ns(30), 30);
    }
}

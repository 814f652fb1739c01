//! Buckets of durations, by powers of two or of equal width, and the bars that show how many calls
//! each bucket holds.

use crate::units::{count, duration};
use std::collections::BTreeMap;

/// Stars of the longest bar.
const BAR: usize = 32;
/// Number of buckets of equal width; the last one holds all longer durations too.
const LINEAR: u64 = 1000;

/// How durations are grouped into buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buckets {
    /// Powers of two of nanoseconds.
    Log2,
    /// Buckets of equal width, in nanoseconds.
    Linear(u64),
}

impl Buckets {
    pub(super) fn place(self, ns: u64) -> u64 {
        match self {
            Buckets::Log2 => u64::from(ns.max(1).ilog2()),
            Buckets::Linear(width) => (ns / width).min(LINEAR - 1),
        }
    }

    /// Bounds of a bucket in nanoseconds: the first duration in it, and the first beyond it
    /// (`None`: unbounded).
    pub(super) fn bounds(self, place: u64) -> (u64, Option<u64>) {
        match self {
            Buckets::Log2 if place == 0 => (0, Some(2)),
            Buckets::Log2 => (1 << place, 1u64.checked_shl(place as u32 + 1)),
            Buckets::Linear(width) if place == LINEAR - 1 => (place.saturating_mul(width), None),
            Buckets::Linear(width) => (place.saturating_mul(width), Some((place + 1).saturating_mul(width))),
        }
    }
}

/// Appends one line for every bucket from the first to the last that holds calls.
pub(super) fn bars(kind: Buckets, buckets: &BTreeMap<u64, u64>, text: &mut String) {
    let (Some((first, _)), Some((last, _))) = (buckets.first_key_value(), buckets.last_key_value()) else {
        return;
    };
    let most = buckets.values().copied().max().unwrap_or(1);
    let mut empty = 0;
    for place in *first..=*last {
        let calls = buckets.get(&place).copied().unwrap_or(0);
        // A gap of several empty buckets is shown as one line.
        empty = if calls == 0 { empty + 1 } else { 0 };
        if empty > 1 && kind != Buckets::Log2 {
            continue;
        }
        let (from, to) = kind.bounds(place);
        let to = to.map(duration).unwrap_or_default();
        let stars = (u128::from(calls) * BAR as u128).div_ceil(u128::from(most)) as usize;
        let bar = "*".repeat(stars);
        *text += &format!("{:>14} .. {to:<13} {:>12} |{bar:<BAR$}|\n", duration(from), count(calls));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_within_the_bounds_of_its_bucket() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for ns in edges.chain([u64::MAX]) {
            for buckets in [Buckets::Log2, Buckets::Linear(1), Buckets::Linear(250_000)] {
                let (from, to) = buckets.bounds(buckets.place(ns));
                assert!(from <= ns && to.is_none_or(|to| ns < to), "{ns} in {from}..{to:?}");
            }
        }
    }
}

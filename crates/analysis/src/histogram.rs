//! Histograms of call durations, from which percentiles are read.
//!
//! Durations below 128 ticks have a bucket each; above, every power of two is divided into 64
//! buckets. The middle of a bucket is off by at most 1/128 of any duration in it. Buckets are
//! allocated in blocks of 64, for each function only those that its calls fell into: some
//! kilobytes, 30 at most. The crate hdrhistogram keeps all buckets from zero to the longest call,
//! of every function that is called once.

/// Number of buckets of a block, and of a power of two.
const BLOCK: usize = 64;
/// Number of blocks that cover all 64-bit durations.
const BLOCKS: usize = 59;

/// Returns the bucket of a duration.
#[inline(always)]
fn bucket(ticks: u64) -> usize {
    let shift = 57 - (ticks | 127).leading_zeros() as usize;
    shift * BLOCK + (ticks >> shift) as usize
}

/// Returns the shortest and the longest duration of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    let shift = (bucket / BLOCK).saturating_sub(1);
    let low = ((bucket - shift * BLOCK) as u64) << shift;
    (low, low + ((1 << shift) - 1))
}

/// Returns the duration in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (low, high) = bounds(bucket);
    low + (high - low) / 2
}

/// Histograms of many functions that are being counted.
pub(crate) struct Histograms {
    /// Block by function and power of two; 0: none yet.
    heads: Vec<[u32; BLOCKS]>,
    blocks: Vec<[u64; BLOCK]>,
    free: Vec<u32>,
}

impl Histograms {
    pub(crate) fn new(functions: usize) -> Self {
        Self { heads: vec![[0; BLOCKS]; functions], blocks: vec![[0; BLOCK]], free: Vec::new() }
    }

    /// Number of functions.
    pub(crate) fn functions(&self) -> usize {
        self.heads.len()
    }

    #[inline(always)]
    pub(crate) fn record(&mut self, function: usize, ticks: u64) {
        let bucket = bucket(ticks);
        let mut block = self.heads[function][bucket / BLOCK];
        if block == 0 {
            block = self.new_block();
            self.heads[function][bucket / BLOCK] = block;
        }
        self.blocks[block as usize][bucket % BLOCK] += 1;
    }

    #[cold]
    fn new_block(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.blocks.push([0; BLOCK]);
            self.blocks.len() as u32 - 1
        })
    }

    /// Takes the counts of a function and resets them.
    pub(crate) fn take(&mut self, function: usize) -> Counts {
        let mut counts = Vec::new();
        for (doubling, head) in self.heads[function].iter_mut().enumerate() {
            let block = std::mem::take(head);
            if block == 0 {
                continue;
            }
            self.free.push(block);
            for (at, count) in
                std::mem::replace(&mut self.blocks[block as usize], [0; BLOCK]).into_iter().enumerate()
            {
                if count > 0 {
                    counts.push(((doubling * BLOCK + at) as u16, count));
                }
            }
        }
        Counts(counts)
    }
}

/// A sparse histogram of durations, for rows that are few.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantiles(std::collections::BTreeMap<u16, u64>);

impl Quantiles {
    pub(crate) fn record(&mut self, duration: u64) {
        *self.0.entry(bucket(duration) as u16).or_default() += 1;
    }

    /// Returns the durations that the given parts per thousand do not exceed: off by at most 1/128,
    /// and clamped to `min..=max`.
    pub(crate) fn permilles<const N: usize>(&self, permilles: [u32; N], min: u64, max: u64) -> [u64; N] {
        let counts = Counts(self.0.iter().map(|(bucket, count)| (*bucket, *count)).collect());
        permilles.map(|permille| counts.permille(permille).clamp(min, max.max(min)))
    }
}

/// The finished histogram of one function: its non-empty buckets, ascending, with their counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts(Vec<(u16, u64)>);

impl Counts {
    /// Adds the counts of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
        self.0.sort_unstable_by_key(|&(bucket, _)| bucket);
        self.0.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            sum.1 += if same { next.1 } else { 0 };
            same
        });
    }

    /// Returns at most `most` bars from the shortest to the longest duration: first and last
    /// duration, and count. All bars span the same number of buckets; bars without calls appear
    /// only between others.
    pub(crate) fn bars(&self, most: usize) -> Vec<(u64, u64, u64)> {
        let (Some(&(first, _)), Some(&(last, _))) = (self.0.first(), self.0.last()) else {
            return Vec::new();
        };
        let (first, last) = (usize::from(first), usize::from(last));
        let wide = (last - first + 1).div_ceil(most.max(1)).next_power_of_two();
        let mut bars: Vec<(u64, u64, u64)> = (first / wide..=last / wide)
            .map(|bar| (bounds(bar * wide).0, bounds(bar * wide + wide - 1).1, 0))
            .collect();
        for &(bucket, count) in &self.0 {
            bars[usize::from(bucket) / wide - first / wide].2 += count;
        }
        bars
    }

    /// Number of durations.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|&(_, count)| count).sum()
    }

    /// Returns the duration with a rank, the shortest having rank 1, in ticks: off by at most
    /// 1/128; 0 of an empty histogram.
    pub(crate) fn at_rank(&self, rank: u64) -> u64 {
        let mut below = 0;
        let found = self.0.iter().find(|&&(_, count)| {
            below += count;
            below >= rank
        });
        found.or(self.0.last()).map_or(0, |&(bucket, _)| middle(bucket.into()))
    }

    /// Returns the duration that `permille` of a thousand calls do not exceed.
    pub(crate) fn permille(&self, permille: u32) -> u64 {
        let rank = (u128::from(self.len()) * u128::from(permille)).div_ceil(1000);
        self.at_rank(rank as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_within_a_128th_of_the_middle_of_its_bucket() {
        let edges = (0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + 1, power + power / 3, power | (power - 1)]
        });
        let mut last = (0, 0);
        let mut all: Vec<u64> = edges.chain(0..1000).chain([u64::MAX]).collect();
        all.sort_unstable();
        for ticks in all {
            let place = bucket(ticks);
            assert!(place < BLOCK * BLOCKS, "{ticks}");
            assert!(place >= last.1, "{ticks} is in a bucket below that of {}", last.0);
            let error = middle(place).abs_diff(ticks);
            assert!(u128::from(error) * 128 <= u128::from(ticks), "{ticks}: {}", middle(place));
            last = (ticks, place);
        }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut histograms = Histograms::new(2);
        (1..=100).for_each(|ticks| histograms.record(1, ticks));
        let counts = histograms.take(1);
        let at = |permille| counts.permille(permille);
        assert_eq!((at(1), at(500), at(900), at(990), at(999), at(1000)), (1, 50, 90, 99, 100, 100));
        assert_eq!(histograms.take(1), Counts::default(), "it begins anew");
        assert_eq!(Counts::default().permille(500), 0);
    }

    #[test]
    fn bars_have_every_call_and_no_gaps() {
        let mut histograms = Histograms::new(1);
        [3, 3, 100, 5_000, 1_000_000].into_iter().for_each(|ticks| histograms.record(0, ticks));
        let counts = histograms.take(0);
        for most in [1, 7, 50, 5000] {
            let bars = counts.bars(most);
            assert!(bars.len() <= most && bars.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{bars:?}");
            assert_eq!(bars.iter().map(|bar| bar.2).sum::<u64>(), 5);
            let of = |ticks| bars.iter().find(|bar| bar.0 <= ticks && ticks <= bar.1).map(|bar| bar.2);
            assert!(of(3) >= Some(2) && of(1_000_000) >= Some(1), "{bars:?}");
        }
        assert!(Counts::default().bars(9).is_empty());
    }

    #[test]
    fn sums_are_as_if_counted_together() {
        let (mut apart, mut together) = (Histograms::new(2), Histograms::new(1));
        for number in 0..5000u64 {
            let ticks = number * number * 977 % 1_000_003;
            apart.record((number % 2) as usize, ticks);
            together.record(0, ticks);
        }
        let mut sum = apart.take(0);
        sum.add(&apart.take(1));
        assert_eq!((sum.len(), &sum), (5000, &together.take(0)));
    }
}

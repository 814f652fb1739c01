//! Blocks: calls of one thread at one depth, merged at a chosen resolution.

use calltap_trace::SiteId;

/// A call, or several adjacent short ones. Times are nanoseconds since the start of the timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Beginning of the first call.
    pub start: u64,
    /// End of the last call.
    pub end: u64,
    /// Time within calls.
    pub busy: u64,
    /// Duration of the longest call.
    pub longest: u64,
    /// Function of the longest call.
    pub site: SiteId,
    /// Number of calls.
    pub calls: u32,
    /// Number of calls that were cut: they lasted at least until `end`, and their real end is
    /// unknown.
    pub cut: u32,
}

impl Block {
    /// Returns both blocks as one, if that is not longer than `quantum`.
    fn join(&self, next: &Block, quantum: u64) -> Option<Block> {
        let end = self.end.max(next.end);
        let longer = if next.longest > self.longest { next } else { self };
        (end - self.start <= quantum).then(|| Block {
            start: self.start,
            end,
            busy: self.busy + next.busy,
            longest: longer.longest,
            site: longer.site,
            calls: self.calls.saturating_add(next.calls),
            cut: self.cut.saturating_add(next.cut),
        })
    }
}

/// Appends a block, merged into the last one if the result is at most `quantum` long.
#[inline]
pub(super) fn push(track: &mut Vec<Block>, block: Block, quantum: u64) {
    if let Some(last) = track.last_mut()
        && let Some(joined) = last.join(&block, quantum)
    {
        *last = joined;
    } else {
        track.push(block);
    }
}

/// Returns the track in blocks of at most `quantum`, except for longer calls.
pub(super) fn coarser(track: &[Block], quantum: u64) -> Vec<Block> {
    let mut coarse = Vec::new();
    track.iter().for_each(|block| push(&mut coarse, *block, quantum));
    coarse
}

/// Returns the blocks of a track that overlap a window.
pub(super) fn within(track: &[Block], from: u64, to: u64) -> &[Block] {
    let first = track.partition_point(|block| block.end < from);
    let behind = track.partition_point(|block| block.start <= to);
    &track[first..behind.max(first)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start: u64, end: u64, site: u32) -> Block {
        Block { start, end, busy: end - start, longest: end - start, site: SiteId(site), calls: 1, cut: 0 }
    }

    #[test]
    fn short_calls_are_merged_and_long_calls_are_not() {
        let track = [call(0, 3, 1), call(4, 6, 2), call(10, 100, 3), call(101, 102, 4), call(103, 105, 5)];
        let coarse = coarser(&track, 8);
        let joined = Block { start: 0, end: 6, busy: 5, longest: 3, site: SiteId(1), calls: 2, cut: 0 };
        let last = Block { start: 101, end: 105, busy: 3, longest: 2, site: SiteId(5), calls: 2, cut: 0 };
        assert_eq!(coarse, [joined, call(10, 100, 3), last]);
        assert_eq!(coarser(&track, 0), track);
    }

    #[test]
    fn window_has_blocks_that_overlap_its_bounds() {
        let track = [call(0, 3, 1), call(4, 6, 2), call(10, 100, 3)];
        let sites = |from, to| within(&track, from, to).iter().map(|b| b.site.0).collect::<Vec<_>>();
        assert_eq!(sites(0, 200), [1, 2, 3]);
        assert_eq!(sites(50, 60), [3]);
        assert_eq!(sites(3, 4), [1, 2]);
        assert!(sites(7, 9).is_empty() && sites(101, 200).is_empty() && sites(9, 5).is_empty());
    }
}

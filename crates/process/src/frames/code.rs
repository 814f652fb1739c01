//! A fast test of whether a word is an address of code, for stacks of hundreds of thousands of
//! words, few of which are.

/// Whether an address lies in one of the sorted and disjoint ranges.
pub fn find(ranges: &[(u64, u64)], address: u64) -> bool {
    let at = ranges.partition_point(|(start, _)| *start <= address);
    at > 0 && address < ranges[at - 1].1
}

/// The ranges of code in a process.
#[derive(Debug)]
pub(super) struct Code {
    ranges: Vec<(u64, u64)>,
    /// Two ranges that contain all others, chosen so that the gap between them is the widest: that
    /// between a program and its libraries, where stacks lie.
    around: [(u64, u64); 2],
}

impl Code {
    /// Takes ranges that are sorted and disjoint.
    pub(super) fn new(ranges: Vec<(u64, u64)>) -> Code {
        let gap = |n: &usize| ranges[*n].0 - ranges[*n - 1].1;
        let (below, above) = ranges.split_at((1..ranges.len()).max_by_key(gap).unwrap_or(0));
        let hull = |part: &[(u64, u64)]| {
            part.first().zip(part.last()).map_or((0, 0), |(first, last)| (first.0, last.1))
        };
        let around = [hull(below), hull(above)];
        Code { ranges, around }
    }

    /// Whether an address lies in one of the ranges.
    pub(super) fn contains(&self, address: u64) -> bool {
        let is_near = |(start, end): (u64, u64)| address.wrapping_sub(start) < end - start;
        (is_near(self.around[0]) || is_near(self.around[1])) && find(&self.ranges, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_each_range_and_in_no_gap() {
        let all = [(0x10, 0x20), (0x30, 0x40), (0x1000, 0x1010), (0x1020, 0x1030)];
        for count in 0..=all.len() {
            let code = Code::new(all[..count].to_vec());
            for address in 0..0x1100 {
                let expected = all[..count].iter().any(|(start, end)| (*start..*end).contains(&address));
                assert_eq!(code.contains(address), expected, "{address:#x} of {count}");
            }
        }
    }
}

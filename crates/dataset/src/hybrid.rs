//! Parquet's hybrid encoding of small numbers: runs of one value, and bit-packed groups of eight
//! values.

use std::iter::repeat_n;

/// Appends the length of a run as a varint.
fn put_length(mut word: u64, out: &mut Vec<u8>) {
    while word >= 0x80 {
        out.push(word as u8 | 0x80);
        word >>= 7;
    }
    out.push(word as u8);
}

/// Appends a run of `count` equal values of `width` bits.
fn one_run(value: u32, count: usize, width: u32, out: &mut Vec<u8>) {
    put_length((count as u64) << 1, out);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
}

/// Number of values of a bit-packed group.
const GROUP: usize = 8;

/// Appends values bit-packed, the last group filled up with zeros.
fn packed(values: &[u32], width: u32, out: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    put_length((values.len().div_ceil(GROUP) as u64) << 1 | 1, out);
    for group in values.chunks(GROUP) {
        let (mut word, mut bits) = (0_u64, 0);
        for place in 0..GROUP {
            word |= u64::from(group.get(place).copied().unwrap_or(0)) << bits;
            bits += width;
            // The bits of a value, at most 32, fit above the up to 7 bits that are left.
            while bits >= 8 {
                out.push(word as u8);
                word >>= 8;
                bits -= 8;
            }
        }
    }
}

/// Appends runs of values of `width` bits: bit-packed, but for eight and more equal ones in a row.
pub(crate) fn hybrid(runs: impl Iterator<Item = (u32, usize)>, width: u32, out: &mut Vec<u8>) {
    let mut mixed: Vec<u32> = Vec::new();
    for (value, count) in runs {
        // Packed values come in groups of eight, so that a run may begin behind whole groups only.
        let filling = count.min(mixed.len().next_multiple_of(GROUP) - mixed.len());
        let rest = count - filling;
        if rest < GROUP {
            mixed.extend(repeat_n(value, count));
        } else {
            mixed.extend(repeat_n(value, filling));
            packed(&mixed, width, out);
            mixed.clear();
            one_run(value, rest, width, out);
        }
    }
    packed(&mixed, width, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::Runs;

    /// Decodes the values by the description of the format.
    fn read(mut bytes: &[u8], width: u32, count: usize) -> Vec<u32> {
        let mut values = Vec::new();
        while values.len() < count {
            let (mut word, mut shift) = (0_u64, 0);
            loop {
                let (byte, rest) = bytes.split_first().unwrap();
                bytes = rest;
                word |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let (length, is_packed) = ((word >> 1) as usize, word & 1 == 1);
            let size = if is_packed { length * width as usize } else { width.div_ceil(8) as usize };
            let (own, rest) = bytes.split_at(size);
            bytes = rest;
            let bit = |at: usize| u32::from(own[at / 8] >> (at % 8) & 1);
            let value =
                |place: usize| (0..width as usize).map(|n| bit(place * width as usize + n) << n).sum::<u32>();
            if is_packed {
                values.extend((0..length * 8).map(value));
            } else {
                values.extend(std::iter::repeat_n(value(0), length));
            }
        }
        assert!(bytes.is_empty(), "nothing lies behind the values");
        values.truncate(count);
        values
    }

    fn check(values: &[u32], width: u32) {
        let mut bytes = Vec::new();
        hybrid(values.iter().copied().collect::<Runs<u32>>().iter(), width, &mut bytes);
        assert_eq!(read(&bytes, width, values.len()), values, "{width} bits");
    }

    #[test]
    fn values_of_any_width_come_back() {
        for width in 0..=32 {
            let mask = (1_u64 << width).wrapping_sub(1) as u32;
            for count in [0, 1, 7, 8, 9, 16, 100, 1000] {
                let mixed = |place: u32| place.wrapping_mul(0x9e37_79b9) & mask;
                check(&(0..count).map(mixed).collect::<Vec<u32>>(), width);
                // Runs of every length begin at any position.
                check(
                    &(0..count).map(|place| mixed(place / 11) ^ mixed(place / 37)).collect::<Vec<u32>>(),
                    width,
                );
                check(&vec![mask; count as usize], width);
            }
        }
    }

    #[test]
    fn a_run_takes_a_few_bytes() {
        let mut bytes = Vec::new();
        hybrid([(3, 100_000)].into_iter(), 2, &mut bytes);
        assert_eq!(bytes.len(), 4);
    }
}

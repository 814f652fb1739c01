//! Parquet's hybrid encoding of small numbers: runs of one value, and bit-packed groups of eight
//! values.

/// Appends the length of a run as a varint.
fn put_length(mut word: u64, out: &mut Vec<u8>) {
    while word >= 0x80 {
        out.push(word as u8 | 0x80);
        word >>= 7;
    }
    out.push(word as u8);
}

/// Appends a run of `count` equal values of `width` bits.
pub fn one_run(value: u32, count: usize, width: u32, out: &mut Vec<u8>) {
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

/// Appends values of `width` bits, as runs where eight in a row are equal.
pub fn hybrid(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let (mut at, mut packed_from) = (0, 0);
    while at < values.len() {
        let group = &values[at..values.len().min(at + GROUP)];
        let first = group[0];
        if group.iter().any(|value| *value != first) {
            at += group.len();
            continue;
        }
        let run = values[at..].iter().take_while(|value| **value == first).count();
        packed(&values[packed_from..at], width, out);
        one_run(first, run, width, out);
        at += run;
        packed_from = at;
    }
    packed(&values[packed_from..], width, out);
}

#[cfg(test)]
mod tests {
    use super::*;

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
        hybrid(values, width, &mut bytes);
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
        hybrid(&[3; 100_000], 2, &mut bytes);
        assert_eq!(bytes.len(), 4);
    }
}

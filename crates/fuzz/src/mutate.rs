//! Random mutations of seeds, of the kinds that find most bugs: bits, extreme numbers, cuts, and
//! pieces of another seed.

/// A generator of random numbers (xorshift64*): the same seed makes the same inputs.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Numbers that readers often handle wrongly.
const EXTREME: [u64; 10] = [0, 1, 8, 0x7f, 0xff, 0x1000, 1 << 31, u32::MAX as u64, u64::MAX - 7, u64::MAX];

impl Random {
    /// Returns a generator with a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    /// Returns a random position in `length` bytes, more often in the headers at both ends than
    /// elsewhere.
    fn place(&mut self, length: usize) -> usize {
        match self.below(4) {
            0 => self.below(length.min(512)),
            1 => length.saturating_sub(1 + self.below(length.min(2500))),
            _ => self.below(length),
        }
    }

    /// Returns a mutation of one of the seeds.
    pub fn change(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut data = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(12) {
            let at = self.place(data.len());
            match self.below(8) {
                _ if data.is_empty() => data.push(self.next() as u8),
                0 => data[at] ^= 1 << self.below(8),
                1 | 2 => data[at] = self.next() as u8,
                3 | 4 => {
                    let (at, width) = (at & !7, 1 << self.below(4));
                    let number = EXTREME[self.below(EXTREME.len())].to_le_bytes();
                    data.iter_mut().skip(at).zip(&number[..width]).for_each(|(byte, new)| *byte = *new);
                }
                5 if self.below(4) == 0 => data.truncate(at),
                6 => {
                    let piece = self.piece(&data.clone());
                    data.iter_mut().skip(at).zip(piece).for_each(|(byte, new)| *byte = new);
                }
                _ => {
                    let other = &seeds[self.below(seeds.len())];
                    let piece = self.piece(other);
                    data.splice(at..at, piece);
                }
            }
        }
        data
    }

    fn piece(&mut self, of: &[u8]) -> Vec<u8> {
        let start = self.place(of.len());
        let length = 1 + self.below(64);
        of.iter().skip(start).take(length).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_says_which_inputs_come() {
        let seeds = [b"one seed".to_vec(), Vec::new()];
        let all = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| random.change(&seeds)).collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert!(all(1).iter().filter(|input| !seeds.contains(input)).count() > 40);
    }
}

//! Pseudo-random numbers (SplitMix64).

/// A generator.
pub struct Random(u64);

impl Random {
    /// Returns a generator with a seed.
    pub fn new(seed: u64) -> Random {
        // Consecutive seeds must not give the same sequence shifted by one.
        Random(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29) ^ 0x2545_F491_4F6C_DD1D)
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns one of the elements.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

//! Variable-length numbers, and a cursor over untrusted bytes.

use super::Damage;

/// Writes a number with seven bits to a byte, lowest first; the top bit is set in all bytes but the
/// last.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps signed numbers to unsigned ones, small to small.
pub(crate) fn zigzag(value: u64) -> u64 {
    let signed = value as i64;
    (signed << 1 ^ signed >> 63) as u64
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

/// The bytes that are still to be read.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Damage("a stream ends early"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage("a number is too long"))
    }

    /// Reads a little-endian number of `bytes` bytes.
    #[inline]
    pub(crate) fn little(&mut self, bytes: usize) -> Result<u64, Damage> {
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(wide))
    }

    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Damage("a stream ends early"))?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Converts a number to 32 bits, or fails.
pub(crate) fn narrow(number: u64) -> Result<u32, Damage> {
    u32::try_from(number).map_err(|_| Damage("a number is too large"))
}

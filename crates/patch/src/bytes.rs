//! A short inline array of bytes. A list for each of a hundred thousand sites would cost an
//! allocation each.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Length of the longest site, in bytes.
pub const MAX_SITE_LEN: usize = 23;

/// Up to [`MAX_SITE_LEN`] bytes.
#[derive(Clone, Copy)]
pub struct Bytes {
    length: u8,
    bytes: [u8; MAX_SITE_LEN],
}

impl Bytes {
    /// Copies bytes; None if there are more than [`MAX_SITE_LEN`].
    pub fn new(from: &[u8]) -> Option<Bytes> {
        Bytes::join(&[from])
    }

    /// Joins byte strings; None if there are more than [`MAX_SITE_LEN`] bytes.
    pub(crate) fn join(parts: &[&[u8]]) -> Option<Bytes> {
        let mut all = Bytes { length: 0, bytes: [0; MAX_SITE_LEN] };
        for part in parts {
            let start = all.length as usize;
            all.bytes.get_mut(start..start + part.len())?.copy_from_slice(part);
            all.length += part.len() as u8;
        }
        Some(all)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

impl DerefMut for Bytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length as usize]
    }
}

impl PartialEq for Bytes {
    #[inline]
    fn eq(&self, other: &Bytes) -> bool {
        *self == **other
    }
}

impl PartialEq<[u8]> for Bytes {
    /// Compares five bytes, as most sites have, without a call.
    #[inline]
    fn eq(&self, other: &[u8]) -> bool {
        match (&**self, other) {
            ([a, b, c, d, e], [v, w, x, y, z]) => [a, b, c, d, e] == [v, w, x, y, z],
            (own, other) => own == other,
        }
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

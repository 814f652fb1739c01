//! A copy of a thread's stack: the agent writes it into a ring, and the recorder unwinds it.
//!
//! A copy is a sequence of pieces of up to [`PIECE`] words. Unwinding needs only return addresses
//! and saved frame pointers, so a piece stores a word only if it may be an address of user space.
//!
//! ```text
//! +--------+-----------------------+------------------+-------------------+----------------------
//! | number | address of first word | caller's rbp     | mask of the words | words that are stored
//! | 1 byte | 6 bytes               | 6 bytes          | 8 bytes           | 6 bytes each
//! +--------+-----------------------+------------------+-------------------+----------------------
//! ```
//!
//! The first word of piece 0 is the return address of the call. Where a stub has replaced a return
//! address, the true one of the shadow stack is stored. An rbp that is no address is stored as 0.

/// Words of a piece.
pub const PIECE: usize = 64;
/// Bytes of an address.
const ADDRESS: usize = 6;
const HEAD: usize = 1 + 2 * ADDRESS + 8;
/// Maximum number of bytes of a piece.
pub const PIECE_BYTES: usize = HEAD + PIECE * ADDRESS;
/// Maximum number of bytes of stack that are copied for a call: as many pieces as there are
/// numbers.
pub const MAX_STACK_COPY: u32 = (256 * PIECE * 8) as u32;

/// Whether a word may be an address of user space.
pub fn is_address(word: u64) -> bool {
    (0x1_0000..crate::sizes::USER_END).contains(&word)
}

/// A piece to be written.
pub struct Piece {
    bytes: [u8; PIECE_BYTES],
    length: usize,
}

impl Piece {
    /// Makes piece `number` of words from `address` on. At most [`PIECE`] of them are taken.
    pub fn new(number: u8, address: u64, rbp: u64, words: impl Iterator<Item = u64>) -> Piece {
        let mut piece = Piece { bytes: [0; PIECE_BYTES], length: HEAD };
        let mut mask = 0_u64;
        for (n, word) in words.take(PIECE).enumerate() {
            if is_address(word) {
                mask |= 1 << n;
                piece.put(piece.length, word);
                piece.length += ADDRESS;
            }
        }
        if let Some(first) = piece.bytes.first_mut() {
            *first = number;
        }
        piece.put(1, address);
        piece.put(1 + ADDRESS, if is_address(rbp) { rbp } else { 0 });
        let place = piece.bytes.iter_mut().skip(1 + 2 * ADDRESS);
        place.zip(mask.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        piece
    }

    fn put(&mut self, at: usize, address: u64) {
        let place = self.bytes.iter_mut().skip(at).take(ADDRESS);
        place.zip(address.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    }

    /// Returns the bytes of the piece.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// A piece that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied<'a> {
    /// Number of the piece in the copy.
    pub number: u8,
    /// Address of the first word.
    pub address: u64,
    /// rbp in the caller; 0 if that was no address.
    pub rbp: u64,
    mask: u64,
    words: &'a [u8],
}

impl<'a> Copied<'a> {
    /// Takes a piece off the front of `bytes`. None if they do not begin with a whole one.
    pub fn take(bytes: &mut &'a [u8]) -> Option<Copied<'a>> {
        let (number, rest) = bytes.split_first()?;
        let (first, rest) = rest.split_at_checked(ADDRESS)?;
        let (rbp, rest) = rest.split_at_checked(ADDRESS)?;
        let (mask, rest) = rest.split_first_chunk()?;
        let mask = u64::from_le_bytes(*mask);
        let (words, rest) = rest.split_at_checked(mask.count_ones() as usize * ADDRESS)?;
        *bytes = rest;
        Some(Copied { number: *number, address: address(first), rbp: address(rbp), mask, words })
    }

    /// Returns the stored words, each with its address.
    pub fn words(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let places = (0..PIECE as u64).filter(move |n| self.mask >> n & 1 != 0);
        places.map(move |n| self.address.wrapping_add(8 * n)).zip(self.words.chunks(ADDRESS).map(address))
    }
}

fn address(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |address, byte| address << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_and_other_words_left_out() {
        let words = [0x5555_0000_1234, 0, 0x7fff_ffff_e000, 17, u64::MAX, 0x1_0000];
        let first = Piece::new(0, 0x7fff_ffff_d008, 0x7fff_ffff_d100, words.into_iter());
        let second = Piece::new(1, 0x7fff_ffff_d208, 3, (0..200).map(|n| 0x40_0000 + n));
        let all = [first.bytes(), second.bytes()].concat();
        let mut rest = &all[..];
        let copied = Copied::take(&mut rest).unwrap();
        assert_eq!((copied.number, copied.rbp), (0, 0x7fff_ffff_d100));
        let expected =
            [(0x7fff_ffff_d008, words[0]), (0x7fff_ffff_d018, words[2]), (0x7fff_ffff_d030, words[5])];
        assert!(copied.words().eq(expected));
        let copied = Copied::take(&mut rest).unwrap();
        assert_eq!((copied.number, copied.rbp, copied.words().count()), (1, 0, PIECE));
        assert_eq!(copied.words().last(), Some((0x7fff_ffff_d400, 0x40_003f)));
        assert!(rest.is_empty());
        // A truncated copy lacks pieces, but never has a wrong one.
        for length in 0..all.len() {
            let mut rest = &all[..length];
            let pieces = std::iter::from_fn(|| Copied::take(&mut rest)).count();
            assert_eq!(pieces, usize::from(length >= first.bytes().len()), "{length}");
        }
    }
}

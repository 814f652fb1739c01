//! Search of code for references to chosen places, without decoding it.
//!
//! An instruction that names a place relative to itself has the distance in four of its bytes,
//! behind the bytes of its opcode. The search finds all byte sequences of that form at every
//! offset, also inside instructions: a superset of what decoding would find.

use std::ops::Range;

use super::workers;
use crate::elf::image::Image;

/// Binary logarithm of the bytes that a bit of the coarse map stands for.
const GRANULE: u32 = 6;
/// Maximum number of bytes that may follow the distance in one instruction: an immediate operand of
/// 32 bits.
const BEHIND: u64 = 4;
/// Bytes of code searched at a time.
const PIECE: usize = 1 << 14;
/// Bytes of code that a worker takes at a time.
const SHARE: u64 = 1 << 22;

/// The places whose references are searched for.
pub(crate) struct Areas {
    /// Bitmap of the granules from address 0 on that overlap an area or the few bytes in front of
    /// it.
    coarse: Vec<u64>,
    /// Disjoint ranges, in order: first byte and the one behind the last.
    ranges: Vec<(u64, u64)>,
}

impl Areas {
    /// Creates areas from ranges in any order. None may end behind `end`.
    pub(crate) fn new(mut ranges: Vec<(u64, u64)>, end: u64) -> Areas {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match apart.last_mut().filter(|last| start <= last.1) {
                Some(last) => last.1 = last.1.max(end),
                None => apart.push((start, end)),
            }
        }
        let granules = if apart.is_empty() { 0 } else { (end >> GRANULE) + 1 };
        let mut coarse = vec![0; (granules / 64 + 1) as usize];
        for (start, end) in &apart {
            for granule in start.saturating_sub(BEHIND) >> GRANULE..=(end - 1) >> GRANULE {
                if let Some(word) = coarse.get_mut((granule / 64) as usize) {
                    *word |= 1u64 << (granule % 64);
                }
            }
        }
        Areas { coarse, ranges: apart }
    }

    /// Whether there are no areas.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an address lies in an area.
    pub(crate) fn contain(&self, address: u64) -> bool {
        super::tables::is_in(&self.ranges, address)
    }

    /// Whether an area overlaps these addresses.
    pub(crate) fn overlap(&self, addresses: &Range<u64>) -> bool {
        let after = self.ranges.partition_point(|(start, _)| *start < addresses.end);
        after.checked_sub(1).is_some_and(|n| self.ranges[n].1 > addresses.start)
    }

    /// Whether an address, or one of the next few bytes, may lie in an area. May err towards true.
    fn may_contain(&self, address: u64) -> bool {
        let granule = address >> GRANULE;
        self.coarse.get((granule / 64) as usize).is_some_and(|word| word >> (granule % 64) & 1 != 0)
    }
}

/// Kind of instruction that would refer to a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum By {
    /// A call.
    Call,
    /// A jump, or the beginning of a transaction (`xbegin`).
    Jump,
    /// `lea`.
    Address,
    /// Any operand in memory.
    Operand,
}

/// A possible reference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Reference {
    pub to: u64,
    /// Address of a byte of the instruction.
    pub at: u64,
    pub by: By,
}

/// Returns the possible references to these areas of code and of data, ordered by target. Those
/// that `wanted` rejects are left out.
pub(crate) fn references(
    image: &Image<'_>,
    (code, data): (&Areas, &Areas),
    wanted: impl Fn(&Reference) -> bool + Sync,
) -> Vec<Reference> {
    let mut pieces = Vec::new();
    for segment in image.segments.iter().filter(|segment| segment.executable) {
        let (mut at, end) = (segment.address.0, segment.address.0 + segment.file_size);
        while at < end {
            pieces.push((at, end.min(at + SHARE), end));
            at += SHARE;
        }
    }
    let classes = classes(!data.is_empty());
    let search = |pieces: &[(u64, u64, u64)]| {
        let mut found = Vec::new();
        for &(start, end, last) in pieces {
            let searched = Searched { start, code: image.tail(start, last - start), areas: (code, data) };
            searched.find((end - start) as usize, &classes, &wanted, &mut found);
        }
        found
    };
    let parts = workers::share(&pieces, |(start, end, _)| end - start, search);
    let mut found: Vec<Reference> = parts.into_iter().flatten().collect();
    found.sort_unstable();
    found
}

/// Table by byte value: 1 if a reference may begin with that byte.
fn classes(has_data: bool) -> [u8; 256] {
    std::array::from_fn(|byte| {
        let names = matches!(byte, 0xE8 | 0xE9 | 0x0F | 0x8D | 0xC7);
        u8::from(names || has_data && is_relative(byte as u8))
    })
}

/// Whether this ModRM byte makes an operand relative to the instruction pointer.
fn is_relative(byte: u8) -> bool {
    byte & 0xC7 == 0x05
}

struct Searched<'a> {
    start: u64,
    code: &'a [u8],
    areas: (&'a Areas, &'a Areas),
}

impl Searched<'_> {
    /// Searches for references that begin in the first `length` bytes. The bytes behind belong to
    /// the last of them.
    fn find(
        &self,
        length: usize,
        classes: &[u8; 256],
        wanted: &impl Fn(&Reference) -> bool,
        found: &mut Vec<Reference>,
    ) {
        let mut places = vec![0u32; PIECE];
        for first in (0..length.min(self.code.len())).step_by(PIECE) {
            let piece = &self.code[first..(first + PIECE).min(length).min(self.code.len())];
            // A branch here would be mispredicted at every tenth byte.
            let mut count = 0;
            for (n, byte) in piece.iter().enumerate() {
                places[count] = n as u32;
                count += usize::from(classes[usize::from(*byte)]);
            }
            for place in &places[..count] {
                self.note_reference_at(first + *place as usize, wanted, found);
            }
        }
    }

    fn note_reference_at(&self, at: usize, wanted: &impl Fn(&Reference) -> bool, found: &mut Vec<Reference>) {
        let byte = self.code[at];
        let next = self.code.get(at + 1).copied().unwrap_or(0);
        match byte {
            0xE8 => self.note(at, at + 1, By::Call, wanted, found),
            0xE9 => self.note(at, at + 1, By::Jump, wanted, found),
            0x0F if next & 0xF0 == 0x80 => self.note(at, at + 2, By::Jump, wanted, found),
            0xC7 if next == 0xF8 => {
                self.note(at, at + 2, By::Jump, wanted, found);
                self.note_short(at, wanted, found);
            }
            0x8D if is_relative(next) => self.note(at, at + 2, By::Address, wanted, found),
            _ => {}
        }
        let (_, data) = self.areas;
        if is_relative(byte) && !data.is_empty() {
            self.note(at, at + 1, By::Operand, wanted, found);
        }
    }

    /// Notes a reference whose distance is at `operand`.
    fn note(
        &self,
        at: usize,
        operand: usize,
        by: By,
        wanted: &impl Fn(&Reference) -> bool,
        found: &mut Vec<Reference>,
    ) {
        let Some(bytes) = self.code.get(operand..).and_then(|rest| rest.first_chunk::<4>()) else { return };
        let (code, data) = self.areas;
        let distance = i64::from(i32::from_le_bytes(*bytes));
        let to = (self.start + operand as u64 + 4).wrapping_add_signed(distance);
        let areas = if by == By::Operand { data } else { code };
        if !areas.may_contain(to) {
            return;
        }
        let ends: &[u64] = if by == By::Operand { &[0, 1, 2, 4] } else { &[0] };
        for to in ends.iter().map(|behind| to + behind).filter(|to| areas.contain(*to)) {
            let reference = Reference { to, at: self.start + at as u64, by };
            found.extend(Some(reference).filter(wanted));
        }
    }

    /// Notes an `xbegin` with a distance of 16 bits.
    fn note_short(&self, at: usize, wanted: &impl Fn(&Reference) -> bool, found: &mut Vec<Reference>) {
        let Some(bytes) = self.code.get(at + 2..).and_then(|rest| rest.first_chunk::<2>()) else { return };
        let distance = i64::from(i16::from_le_bytes(*bytes));
        let to = (self.start + at as u64 + 4).wrapping_add_signed(distance);
        if self.areas.0.contain(to) {
            let reference = Reference { to, at: self.start + at as u64, by: By::Jump };
            found.extend(Some(reference).filter(wanted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_their_areas_alone() {
        let areas = Areas::new(vec![(0x1040, 0x1050), (0x1048, 0x1060), (0x2000, 0x2001)], 0x3000);
        for (address, expected) in [
            (0x103F, false),
            (0x1040, true),
            (0x105F, true),
            (0x1060, false),
            (0x2000, true),
            (0x2001, false),
        ] {
            assert_eq!(areas.contain(address), expected, "{address:#x}");
            assert!(areas.may_contain(address) || !expected);
        }
        assert!(areas.overlap(&(0x105F..0x1100)) && !areas.overlap(&(0x1060..0x2000)));
        assert!(areas.may_contain(0x1FFE), "an operand that ends in front of an immediate one");
        assert!(!areas.may_contain(0x9000) && Areas::new(Vec::new(), 0x3000).is_empty());
    }
}

//! Call stubs of the linker: which word of the GOT a stub jumps through.

use super::image::Image;

pub(crate) const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// The longest stub read: `endbr64; bnd jmp *slot(%rip)`.
const LONGEST: u64 = 11;

/// The address of the word that the stub at `address` jumps through.
pub(crate) fn slot(image: &Image<'_>, address: u64) -> Option<u64> {
    slot_of(image.tail(address, LONGEST), address)
}

/// The same of a stub's bytes, of which there may be more.
pub fn slot_of(all: &[u8], address: u64) -> Option<u64> {
    let code = all.strip_prefix(ENDBR64).unwrap_or(all);
    let code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    let operand = code.strip_prefix(&[0xff, 0x25])?;
    let offset = i32::from_le_bytes(operand.get(..4)?.try_into().ok()?);
    let length = (all.len() - operand.len()) as u64 + 4;
    Some(address.wrapping_add(length).wrapping_add_signed(offset.into()))
}

/// Whether a stub begins at `address`: a jump through the GOT, or the first one of a table, which pushes first.
pub(crate) fn is_stub(image: &Image<'_>, address: u64) -> bool {
    let code = image.tail(address, LONGEST);
    let is_first = code.starts_with(&[0xff, 0x35])
        && matches!(code.get(6..9), Some([0xff, 0x25, _] | [0xf2, 0xff, 0x25]));
    is_first || slot_of(code, address).is_some()
}

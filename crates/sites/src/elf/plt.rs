//! The linker's call stubs: finds the word of the GOT through which a stub jumps.

use super::image::Image;

/// The instruction at which indirect branches may land.
pub(crate) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Bytes of the longest stub: `endbr64; bnd jmp *slot(%rip)`.
const MAX_STUB_LEN: u64 = 11;

/// Returns the address of the word through which the stub at `address` jumps.
pub(crate) fn slot(image: &Image<'_>, address: u64) -> Option<u64> {
    slot_of(image.tail(address, MAX_STUB_LEN), address)
}

/// Returns the address of the word through which a stub jumps. `all`: the stub's bytes, and perhaps
/// more; `address`: its address.
pub fn slot_of(all: &[u8], address: u64) -> Option<u64> {
    let code = all.strip_prefix(&ENDBR64).unwrap_or(all);
    let code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    let operand = code.strip_prefix(&[0xff, 0x25])?;
    let offset = i32::from_le_bytes(operand.get(..4)?.try_into().ok()?);
    let length = (all.len() - operand.len()) as u64 + 4;
    Some(address.wrapping_add(length).wrapping_add_signed(offset.into()))
}

/// Whether a stub begins at `address`: a jump through the GOT, or a table's first stub, which
/// pushes a word before its jump.
pub(crate) fn is_stub(image: &Image<'_>, address: u64) -> bool {
    let code = image.tail(address, MAX_STUB_LEN);
    let is_first = code.starts_with(&[0xff, 0x35])
        && matches!(code.get(6..9), Some([0xff, 0x25, _] | [0xf2, 0xff, 0x25]));
    is_first || slot_of(code, address).is_some()
}

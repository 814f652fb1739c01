//! Jumps in the padding in front of functions whose first instruction only has room for a short
//! jump.

use super::movable::{check_movable, ends};
use super::nops;
use crate::address::Svma;
use crate::code::decode::{MAX_INSTRUCTION_LEN, decoder};
use crate::elf::image::Image;
use crate::elf::plt::ENDBR64;
use crate::function::Function;
use crate::site::{JUMP, SiteForm};
use calltap_abi::PAGE;

/// Bytes of a short jump, which reaches 127 bytes.
const SHORT_JUMP: u64 = 2;
/// Largest distance from the end of the long jump to the function.
const FARTHEST: usize = 10;
/// Bytes in front of a function that the long jump and its distance may occupy.
pub(crate) const ROOM: u64 = JUMP + FARTHEST as u64;

/// Finds a site that puts a long jump into the padding in front of a function, and a short jump to
/// it in place of the first instruction. `address`: the function's beginning, `at`: its first
/// instruction behind an `endbr64`, `end`: its end; `before`: the function in front. The caller
/// checks that no branch lands in that instruction.
pub(crate) fn jump(
    image: &Image<'_>,
    (address, at, end): (u64, u64, u64),
    before: Option<&Function>,
) -> Option<SiteForm> {
    let code = image.tail(at, end.saturating_sub(at).min(MAX_INSTRUCTION_LEN));
    let first = decoder(code, at).decode();
    let length = first.len() as u64;
    if first.is_invalid() || !(SHORT_JUMP..JUMP).contains(&length) || check_movable(&first, length).is_err() {
        return None;
    }
    let before = before.filter(|before| before.size > 0)?;
    let start = before.address.0.checked_add(before.size)?;
    let between = image.bytes(start, address.checked_sub(start)?)?;
    let is_filler = between.iter().all(|byte| matches!(byte, 0xCC | 0x00)) || nops::all(between);
    let code = image.bytes(before.address.0, before.size)?;
    let last = decoder(code, before.address.0).into_iter().last()?;
    // A thread that falls through the padding must still execute a NOP: the jump has to lie in the
    // operand of one.
    let gap = if ends(&last) { Some(0) } else { nops::behind_operand(between) };
    let front = address.checked_sub(JUMP + gap.filter(|gap| is_filler && *gap <= FARTHEST)? as u64)?;
    let is_whole = front / PAGE == (at + SHORT_JUMP - 1) / PAGE;
    // The bytes behind a short function may belong to that function's own jump.
    let is_free = start.max(before.address.0 + JUMP + ENDBR64.len() as u64) <= front;
    if !is_whole || !is_free {
        return None;
    }
    let front_old = image.bytes(front, at - front)?.to_vec();
    let old = image.bytes(at, length)?.to_vec();
    Some(SiteForm::PaddingJump { front: Svma(front), front_old, at: Svma(at), old })
}

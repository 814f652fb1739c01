//! Jumps in the padding in front of functions, for which only a short jump gives way in the function.

use iced_x86::{Decoder, DecoderOptions};

use super::movable::{check_movable, ends};
use super::nops;
use crate::address::Svma;
use crate::elf::image::Image;
use crate::function::Function;
use crate::site::{JUMP, SiteForm};
use calltap_abi::PAGE;

/// Bytes of a jump that leads no further than 127.
const SHORT: u64 = 2;
/// How far in front of the function the longer jump may end.
const FARTHEST: usize = 10;
/// Bytes of the longest instruction.
const LONGEST: u64 = 15;
/// In so many bytes in front of a function lies all that gives way to the longer jump.
pub(crate) const ROOM: u64 = JUMP + FARTHEST as u64;

/// The place of a jump in the padding in front of a function, to which its first instruction gives way, if there is one. Something may land in that
/// instruction. The function's beginning, where its site would be, and where it ends; and the function in front.
pub(crate) fn jump(
    image: &Image<'_>,
    (address, at, end): (u64, u64, u64),
    before: Option<&Function>,
) -> Option<SiteForm> {
    let code = image.tail(at, end.saturating_sub(at).min(LONGEST));
    let first = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
    let length = first.len() as u64;
    if first.is_invalid() || !(SHORT..JUMP).contains(&length) || check_movable(&first, length).is_err() {
        return None;
    }
    let before = before.filter(|before| before.size > 0)?;
    let start = before.address.0.checked_add(before.size)?;
    let between = image.bytes(start, address.checked_sub(start)?)?;
    let is_filler = between.iter().all(|byte| matches!(byte, 0xCC | 0x00)) || nops::all(between);
    let code = image.bytes(before.address.0, before.size)?;
    let last = Decoder::with_ip(64, code, before.address.0, DecoderOptions::NONE).into_iter().last()?;
    // A thread that runs on through the padding executes a NOP still, if the jump lies in its operand.
    let gap = if ends(&last) { Some(0) } else { nops::behind_operand(between) };
    let front = address.checked_sub(JUMP + gap.filter(|gap| is_filler && *gap <= FARTHEST)? as u64)?;
    let is_whole = front / PAGE == (at + SHORT - 1) / PAGE;
    // What is behind a short function may be part of its own jump.
    let is_free = start.max(before.address.0 + JUMP + nops::ENDBR64.len() as u64) <= front;
    if !is_whole || !is_free {
        return None;
    }
    let front_old = image.bytes(front, at - front)?.to_vec();
    let old = image.bytes(at, length)?.to_vec();
    Some(SiteForm::PaddingJump { front: Svma(front), front_old, at: Svma(at), old })
}

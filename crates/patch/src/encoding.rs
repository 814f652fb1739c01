//! Jumps and calls as bytes.

use crate::address::Avma;
use crate::bytes::Bytes;
use calltap_abi::isa::{Isa, X86_64, relative as rel32};

/// A `rel32` that does not reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfReach;

pub const CALL: &[u8] = &[0xE8];
pub const JMP: &[u8] = &[0xE9];

/// `opcode rel32` at `at`, to `target`.
pub fn relative(opcode: &[u8], at: Avma, target: Avma) -> Result<Bytes, OutOfReach> {
    let next = Avma(at.0.wrapping_add(opcode.len() as u64 + 4));
    Bytes::join(&[opcode, &distance(next, target)?]).ok_or(OutOfReach)
}

/// The operand of a jump or call that is followed by the instruction at `next`.
#[inline]
pub fn distance(next: Avma, target: Avma) -> Result<[u8; 4], OutOfReach> {
    rel32(next.0, target.0).ok_or(OutOfReach)
}

/// Does a site at `at` reach `target` with a direct jump?
pub fn reaches(at: Avma, target: Avma) -> bool {
    X86_64::jump(at.0, target.0).is_some()
}

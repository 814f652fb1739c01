//! Encoding of jumps and calls.

use std::ops::Range;

use crate::address::{Avma, Bias};
use crate::bytes::Bytes;
use calltap_abi::isa::{Isa, X86_64, relative as rel32};
use calltap_sites::{Exit, POP};

/// Error of a `rel32` that cannot reach its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfReach;

pub(crate) const CALL: &[u8] = &[0xE8];
pub(crate) const JMP: &[u8] = &[0xE9];

/// Encodes `opcode rel32` at `at`, with the target `target`.
pub(crate) fn relative(opcode: &[u8], at: Avma, target: Avma) -> Result<Bytes, OutOfReach> {
    let next = Avma(at.0.wrapping_add(opcode.len() as u64 + 4));
    Bytes::join(&[opcode, &distance(next, target)?]).ok_or(OutOfReach)
}

/// Returns the operand of a jump or call that ends at `next`.
#[inline]
pub(crate) fn distance(next: Avma, target: Avma) -> Result<[u8; 4], OutOfReach> {
    rel32(next.0, target.0).ok_or(OutOfReach)
}

/// Whether a site at `at` reaches `target` with a direct jump.
pub fn reaches(at: Avma, target: Avma) -> bool {
    X86_64::jump(at.0, target.0).is_some()
}

/// Returns the addresses that an exit's jump can reach if the last byte of its displacement is
/// [given](Exit::keeps_pop).
pub fn exit_targets(exit: &Exit, bias: Bias) -> Option<Range<u64>> {
    const FREE_BITS: u32 = 24;
    let start = (bias.apply(exit.at).0 + X86_64::JUMP).checked_add(u64::from(POP) << FREE_BITS)?;
    exit.keeps_pop.then_some(start..start + (1 << FREE_BITS))
}

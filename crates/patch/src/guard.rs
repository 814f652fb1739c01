//! The guard of a Go function that does not check its stack: code in front of its stub, and in
//! front of the call at its exits, that looks whether the goroutine's stack has room for a hook.
//!
//! ```text
//!        test %r14,%r14               no goroutine
//!        jz   skip
//!        lea  -ROOM(%rsp),%r12        r12 is free where a function begins and returns
//!        cmp  (%r14),%r12             below the stack, or another one
//!        jb   skip
//!        cmp  8(%r14),%rsp
//!        ja   skip
//!        jmp  stub
//! skip:  lea  body,%r12               counts the call as lost, without any stack
//!        jmp  *hook
//! body:  (displaced instructions)
//! ```

use crate::address::Avma;
use crate::encoding::{JMP, OutOfReach, relative};
use calltap_abi::stub;
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

/// Maximum number of bytes of the guard in front of a stub.
pub const AT_ENTRY: usize = 64;
/// Maximum number of bytes of the guard at an exit, with branches of any length.
pub(crate) const AT_EXIT: usize = 3 + 8 + 3 + 4 + 3 * 6;

/// Returns the comparisons, which branch to `skip`.
pub(crate) fn instructions(skip: u64) -> Result<Vec<Instruction>, IcedError> {
    let branch = |code| Instruction::with_branch(code, skip);
    let below = MemoryOperand::with_base_displ(Register::RSP, -(stub::GO_ROOM as i64));
    let bound = |offset| MemoryOperand::with_base_displ(Register::R14, offset);
    Ok(vec![
        Instruction::with2(Code::Test_rm64_r64, Register::R14, Register::R14)?,
        branch(Code::Je_rel32_64)?,
        Instruction::with2(Code::Lea_r64_m, Register::R12, below)?,
        Instruction::with2(Code::Cmp_r64_rm64, Register::R12, bound(0))?,
        branch(Code::Jb_rel32_64)?,
        Instruction::with2(Code::Cmp_r64_rm64, Register::RSP, bound(8))?,
        branch(Code::Ja_rel32_64)?,
    ])
}

/// Encodes the guard at an entry, for the address `at`. Where it passes, it leads to `stub`, else
/// through the hook `lost` to `body`.
pub fn guard_bytes(at: Avma, stub: Avma, body: Avma, lost: Avma) -> Result<Vec<u8>, OutOfReach> {
    let mut code = Vec::with_capacity(AT_ENTRY);
    let below = (-(stub::GO_ROOM as i32)).to_le_bytes();
    code.extend([0x4D, 0x85, 0xF6, 0x74, 24]); // test %r14,%r14; jz skip
    code.extend([0x4C, 0x8D, 0xA4, 0x24]); // lea -ROOM(%rsp),%r12
    code.extend(below);
    code.extend([0x4D, 0x3B, 0x26, 0x72, 11]); // cmp (%r14),%r12; jb skip
    code.extend([0x49, 0x3B, 0x66, 8, 0x77, 5]); // cmp 8(%r14),%rsp; ja skip
    let after = |code: &Vec<u8>, bytes: u64| Avma(at.0 + code.len() as u64 + bytes);
    code.extend(relative(JMP, after(&code, 0), stub)?.iter());
    code.extend(relative(&[0x4C, 0x8D, 0x25], after(&code, 0), body)?.iter()); // skip: lea body,%r12
    code.extend([0xFF, 0x25, 0, 0, 0, 0]); // jmp *0(%rip)
    code.extend(lost.0.to_le_bytes());
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn guard_has_branches_past_the_stub() {
        let [at, stub, body, lost] = [0x40_0000, 0x80_0000, 0x40_0100, 0x7f00_1234_5678].map(Avma);
        let code = guard_bytes(at, stub, body, lost).expect("in reach");
        assert!(code.len() <= AT_ENTRY, "{}", code.len());
        let all: Vec<Instruction> =
            Decoder::with_ip(64, &code[..code.len() - 8], at.0, DecoderOptions::NONE).iter().collect();
        let jump = all.iter().position(|one| one.code() == Code::Jmp_rel32_64).expect("a jump");
        assert_eq!(all[jump].near_branch_target(), stub.0);
        let skip = all[jump + 1].ip();
        let branches = all[..jump].iter().filter(|one| one.is_jcc_short_or_near());
        assert_eq!(branches.map(|one| one.near_branch_target()).collect::<Vec<_>>(), [skip; 3]);
        assert_eq!(all[jump + 1].ip_rel_memory_address(), body.0);
        assert_eq!(all[jump + 2].ip_rel_memory_address(), at.0 + code.len() as u64 - 8);
        // Guards at exits have the same comparisons.
        let at_exit = instructions(skip).expect("instructions");
        let same = |one: &Instruction, other: &Instruction| one.mnemonic() == other.mnemonic();
        assert!(all[..jump].iter().zip(&at_exit).all(|(one, other)| same(one, other)));
        assert_eq!(jump, at_exit.len());
    }
}

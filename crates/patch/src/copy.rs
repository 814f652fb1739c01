//! The out-of-line copy of a function's first instructions, which a jump has overwritten.
//!
//! No call returns into a copy: it becomes a push of its original return address, and a jump.

use crate::address::{Avma, Bias};
use crate::guard;
use calltap_abi::stub;
use calltap_sites::{GPlace, SiteForm, ends};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, MemoryOperand, OpKind, Register,
};

/// Bytes of `push imm32`, which extends the sign, and `mov dword ptr [rsp + 4], imm32`; neither
/// changes a flag.
const PUSH: usize = 5 + 8;
/// Bytes of the longest form of a jump.
const MAX_JUMP_LEN: usize = 6;
/// Maximum number of bytes by which a short branch may grow: branches on rcx have no long form.
const GROWTH: usize = 9;
/// Bytes of `lea rsp, [rsp - 128]` and a call in front of a leaving instruction, with the call's
/// address where that is far; and of a jump behind a branch past them.
const LEAVE: usize = 5 + 6 + 8 + 6 + 8;
/// Maximum number of bytes of a load of `g`: `mov r14, [rip + distance]`, `mov r14, fs:[r14]`.
const LOAD_G: usize = 7 + 4;
/// Position of a thread's `g` below its thread pointer.
const BELOW_THREAD_POINTER: i64 = -8;
/// Bit in the address of an instruction that leaves its function behind a guard.
const GUARDED: u64 = 1 << 62;
/// Alignment of copies.
const ALIGN: usize = 16;
/// Bit in the addresses of a copy's instructions and of branches to them; no address of a process
/// has it. It distinguishes them from operands that mean an original instruction (`lea` of the
/// function itself, a call of it), which the encoder would otherwise take for places in the copy.
const LABEL: u64 = 1 << 63;

/// The reason why no copy fits at an address: an operand is out of reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uncopied(pub String);

fn decode(code: &[u8], at: Avma) -> Vec<Instruction> {
    Decoder::with_ip(64, code, at.0, DecoderOptions::NONE).into_iter().collect()
}

/// Returns the bytes to reserve for a copy with `leaves` instructions that leave the function.
pub fn copy_room(code: &[u8], leaves: usize) -> usize {
    let grown = decode(code, Avma(0)).into_iter().map(|instruction| match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => PUSH + instruction.len() + MAX_JUMP_LEN,
        FlowControl::Next | FlowControl::Return => instruction.len(),
        _ => instruction.len() + GROWTH,
    });
    let each = LOAD_G + LEAVE + guard::AT_EXIT;
    (grown.sum::<usize>() + LOAD_G + MAX_JUMP_LEN + leaves * each).next_multiple_of(ALIGN)
}

/// Instructions of a range that leave their function.
#[derive(Clone, Copy, Debug)]
pub struct Leaves<'a> {
    /// Offsets of the instructions.
    pub offsets: &'a [u8],
    /// Code that is called in front of each of them, with rsp below the red zone. It returns with
    /// rsp above.
    pub call: Avma,
    /// Whether the call is skipped where a goroutine's stack has no room for it.
    pub guarded: bool,
    /// The place from which r14 is loaded with `g` in front of the call, which expects it there;
    /// None where r14 holds it, and for calls that do not expect it.
    pub g: Option<LoadedG>,
}

/// A place from which a thread's `g` is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadedG {
    /// The word below the thread pointer.
    BelowThreadPointer,
    /// The word at the thread pointer plus the offset at this address.
    AtOffset(Avma),
}

impl LoadedG {
    /// Returns the place from which `g` is loaded for a Go function's hooks; None if r14 holds it.
    pub fn of(form: &SiteForm, bias: Bias) -> Option<LoadedG> {
        match form.goroutine()?.g {
            GPlace::R14 => None,
            GPlace::BelowThreadPointer => Some(LoadedG::BelowThreadPointer),
            GPlace::AtOffset(at) => Some(LoadedG::AtOffset(bias.apply(at))),
        }
    }

    /// Returns instructions that load r14 and change no flag.
    fn load(self) -> Result<Vec<Instruction>, Uncopied> {
        let load = |from| made(Instruction::with2(Code::Mov_r64_rm64, Register::R14, from));
        let of_thread = |base, displacement, bytes| {
            MemoryOperand::new(base, Register::None, 1, displacement, bytes, false, Register::FS)
        };
        Ok(match self {
            LoadedG::BelowThreadPointer => {
                vec![load(of_thread(Register::None, BELOW_THREAD_POINTER, 8))?]
            }
            LoadedG::AtOffset(at) => {
                let offset = MemoryOperand::with_base_displ(Register::RIP, at.0 as i64);
                vec![load(offset)?, load(of_thread(Register::R14, 0, 0))?]
            }
        })
    }
}

/// Makes a copy of `code`, whose address is `from`, for the address `to`. The copy ends with the
/// first call or other instruction that control does not fall through, or leads back to the code
/// behind the originals.
pub fn copy(code: &[u8], leaves: Leaves<'_>, from: Avma, to: Avma) -> Result<Vec<u8>, Uncopied> {
    encode(code, leaves, &[], from, to, Avma(from.0 + code.len() as u64))
}

/// Makes a copy of a function's stack check, which leads on to `then` with `g` in r14.
pub fn copy_check(
    code: &[u8],
    g: Option<LoadedG>,
    from: Avma,
    to: Avma,
    then: Avma,
) -> Result<Vec<u8>, Uncopied> {
    let stays = Leaves { offsets: &[], call: then, guarded: false, g: None };
    let load = g.map(LoadedG::load).transpose()?.unwrap_or_default();
    encode(code, stays, &load, from, to, then)
}

/// Makes a copy, which executes `last_of_all` and leads on to `then`.
fn encode(
    code: &[u8],
    leaves: Leaves<'_>,
    last_of_all: &[Instruction],
    from: Avma,
    to: Avma,
    then: Avma,
) -> Result<Vec<u8>, Uncopied> {
    let mut originals = decode(code, from);
    let last = originals.iter().position(|original| ends(original) || is_call(original));
    originals.truncate(last.map_or(originals.len(), |last| last + 1));
    let mut instructions = Vec::new();
    for original in &originals {
        let offset = original.ip() - from.0;
        let leaves_here = leaves.offsets.iter().any(|at| u64::from(*at) == offset);
        let labelled = label(original, &originals);
        match leaves_here {
            _ if is_call(original) => instructions.extend(jump_as_call(original)?),
            true => instructions.extend(leave(&labelled, &leaves)?),
            false => instructions.push(labelled),
        }
    }
    if last.is_none() {
        let behind = instructions.len();
        instructions.extend([last_of_all, &[branch(then.0)?]].concat());
        instructions[behind].set_ip(LABEL | (from.0 + code.len() as u64));
    }
    let block = InstructionBlock::new(&instructions, to.0);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE);
    Ok(encoded.map_err(|error| Uncopied(error.to_string()))?.code_buffer)
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// Gives an instruction a label for its address, and for its target if that is one of `others`.
fn label(instruction: &Instruction, others: &[Instruction]) -> Instruction {
    let mut labelled = *instruction;
    labelled.set_ip(LABEL | instruction.ip());
    let target = instruction.near_branch_target();
    if instruction.op0_kind() == OpKind::NearBranch64 && others.iter().any(|other| other.ip() == target) {
        labelled.set_near_branch64(LABEL | target);
    }
    labelled
}

fn made(instruction: Result<Instruction, iced_x86::IcedError>) -> Result<Instruction, Uncopied> {
    instruction.map_err(|error| Uncopied(error.to_string()))
}

fn branch(target: u64) -> Result<Instruction, Uncopied> {
    made(Instruction::with_branch(Code::Jmp_rel32_64, target))
}

/// Puts a call in front of an instruction that leaves its function. rsp is below the red zone for
/// the call, and no flag changes. A conditional branch is inverted, and skips the call if its
/// condition is not met.
fn leave(instruction: &Instruction, leaves: &Leaves<'_>) -> Result<Vec<Instruction>, Uncopied> {
    let below = MemoryOperand::with_base_displ(Register::RSP, -(stub::RED_ZONE as i64));
    let mut record = leaves.g.map(LoadedG::load).transpose()?.unwrap_or_default();
    record.push(made(Instruction::with2(Code::Lea_r64_m, Register::RSP, below))?);
    record.push(made(Instruction::with_branch(Code::Call_rel32_64, leaves.call.0))?);
    if instruction.flow_control() == FlowControl::ConditionalBranch {
        let mut past = *instruction;
        past.negate_condition_code();
        past.as_near_branch();
        past.set_near_branch64(instruction.next_ip());
        let away = branch(instruction.near_branch_target())?;
        return Ok([&[past][..], &record, &[away]].concat());
    }
    let mut last = *instruction;
    last.set_ip(0);
    if leaves.guarded {
        last.set_ip(instruction.ip() | GUARDED);
        let guard = guard::instructions(last.ip()).map_err(|error| Uncopied(error.to_string()))?;
        record.splice(0..0, guard);
    }
    record.push(last);
    // A branch to this instruction must arrive in front of the call.
    record[0].set_ip(instruction.ip());
    Ok(record)
}

/// Replaces a call by a push of its original return address and a jump.
fn jump_as_call(call: &Instruction) -> Result<[Instruction; 3], Uncopied> {
    let back = call.next_ip();
    let (low, high) = (back as i32, (back >> 32) as i32);
    let push = made(Instruction::with1(Code::Pushq_imm32, low))?;
    let upper_half = MemoryOperand::with_base_displ(Register::RSP, 4);
    let rest = made(Instruction::with2(Code::Mov_rm32_imm32, upper_half, high))?;
    let jump = match call.flow_control() {
        FlowControl::Call => branch(call.near_branch_target())?,
        _ => {
            let mut jump = *call;
            jump.set_code(Code::Jmp_rm64);
            jump
        }
    };
    Ok([push, rest, jump])
}

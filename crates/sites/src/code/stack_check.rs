//! The check with which most Go functions begin: whether their stack has room for their frame.

use crate::address::Svma;
use crate::code::decode::decoder;
use crate::site::GPlace;
use iced_x86::{Code, FlowControl, Instruction, MemorySize, Mnemonic, OpKind, Register};

/// Maximum number of instructions of a check, without the load of `g`.
const CHECK: usize = 6;
/// Maximum number of bytes of a check.
const CHECK_BYTES: u64 = 64;
/// Maximum number of instructions behind a failed check: they save and restore registers with
/// arguments.
const TAIL: usize = 64;
/// Offsets of the two stack guards in `runtime.g`.
const GUARDS: [u64; 2] = [0x10, 0x18];
/// Offset of a thread's `g` from its thread pointer. Newer code has `g` in a register.
const G: u64 = -8i64 as u64;

/// The stack check at a function's beginning.
pub(crate) struct Check {
    /// Address behind the check.
    pub end: u64,
    /// Target of the branch that is taken if the stack is too small.
    pub more: u64,
    /// The register that holds the address of `g`.
    pub g: Register,
    /// The place that it is loaded from; None if it is not loaded.
    pub loaded_from: Option<GPlace>,
}

impl Check {
    /// Decodes the check at a function's beginning, in any of the forms that compilers have written
    /// since Go 1.16. The frame's size decides the form: compare the stack pointer; compare it less
    /// the frame's size; or that with a test for wrap-around. Assembly, and all code of Go 1.16,
    /// first loads `g`.
    pub(crate) fn of(code: &[u8], address: u64) -> Option<Check> {
        let window = &code[..code.len().min(CHECK_BYTES as usize)];
        let mut instructions = decoder(window, address).into_iter().take(CHECK + 2);
        let mut next = instructions.next()?;
        let (mut g, mut loaded_from) = (Register::R14, None);
        if let Some(load) = GLoad::of(&next) {
            (g, loaded_from) = (load.register, Some(load.place));
            next = instructions.next()?;
            if load.has_two_steps {
                let is_load =
                    moves_to(&next, g) && next.segment_prefix() == Register::FS && next.memory_base() == g;
                next = is_load.then(|| instructions.next())??;
            }
        }
        let mut pointer = Register::RSP;
        let mut less = None;
        match next.mnemonic() {
            Mnemonic::Lea if next.memory_base() == Register::RSP && is_plain(&next) => {
                pointer = next.op0_register();
                next = instructions.next()?;
            }
            Mnemonic::Mov if next.op1_kind() == OpKind::Register && next.op1_register() == Register::RSP => {
                pointer = next.op0_register();
                let sub = instructions.next()?;
                let wraps = instructions.next()?;
                let is_subtraction = sub.mnemonic() == Mnemonic::Sub
                    && sub.op0_register() == pointer
                    && matches!(sub.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
                less = Some(wraps.near_branch_target()).filter(|_| {
                    is_subtraction && matches!(wraps.code(), Code::Jb_rel8_64 | Code::Jb_rel32_64)
                });
                less?;
                next = instructions.next()?;
            }
            _ => {}
        }
        let compares = next.mnemonic() == Mnemonic::Cmp
            && next.op0_kind() == OpKind::Register
            && next.op0_register() == pointer
            && next.op1_kind() == OpKind::Memory
            && next.memory_base() == g
            && is_plain(&next)
            && GUARDS.contains(&next.memory_displacement64());
        let branch = compares.then(|| instructions.next())??;
        let more = branch.near_branch_target();
        let fails = matches!(branch.code(), Code::Jbe_rel8_64 | Code::Jbe_rel32_64);
        let agrees = less.is_none_or(|less| less == more);
        (fails && agrees).then_some(Check { end: branch.next_ip(), more, g, loaded_from })
    }

    /// Address of the jump back to the function's beginning, after the stack has grown.
    pub(crate) fn way_back(&self, code: &[u8], address: u64) -> Option<u64> {
        let tail = code.get((self.more - address) as usize..)?;
        let jump = decoder(tail, self.more)
            .into_iter()
            .take(TAIL)
            .find(|instruction| instruction.flow_control() == FlowControl::UnconditionalBranch)?;
        (jump.near_branch_target() == address).then_some(jump.ip())
    }
}

/// Whether the memory operand has neither index nor segment.
fn is_plain(instruction: &Instruction) -> bool {
    instruction.memory_index() == Register::None && instruction.segment_prefix() == Register::None
}

fn moves_to(instruction: &Instruction, register: Register) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == register
}

/// A load of the thread's `g`.
struct GLoad {
    register: Register,
    place: GPlace,
    /// Whether this instruction loads only the offset of `g` from the thread pointer, and the next
    /// one `g`.
    has_two_steps: bool,
}

impl GLoad {
    /// Decodes the first instruction of a load.
    fn of(instruction: &Instruction) -> Option<GLoad> {
        let register = instruction.op0_register();
        if !moves_to(instruction, register) || register == Register::None {
            return None;
        }
        let is_word = instruction.memory_size() == MemorySize::UInt64;
        let (place, has_two_steps) = match instruction.op1_kind() {
            OpKind::Memory if instruction.segment_prefix() == Register::FS => {
                let is_fixed = instruction.memory_base() == Register::None;
                let is_g = is_fixed && is_word && instruction.memory_displacement64() == G;
                is_g.then_some((GPlace::BelowThreadPointer, false))?
            }
            OpKind::Memory if instruction.memory_base() == Register::RIP => {
                let at = Svma(instruction.memory_displacement64());
                is_word.then_some((GPlace::AtOffset(at), true))?
            }
            OpKind::Immediate32to64 => {
                (instruction.immediate(1) == G).then_some((GPlace::BelowThreadPointer, true))?
            }
            _ => return None,
        };
        Some(GLoad { register, place, has_two_steps })
    }
}

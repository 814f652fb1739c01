//! Addresses of labels that a function forms: decides whether such an address is only stored, or
//! another address may be computed from it.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::code::decode::{MAX_INSTRUCTION_LEN, decoder};
use crate::elf::image::Image;

/// Number of instructions behind the forming one that are followed.
const FOLLOWED: usize = 64;

/// Whether the address that the instruction at `at` forms may be used in address arithmetic, and
/// not only stored or compared. It is not if control falls through from there to an instruction
/// that overwrites the register, and every instruction between only stores or compares it.
pub(crate) fn may_be_summed(image: &Image<'_>, at: u64) -> bool {
    let code = image.tail(at, MAX_INSTRUCTION_LEN * FOLLOWED as u64);
    let mut instructions = decoder(code, at);
    let Some(register) = instructions.iter().next().map(|first| formed_in(&first)) else { return true };
    let register = match register {
        Formed::Memory => return false,
        Formed::Register(register) => register,
        Formed::Sum => return true,
    };
    let mut factory = InstructionInfoFactory::new();
    for instruction in instructions.iter().take(FOLLOWED) {
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            return true;
        }
        let is_stored = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Memory
            && instruction.op1_register() == register;
        let is_compared = instruction.mnemonic() == Mnemonic::Cmp;
        if (is_stored || is_compared) && !is_indexed_by(&instruction, register) {
            continue;
        }
        let info = factory.info(&instruction);
        let mut uses = info
            .used_registers()
            .iter()
            .filter(|used| used.register().full_register() == register)
            .peekable();
        if uses.peek().is_some() {
            // A write to a part of the register leaves the rest.
            return !uses.all(|used| used.access() == OpAccess::Write && used.register().size() >= 4);
        }
    }
    true
}

/// Destination of the address that an instruction forms.
enum Formed {
    Memory,
    Register(Register),
    /// The instruction adds the address to something.
    Sum,
}

fn formed_in(instruction: &Instruction) -> Formed {
    match (instruction.mnemonic(), instruction.op0_kind()) {
        (Mnemonic::Mov, OpKind::Memory) => Formed::Memory,
        (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
            Formed::Register(instruction.op0_register().full_register())
        }
        (Mnemonic::Mov, OpKind::Register) => Formed::Register(instruction.op0_register().full_register()),
        _ => Formed::Sum,
    }
}

/// Whether the register is part of the address of the memory operand.
fn is_indexed_by(instruction: &Instruction, register: Register) -> bool {
    [instruction.memory_base(), instruction.memory_index()].contains(&register)
}

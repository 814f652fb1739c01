//! Addresses of labels that a function forms: is one only stored, or may another address be counted from it?

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::elf::image::Image;

/// How many instructions behind the one that forms an address are followed.
const FOLLOWED: usize = 64;
/// The longest instruction.
const LONGEST: u64 = 15;

/// May a sum be made of the address that the instruction at `at` forms? Not where control runs from there to where its register is overwritten,
/// and the register is stored and compared alone.
pub(crate) fn may_be_summed(image: &Image<'_>, at: u64) -> bool {
    let code = image.tail(at, LONGEST * FOLLOWED as u64);
    let mut instructions = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
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
            // Writing a part of it leaves the rest.
            return !uses.all(|used| used.access() == OpAccess::Write && used.register().size() >= 4);
        }
    }
    true
}

/// Where an instruction puts the address that it forms.
enum Formed {
    Memory,
    Register(Register),
    /// It adds it to something.
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

/// Is the register part of the address of its operand in memory?
fn is_indexed_by(instruction: &Instruction, register: Register) -> bool {
    [instruction.memory_base(), instruction.memory_index()].contains(&register)
}

//! Instructions that can be executed out of line.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::reason::Reason;
use crate::site::JUMP;

/// Whether control never continues behind the instruction.
pub fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}

/// Checks that an instruction, which ends at offset `end` of its function, can be executed out of
/// line.
pub(crate) fn check_movable(instruction: &Instruction, end: u64) -> Result<(), Reason> {
    let is_far = |code| {
        matches!(
            code,
            Code::Retfw
                | Code::Retfd
                | Code::Retfq
                | Code::Retfw_imm16
                | Code::Retfd_imm16
                | Code::Retfq_imm16
                | Code::Iretw
                | Code::Iretd
                | Code::Iretq
                | Code::Jmp_m1616
                | Code::Jmp_m1632
                | Code::Jmp_m1664
                | Code::Call_m1616
                | Code::Call_m1632
                | Code::Call_m1664
        )
    };
    let uses_stack = instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RSP;
    match instruction.flow_control() {
        _ if instruction.is_invalid() => Err(Reason::NoInstructions),
        _ if is_far(instruction.code()) => Err(Reason::FarTransfer),
        FlowControl::Next | FlowControl::ConditionalBranch => Ok(()),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => Ok(()),
        FlowControl::Call if instruction.mnemonic() != Mnemonic::Call => Err(Reason::SystemCall),
        FlowControl::Call | FlowControl::IndirectCall if end < JUMP => {
            Err(Reason::CallReturnsInto { byte: end })
        }
        FlowControl::IndirectCall if uses_stack => Err(Reason::CallThroughStack),
        FlowControl::Call | FlowControl::IndirectCall => Ok(()),
        _ => Err(Reason::BeginsWith { instruction: format!("{:?}", instruction.mnemonic()).to_lowercase() }),
    }
}

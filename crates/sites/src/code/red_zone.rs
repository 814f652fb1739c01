//! The red zone: reads below the stack pointer at the beginning of a function, and addresses there
//! that a function takes.
//!
//! No caller passes anything there: a call writes its return address to that memory, and so does a
//! signal before the function begins. Code that reads it before it has written it continues another
//! function, which jumps there with data in its red zone. A symbol alone does not tell them apart:
//! assembly names such shared ends, too.

use super::decode::instructions;
use calltap_abi::stub;
use iced_x86::{
    FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::ops::Range;

/// Instructions that are looked at.
const MAX_INSTRUCTIONS: usize = 32;
/// The red zone: behind it, compilers touch pages to see whether the stack may grow that far.
const RED_ZONE: Range<i64> = -(stub::RED_ZONE as i64)..0;

/// Returns the address of the first instruction that reads the red zone where nothing in front of
/// it has written. Looks at the code from the entry on, up to the first change of the stack
/// pointer, the first use of an address in the stack, through which the code may write, and the
/// first jump that is always taken.
pub(crate) fn reads_unwritten(code: &[u8], address: u64) -> Option<u64> {
    // Few functions need it, and it allocates.
    let mut factory = None;
    let mut written: Vec<Range<i64>> = Vec::new();
    for instruction in instructions(code, address).take(MAX_INSTRUCTIONS) {
        if instruction.is_stack_instruction() || takes_address(&instruction) {
            return None;
        }
        let of_stack = (instruction.memory_base() == Register::RSP)
            .then(|| factory.get_or_insert_with(InstructionInfoFactory::new).info(&instruction));
        let used = of_stack.into_iter().flat_map(InstructionInfo::used_memory);
        for memory in used.filter(|memory| memory.base() == Register::RSP) {
            let from = memory.displacement() as i64;
            let bytes = from..from + memory.memory_size().size().max(1) as i64;
            match memory.access() {
                OpAccess::Read | OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    let is_written =
                        written.iter().any(|known| known.start < bytes.end && bytes.start < known.end);
                    if RED_ZONE.contains(&from) && !is_written {
                        return Some(instruction.ip());
                    }
                }
                OpAccess::Write | OpAccess::CondWrite => written.push(bytes),
                _ => {}
            }
        }
        let goes_on =
            matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
        if !goes_on {
            return None;
        }
    }
    None
}

/// Whether an instruction takes an address in the stack, or accesses it at an index.
fn takes_address(instruction: &Instruction) -> bool {
    let names_pointer = (0..instruction.op_count()).any(|n| {
        instruction.op_kind(n) == OpKind::Register
            && instruction.op_register(n).full_register() == Register::RSP
    });
    let is_indexed = instruction.memory_index() != Register::None;
    names_pointer
        || instruction.memory_base() == Register::RSP
            && (is_indexed || instruction.mnemonic() == Mnemonic::Lea)
}

/// Use of the red zone by a function.
#[derive(Default)]
pub(super) struct RedZone {
    /// Whether an address in it is taken.
    is_taken: bool,
    /// Whether the stack pointer moves.
    moves: bool,
}

impl RedZone {
    /// Notes what an instruction of the function does.
    pub(super) fn add(&mut self, instruction: &Instruction) {
        let is_of_stack = |n: u32| {
            instruction.op_kind(n) == OpKind::Register
                && instruction.op_register(n).full_register() == Register::RSP
        };
        let is_return = instruction.flow_control() == FlowControl::Return;
        self.moves |=
            instruction.is_stack_instruction() && !is_return || instruction.op_count() > 0 && is_of_stack(0);
        self.is_taken |= instruction.mnemonic() == Mnemonic::Lea
            && instruction.memory_base() == Register::RSP
            && (instruction.memory_displacement64() as i64) < 0;
    }

    /// Whether the functions to which this one jumps may be given data below the stack pointer.
    pub(super) fn is_passed_on(&self) -> bool {
        self.is_taken && !self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::reads_unwritten;

    #[test]
    fn only_memory_that_was_not_written_counts() {
        let cases: &[(&[u8], Option<u64>)] = &[
            // mov rax, [rsp-8]; ret
            (b"\x48\x8b\x44\x24\xf8\xc3", Some(0)),
            // mov [rsp-8], edi; mov rax, [rsp-8]; ret
            (b"\x89\x7c\x24\xf8\x48\x8b\x44\x24\xf8\xc3", None),
            // mov [rsp-8], rdi; add rax, [rsp-16]
            (b"\x48\x89\x7c\x24\xf8\x48\x03\x44\x24\xf0", Some(5)),
            // xor [rsp-4], edi: reads it first
            (b"\x31\x7c\x24\xfc", Some(0)),
            // mov rax, [rsp+8]
            (b"\x48\x8b\x44\x24\x08", None),
            // prefetcht0 [rsp-8]
            (b"\x0f\x18\x4c\x24\xf8", None),
            // lea rax, [rsp-16]; mov [rax+8], rdi; mov rax, [rsp-8]
            (b"\x48\x8d\x44\x24\xf0\x48\x89\x78\x08\x48\x8b\x44\x24\xf8", None),
            // mov rax, rsp; mov rax, [rsp-8]
            (b"\x48\x89\xe0\x48\x8b\x44\x24\xf8", None),
            // mov [rsp+rax*8-64], rdi; mov rax, [rsp-8]
            (b"\x48\x89\x7c\xc4\xc0\x48\x8b\x44\x24\xf8", None),
            // or qword [rsp-0x1020], 0: a probe of the stack
            (b"\x48\x83\x8c\x24\xe0\xef\xff\xff\x00", None),
            // push rbx; mov rax, [rsp-8]; and sub rsp, 8; mov rax, [rsp-8]
            (b"\x53\x48\x8b\x44\x24\xf8", None),
            (b"\x48\x83\xec\x08\x48\x8b\x44\x24\xf8", None),
            // test edi, edi; je +5; mov rax, [rsp-8]; and jmp +0; mov rax, [rsp-8]
            (b"\x85\xff\x74\x05\x48\x8b\x44\x24\xf8", Some(4)),
            (b"\xeb\x00\x48\x8b\x44\x24\xf8", None),
        ];
        for (code, expected) in cases {
            assert_eq!(reads_unwritten(code, 0), *expected, "{code:x?}");
        }
    }
}

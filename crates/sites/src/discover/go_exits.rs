//! Conditions for overwriting an exit of a Go function with a jump.
//!
//! Returns are seen as in other functions whose exits are rewritten, but the displaced instructions
//! must fulfil more:
//!
//! - **No goroutine resumes behind the first byte of the jump.** The resume address of a
//!   descheduled goroutine is in memory that calltap does not search, and a signal may have
//!   preempted it at any instruction. So no instruction may begin within the jump: the first one is
//!   as long as the jump, or it is a return with padding behind it. The bytes behind the jump stay.
//! - **`pop %rbp` stays.** Since Go 1.21 most functions end with `add $n,%rsp` of four bytes,
//!   `pop %rbp` and `ret`. The fifth byte of a jump in place of the `add` is the `pop`, `5d`, so
//!   the jump leads between 0x5d000000 and 0x5dffffff bytes upwards, and the out-of-line copy has
//!   to be there.
//! - **r14 holds the goroutine** when the function returns: compiled code keeps it there. In Go
//!   1.16 the register is free there, and the out-of-line copy loads it.
//! - **No instruction can fault**, as the runtime turns a fault into a panic by its place in the
//!   function: they access only the stack, and do not divide.
//! - **No instruction calls**: a call returns to an address that the runtime finds in its tables.
//!
//! While a thread executes an out-of-line copy, its program counter is in none of the runtime's
//! tables. The runtime takes it for foreign code, which it neither preempts nor unwinds, as in a
//! hook.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::code::decode::decoder;
use crate::site::{JUMP, POP};

/// The function that the runtime calls when a goroutine's first function has returned. It never
/// returns.
pub(crate) const LAST: &str = "runtime.goexit1";

/// Whether a function that begins with these instructions keeps its goroutine in r14, as compiled
/// code does. Assembly first loads it into r14, and may use the register for another value behind
/// the check.
pub(crate) fn keeps_g(check: &[u8]) -> bool {
    let first = decoder(check, 0).decode();
    !(first.mnemonic() == Mnemonic::Mov && first.op0_register() == Register::R14)
}

/// Room for a jump at an exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// The jump fits into the first instruction, or into a return with padding.
    Jump,
    /// The jump fits into the first instruction and the `pop` behind it, which is the jump's last
    /// byte.
    BeforePop,
}

/// Returns the room for a jump at a return with these instructions in front, if they may be
/// displaced.
pub(crate) fn room(code: &[u8]) -> Option<Room> {
    let instructions: Vec<Instruction> = decoder(code, 0).into_iter().collect();
    let keeps_pop = || code.get(JUMP as usize - 1) == Some(&POP) && instructions[1].len() == 1;
    let room = match instructions.first().map(|first| first.len() as u64) {
        None => Room::Jump,
        Some(length) if length >= JUMP => Room::Jump,
        Some(length) if length == JUMP - 1 && keeps_pop() => Room::BeforePop,
        Some(_) => return None,
    };
    instructions.iter().all(is_harmless).then_some(room)
}

/// Whether an instruction falls through to the next one and cannot fault.
pub(crate) fn is_harmless(instruction: &Instruction) -> bool {
    let accesses =
        instruction.op_kinds().any(|kind| kind == OpKind::Memory) && instruction.mnemonic() != Mnemonic::Lea;
    let on_stack = instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_invalid()
        && !instruction.is_string_instruction()
        && !divides
        && (!accesses || on_stack)
}

#[cfg(test)]
mod tests {
    use super::{Room, keeps_g, room};

    /// Checks the room at instructions in front of a return.
    fn check(code: &[u8], expected: Option<Room>) {
        assert_eq!(room(code), expected, "{code:x?}");
    }

    #[test]
    fn jump_ends_at_or_behind_its_first_instruction() {
        check(b"", Some(Room::Jump));
        check(b"\x48\x8b\x6c\x24\x18\x48\x83\xc4\x20", Some(Room::Jump)); // mov 0x18(%rsp),%rbp; add $0x20,%rsp
        check(b"\x48\x81\xc4\x88\0\0\0\x5d", Some(Room::Jump)); // add $0x88,%rsp; pop %rbp
        check(b"\x31\xc0\x48\x8b\x6c\x24\x18", None);
    }

    #[test]
    fn a_goroutine_may_come_back_to_a_pop() {
        check(b"\x48\x83\xc4\x20\x5d", Some(Room::BeforePop)); // add $0x20,%rsp; pop %rbp
        check(b"\x48\x83\xc4\x20\x5b", None); // pop %rbx
        check(b"\x48\x83\xc4\x20", None);
        check(b"\x48\x89\xd0\x5d", None); // mov %rdx,%rax; pop %rbp
        check(b"\x48\x83\xc4\x20\x5d\x90", Some(Room::BeforePop)); // and a nop
        check(b"\x48\x83\xc4\x20\x41\x5d", None); // pop %r13
        check(b"\x48\x8b\x48\x08\x5d", None); // mov 8(%rax),%rcx, which can fault
    }

    #[test]
    fn assembly_loading_g_into_r14_does_not_keep_g() {
        assert!(keeps_g(b"\x49\x3b\x66\x10\x76\x20"));
        assert!(keeps_g(b"\x4c\x8d\x64\x24\xf8\x4d\x3b\x66\x10\x76\x20"));
        assert!(!keeps_g(b"\x64\x4c\x8b\x34\x25\xf8\xff\xff\xff\x49\x3b\x66\x10"));
        assert!(!keeps_g(b"\x4c\x8b\x35\0\0\0\0\x64\x4d\x8b\x36\x49\x3b\x66\x10"));
    }

    #[test]
    fn faulting_and_branching_instructions_are_not_moved() {
        check(b"\x48\x8d\x05\0\0\0\0\x48\x83\xc4\x20", Some(Room::Jump)); // lea 0(%rip),%rax
        check(b"\x48\x8b\x80\x88\0\0\0\x48\x83\xc4\x20", None); // mov 0x88(%rax),%rax
        check(b"\xe8\0\0\0\0\x48\x83\xc4\x20", None); // call
        check(b"\xb8\x07\0\0\0\x48\xf7\xf9", None); // mov $7,%eax; idiv %rcx
        check(b"\xb8\x07\0\0\0\x75\0", None); // a branch
    }
}

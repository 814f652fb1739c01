//! What may give way at an exit of a Go function.
//!
//! Its returns are seen like those of other functions whose exits are rewritten, but more has to hold of the instructions that give way:
//!
//! - **No goroutine comes back behind the first byte of the jump.** A goroutine that is on no thread has its place in memory that calltap does
//!   not search: a signal may have preempted it at any instruction. So no instruction that changes begins within the jump, behind its first byte: the first one is
//!   as long as the jump, or it is a return with padding behind it. What stands behind the jump stays as it is.
//! - **A frame pointer stays.** Since Go 1.21 most functions end with `add $n,%rsp` of four bytes, `pop %rbp` and `ret`. A jump in the place of the `add` has the
//!   `pop`, `5d`, for its fifth byte, so that it leads to a place between 0x5d000000 and 0x5dffffff bytes further up, where the copy has to be.
//! - **r14 has the goroutine** where the function returns: what a compiler has made keeps it there.
//! - **None can fault**, as the runtime makes a panic of a fault by the place in the function: only the stack is accessed, and nothing is divided.
//! - **None calls**: a call returns to where the runtime knows the frame.
//!
//! While a thread runs a copy, its place is in none of the runtime's tables. The runtime then takes it for code that is not Go's, which it neither preempts
//! nor unwinds, as in a hook.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::site::{JUMP, POP};

/// What the runtime calls when a goroutine is over, in the place of its first function. It never returns.
pub(super) const LAST: &str = "runtime.goexit1";

/// Does a function that begins with these instructions find its goroutine in r14, as compilers have it, so that r14 has it when the function returns?
/// Assembly loads it there first, and may use the register for something else behind the check.
pub(super) fn keeps_g(check: &[u8]) -> bool {
    let first = Decoder::with_ip(64, check, 0, DecoderOptions::NONE).decode();
    !(first.mnemonic() == Mnemonic::Mov && first.op0_register() == Register::R14)
}

/// Where a jump has room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// In its first instruction, or in padding.
    Jump,
    /// In its first instruction but for its last byte, which has to be the `pop` that follows.
    BeforePop,
}

/// How these instructions may give way together with the return behind them, if they may.
pub(super) fn room(code: &[u8]) -> Option<Room> {
    let instructions: Vec<Instruction> =
        Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect();
    let keeps_pop = || code.get(JUMP as usize - 1) == Some(&POP) && instructions[1].len() == 1;
    let room = match instructions.first().map(|first| first.len() as u64) {
        None => Room::Jump,
        Some(length) if length >= JUMP => Room::Jump,
        Some(length) if length == JUMP - 1 && keeps_pop() => Room::BeforePop,
        Some(_) => return None,
    };
    instructions.iter().all(is_harmless).then_some(room)
}

/// Does it go on behind itself, and cannot fault?
fn is_harmless(instruction: &Instruction) -> bool {
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

    /// Instructions in front of a return.
    fn check(code: &[u8], expected: Option<Room>) {
        assert_eq!(room(code), expected, "{code:x?}");
    }

    #[test]
    fn a_jump_ends_with_its_first_instruction_or_behind_it() {
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
    fn assembly_that_loads_its_goroutine_may_lose_it() {
        assert!(keeps_g(b"\x49\x3b\x66\x10\x76\x20"));
        assert!(keeps_g(b"\x4c\x8d\x64\x24\xf8\x4d\x3b\x66\x10\x76\x20"));
        assert!(!keeps_g(b"\x64\x4c\x8b\x34\x25\xf8\xff\xff\xff\x49\x3b\x66\x10"));
        assert!(!keeps_g(b"\x4c\x8b\x35\0\0\0\0\x64\x4d\x8b\x36\x49\x3b\x66\x10"));
    }

    #[test]
    fn what_can_fault_or_leads_elsewhere_stays() {
        check(b"\x48\x8d\x05\0\0\0\0\x48\x83\xc4\x20", Some(Room::Jump)); // lea 0(%rip),%rax
        check(b"\x48\x8b\x80\x88\0\0\0\x48\x83\xc4\x20", None); // mov 0x88(%rax),%rax
        check(b"\xe8\0\0\0\0\x48\x83\xc4\x20", None); // call
        check(b"\xb8\x07\0\0\0\x48\xf7\xf9", None); // mov $7,%eax; idiv %rcx
        check(b"\xb8\x07\0\0\0\x75\0", None); // a branch
    }
}

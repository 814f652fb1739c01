//! What gave way to a jump does the same from its copy, wherever that is within reach.

use calltap_patch::{Avma, copy, copy_room};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use proptest::prelude::*;

fn decode(code: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, code, at, DecoderOptions::NONE).into_iter().collect()
}

/// Where an instruction leads, or what memory it means, as an address.
fn means(instruction: &Instruction) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
            Some(instruction.near_branch_target())
        }
        _ if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
        _ => None,
    }
}

/// First instructions of functions, and how many of them a copy repeats one by one.
const FUNCTIONS: [(&[u8], usize); 9] = [
    (&[0x55, 0x48, 0x89, 0xE5, 0x41, 0x57], 3), // push rbp; mov rbp, rsp; push r15
    (&[0x48, 0x8D, 0x05, 0x10, 0x20, 0, 0], 1), // lea rax, [rip + 0x2010]
    (&[0x83, 0xFF, 0x01, 0x7E, 0x2B], 2),       // cmp edi, 1; jle +43
    (&[0x85, 0xFF, 0x0F, 0x84, 0x10, 1, 0, 0], 2), // test edi, edi; je +272
    (&[0xE9, 0x10, 0x20, 0, 0], 1),             // jmp
    (&[0x31, 0xC0, 0xC3, 0xCC, 0xCC], 2),       // xor eax, eax; ret; padding
    (&[0xFF, 0x25, 0x10, 0x20, 0, 0], 1),       // jmp [rip + 0x2010]
    (&[0x50, 0xE8, 0x10, 0x20, 0, 0], 1),       // push rax; call
    (&[0x48, 0x83, 0xEC, 8, 0xFF, 0x15, 0x10, 0x20, 0, 0], 1), // sub rsp, 8; call [rip + 0x2010]
];

fn check(code: &[u8], alike: usize, from: u64, to: u64) {
    let made = copy(code, Avma(from), Avma(to)).expect("within reach");
    assert!(
        made.len() <= copy_room(code),
        "{code:02x?}: {} bytes, set aside {}",
        made.len(),
        copy_room(code)
    );
    let (old, new) = (decode(code, from), decode(&made, to));
    for (old, new) in old.iter().zip(&new).take(alike) {
        assert_eq!((old.mnemonic(), means(old)), (new.mnemonic(), means(new)), "{code:02x?}");
        assert_eq!((old.op0_register(), old.op1_register()), (new.op0_register(), new.op1_register()));
    }
    let rest = &new[alike..];
    match old[alike - 1].flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => {
            assert!(rest.is_empty())
        }
        _ => match old.get(alike).filter(|call| call.is_call_near() || call.is_call_near_indirect()) {
            Some(call) => {
                // What a call pushes, then where it leads.
                let [push, upper, jump] = rest else { panic!("{code:02x?}: {rest:?}") };
                assert_eq!((push.code(), upper.code()), (Code::Pushq_imm32, Code::Mov_rm32_imm32));
                assert_eq!(
                    u64::from(upper.immediate32()) << 32 | push.immediate(0) & 0xffff_ffff,
                    from + code.len() as u64
                );
                let target = means(call).or_else(|| Some(call.ip_rel_memory_address()));
                assert_eq!(means(jump).or_else(|| Some(jump.ip_rel_memory_address())), target);
            }
            None => {
                let [back] = rest else { panic!("{code:02x?}: {rest:?}") };
                assert_eq!(means(back), Some(from + code.len() as u64), "{code:02x?}");
            }
        },
    }
}

proptest! {
    #[test]
    fn a_copy_does_what_the_original_did(
        n in 0..FUNCTIONS.len(),
        from in 0x1_0000_0000u64..0x7fff_0000_0000,
        distance in -0x7ff0_0000i64..0x7ff0_0000,
    ) {
        let (code, alike) = FUNCTIONS[n];
        check(code, alike, from, from.wrapping_add_signed(distance));
    }
}

#[test]
fn what_refers_to_something_out_of_reach_has_no_copy() {
    let (code, _) = FUNCTIONS[1];
    assert!(copy(code, Avma(0x5555_0000_0000), Avma(0x7fff_0000_0000)).is_err());
}

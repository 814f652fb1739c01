//! Tests that an out-of-line copy does what the original did, at any address within reach.

use calltap_patch::{Avma, Leaves, LoadedG, copy, copy_check, copy_room};
use iced_x86::{Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Register};
use proptest::prelude::*;

fn decode(code: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, code, at, DecoderOptions::NONE).into_iter().collect()
}

/// Address to which an instruction leads, or of its memory operand.
fn means(instruction: &Instruction) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
            Some(instruction.near_branch_target())
        }
        _ if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
        _ => None,
    }
}

/// Function prologues, each with the number of instructions that a copy repeats unchanged.
const FUNCTIONS: [(&[u8], usize); 12] = [
    (&[0x55, 0x48, 0x89, 0xE5, 0x41, 0x57], 3), // push rbp; mov rbp, rsp; push r15
    (&[0x48, 0x8D, 0x05, 0x10, 0x20, 0, 0], 1), // lea rax, [rip + 0x2010]
    (&[0x83, 0xFF, 0x01, 0x7E, 0x2B], 2),       // cmp edi, 1; jle +43
    (&[0x85, 0xFF, 0x0F, 0x84, 0x10, 1, 0, 0], 2), // test edi, edi; je +272
    (&[0xE9, 0x10, 0x20, 0, 0], 1),             // jmp
    (&[0x31, 0xC0, 0xC3, 0xCC, 0xCC], 2),       // xor eax, eax; ret; padding
    (&[0xFF, 0x25, 0x10, 0x20, 0, 0], 1),       // jmp [rip + 0x2010]
    (&[0x50, 0xE8, 0x10, 0x20, 0, 0], 1),       // push rax; call
    (&[0x48, 0x83, 0xEC, 8, 0xFF, 0x15, 0x10, 0x20, 0, 0], 1), // sub rsp, 8; call [rip + 0x2010]
    // The operand is the original function, not its copy (Python's subtype_traverse compares the
    // address with a type's).
    (&[0x41, 0x57, 0x48, 0x8D, 0x05, 0xF7, 0xFF, 0xFF, 0xFF], 2), // push r15; lea rax, [rip - 9]
    (&[0x50, 0x48, 0x3B, 0x05, 0xF9, 0xFF, 0xFF, 0xFF], 2),       // push rax; cmp rax, [rip - 7]
    (&[0x50, 0xE8, 0xFA, 0xFF, 0xFF, 0xFF], 1),                   // push rax; call to its beginning
];

/// Code without an instruction that leaves its function.
const STAYS: Leaves<'static> = Leaves { offsets: &[], call: Avma(0), guarded: false, g: None };

fn check(code: &[u8], alike: usize, from: u64, to: u64) {
    let made = copy(code, STAYS, Avma(from), Avma(to)).expect("within reach");
    assert!(
        made.len() <= copy_room(code, 0),
        "{code:02x?}: {} bytes, set aside {}",
        made.len(),
        copy_room(code, 0)
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
                // A call becomes a push of its return address, and a jump to its target.
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
    fn copy_behaves_as_original(
        n in 0..FUNCTIONS.len(),
        from in 0x1_0000_0000u64..0x7fff_0000_0000,
        distance in -0x7ff0_0000i64..0x7ff0_0000,
    ) {
        let (code, alike) = FUNCTIONS[n];
        check(code, alike, from, from.wrapping_add_signed(distance));
    }
}

#[test]
fn code_with_unreachable_operands_has_no_copy() {
    let (code, _) = FUNCTIONS[1];
    assert!(copy(code, STAYS, Avma(0x5555_0000_0000), Avma(0x7fff_0000_0000)).is_err());
}

/// Executes a copy. Returns its calls, the jump or return by which it leaves, and the other
/// instructions; `is_met`: whether conditions are met.
fn run(made: &[u8], at: u64, is_met: bool) -> Vec<String> {
    let (mut did, mut pc) = (Vec::new(), at);
    loop {
        let rest = pc.checked_sub(at).and_then(|offset| made.get(offset as usize..));
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            did.push(format!("at {pc:#x}"));
            return did;
        };
        let instruction = Decoder::with_ip(64, rest, pc, DecoderOptions::NONE).decode();
        pc = instruction.next_ip();
        let pointer = || {
            let place = (instruction.ip_rel_memory_address() - at) as usize;
            u64::from_le_bytes(made[place..place + 8].try_into().unwrap())
        };
        match instruction.flow_control() {
            FlowControl::Call => did.push(format!("call {:#x}", instruction.near_branch_target())),
            FlowControl::IndirectCall => did.push(format!("call {:#x}", pointer())),
            FlowControl::UnconditionalBranch => pc = instruction.near_branch_target(),
            FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => pc = pointer(),
            FlowControl::IndirectBranch => {
                did.push(format!("jmp {:?}", instruction.op0_register()));
                return did;
            }
            // A condition is `e` or its opposite.
            FlowControl::ConditionalBranch => {
                if (instruction.condition_code() == ConditionCode::e) == is_met {
                    pc = instruction.near_branch_target();
                }
            }
            FlowControl::Return => {
                did.push("ret".to_owned());
                return did;
            }
            _ => did.push(format!("{:?}", instruction.mnemonic())),
        }
    }
}

fn check_exit(code: &[u8], offsets: &[u8], is_met: bool, expected: &[&str]) {
    let from = Avma(0x5555_0000_1000);
    for (to, call) in [(0x5555_4000_0000, 0x5555_4100_000d), (0x5554_f000_0000, 0x7f00_0000_000d)] {
        let leaves = Leaves { offsets, call: Avma(call), guarded: false, g: None };
        let made = copy(code, leaves, from, Avma(to)).expect("within reach");
        assert!(made.len() <= copy_room(code, offsets.len()), "{code:02x?}: {} bytes", made.len());
        let leave = ["Lea".to_owned(), format!("call {call:#x}")];
        let expected: Vec<String> = expected
            .iter()
            .flat_map(|did| match *did {
                "leave" => leave.to_vec(),
                did => vec![did.to_owned()],
            })
            .collect();
        assert_eq!(run(&made, to, is_met), expected, "{code:02x?}");
    }
}

#[test]
fn an_exit_from_a_copy_is_recorded_first() {
    // rsp is lowered below the red zone, which may be in use if the place is not an exit after all.
    let made = copy(
        &[0xC3],
        Leaves { offsets: &[0], call: Avma(0x2000), guarded: false, g: None },
        Avma(0x1000),
        Avma(0x1800),
    );
    assert_eq!(made.expect("within reach")[..5], [0x48, 0x8D, 0x64, 0x24, 0x80]);
    // pop rbx; pop rbp; pop r12; ret
    check_exit(&[0x5B, 0x5D, 0x41, 0x5C, 0xC3], &[4], false, &["Pop", "Pop", "Pop", "leave", "ret"]);
    // ret; padding
    check_exit(&[0xC3, 0x0F, 0x1F, 0x40, 0], &[0], false, &["leave", "ret"]);
    // A jump to another function: direct, through a register, or conditional.
    check_exit(&[0xE9, 0xFB, 0x0F, 0, 0], &[0], false, &["leave", "at 0x555500002000"]);
    check_exit(&[0x48, 0x83, 0xC4, 8, 0xFF, 0xE0], &[4], false, &["Add", "leave", "jmp RAX"]);
    check_exit(&[0x0F, 0x84, 0xFA, 0x0F, 0, 0], &[0], true, &["leave", "at 0x555500002000"]);
    check_exit(&[0x0F, 0x84, 0xFA, 0x0F, 0, 0], &[0], false, &["at 0x555500001006"]);
    // A conditional jump out of the function, and otherwise a return.
    let both = [0x0F, 0x85, 0xFA, 0x0F, 0, 0, 0x5B, 0xC3];
    check_exit(&both, &[0, 7], false, &["leave", "at 0x555500002000"]);
    check_exit(&both, &[0, 7], true, &["Pop", "leave", "ret"]);
    // A branch to an exit within the copy leads to the call in front of it.
    let skips = [0x74, 0x01, 0x90, 0xC3, 0xCC];
    check_exit(&skips, &[3], true, &["leave", "ret"]);
    check_exit(&skips, &[3], false, &["Nop", "leave", "ret"]);
}

#[test]
fn a_guarded_exit_leaves_also_where_its_stack_has_no_room() {
    let leaves = Leaves { offsets: &[0], call: Avma(0x2000), guarded: true, g: None };
    let made = copy(&[0xC3], leaves, Avma(0x1000), Avma(0x1800)).expect("in reach");
    let all: Vec<_> = Decoder::with_ip(64, &made, 0x1800, DecoderOptions::NONE).into_iter().collect();
    let last = all.last().expect("instructions");
    assert_eq!(last.code(), Code::Retnq, "{all:?}");
    let branches = all.iter().filter(|one| one.is_jcc_short_or_near()).map(|one| one.near_branch_target());
    assert_eq!(branches.collect::<Vec<_>>(), [last.ip(); 3]);
    let calls = all.iter().filter(|one| one.code() == Code::Call_rel32_64);
    assert_eq!(calls.map(|call| call.near_branch_target()).collect::<Vec<_>>(), [0x2000]);
}

/// Checks that an instruction loads r14 from this operand.
fn loads(instruction: &Instruction, segment: Register, base: Register, displacement: u64) {
    assert_eq!((instruction.code(), instruction.op0_register()), (Code::Mov_r64_rm64, Register::R14));
    let operand =
        (instruction.segment_prefix(), instruction.memory_base(), instruction.memory_displacement64());
    assert_eq!(operand, (segment, base, displacement));
}

#[test]
fn r14_holds_g_in_front_of_hooks() {
    let offset = 0x5555_0000_3000;
    let (from, to) = (Avma(0x5555_0000_1000), Avma(0x5555_4000_0000));
    for (g, steps) in [(LoadedG::BelowThreadPointer, 1), (LoadedG::AtOffset(Avma(offset)), 2)] {
        // ret, with padding
        let leaves = Leaves { offsets: &[0], call: Avma(0x5555_4100_000d), guarded: false, g: Some(g) };
        let made = copy(&[0xC3, 0xCC, 0xCC, 0xCC, 0xCC], leaves, from, to).expect("within reach");
        assert!(made.len() <= copy_room(&[0xC3], 1), "{} bytes", made.len());
        match (g, &decode(&made, to.0)[..]) {
            (LoadedG::BelowThreadPointer, [load, ..]) => {
                loads(load, Register::FS, Register::None, -8i64 as u64);
                assert!(!made.starts_with(&[0x67]), "the address has 64 bits");
            }
            (LoadedG::AtOffset(_), [first, second, ..]) => {
                loads(first, Register::None, Register::RIP, offset);
                loads(second, Register::FS, Register::R14, 0);
            }
            (_, all) => panic!("{all:?}"),
        }
        let did = [vec!["Mov"; steps], vec!["Lea", "call 0x55554100000d", "ret"]].concat();
        assert_eq!(run(&made, to.0, false), did);
        // The hook runs where the check passes; else control goes to where the stack grows.
        let check = b"\x64\x48\x8b\x0c\x25\xf8\xff\xff\xff\x48\x3b\x61\x10\x74\x20";
        let made = copy_check(check, Some(g), from, to, Avma(0x5555_4200_0000)).expect("within reach");
        assert!(made.len() <= copy_room(check, 0), "{} bytes", made.len());
        let passed = [vec!["Mov", "Cmp"], vec!["Mov"; steps], vec!["at 0x555542000000"]].concat();
        assert_eq!(run(&made, to.0, false), passed);
        assert_eq!(run(&made, to.0, true), ["Mov", "Cmp", "at 0x55550000102f"]);
    }
}

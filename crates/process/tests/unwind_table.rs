//! The unwind table of the agent: at every instruction, the canonical frame address is as far above
//! the stack pointer as the instructions before have moved it.

use calltap_process::agent::{ATTACHED, Image, PLACED, PRELOADED};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, FrameDescriptionEntry, NativeEndian, UnwindContext, UnwindSection,
};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};
use std::collections::{BTreeMap, BTreeSet};

type Slice = gimli::EndianSlice<'static, NativeEndian>;

/// Returns how far an instruction moves the stack pointer down. None if it sets it otherwise.
fn moves(instruction: &Instruction) -> Option<i64> {
    let is_rsp = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Call => Some(0),
        Mnemonic::Sub if is_rsp => Some(instruction.immediate(1) as i64),
        Mnemonic::Add if is_rsp => Some(-(instruction.immediate(1) as i64)),
        Mnemonic::Lea if is_rsp && instruction.memory_base() == Register::RSP => {
            Some(-(instruction.memory_displacement64() as i64))
        }
        Mnemonic::Pop | Mnemonic::Xchg | Mnemonic::Mov | Mnemonic::Lea if is_rsp => None,
        _ => Some(-i64::from(instruction.stack_pointer_increment())),
    }
}

/// Returns the distances of the canonical frame address from the stack pointer, by instruction.
fn rows(
    table: &EhFrame<Slice>,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Slice>,
) -> BTreeMap<u64, Option<i64>> {
    let mut context = UnwindContext::new();
    let mut table = entry.rows(table, bases, &mut context).expect("rows");
    let mut rows = BTreeMap::new();
    while let Some(row) = table.next_row().expect("a row") {
        let distance = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } if *register == gimli::X86_64::RSP => {
                Some(*offset)
            }
            _ => None,
        };
        rows.insert(row.start_address(), distance);
    }
    rows
}

/// Follows the instructions of a function from its entry. Returns those at which the table is
/// wrong, and how many were compared.
fn wrong(
    file: &ElfFile64<'static, LittleEndian>,
    entry: &FrameDescriptionEntry<Slice>,
    rows: &BTreeMap<u64, Option<i64>>,
) -> (Vec<String>, usize) {
    let (start, end) = (entry.initial_address(), entry.end_address());
    let row = |at: u64| rows.range(..=at).next_back().and_then(|(_, distance)| *distance);
    let section = file
        .sections()
        .find(|section| (section.address()..section.address() + section.size()).contains(&start));
    let code = section.and_then(|section| section.data_range(start, end - start).ok().flatten());
    let (Some(code), Some(at_entry)) = (code, row(start)) else { return (Vec::new(), 0) };
    let (mut wrong, mut seen, mut open) = (Vec::new(), BTreeSet::new(), vec![(start, 0)]);
    while let Some((at, depth)) = open.pop() {
        if !(start..end).contains(&at) || !seen.insert(at) {
            continue;
        }
        if let Some(distance) = row(at).filter(|distance| *distance != at_entry + depth) {
            wrong.push(format!("{at:#x} of {start:#x}: rsp+{distance}, not rsp+{}", at_entry + depth));
        }
        let mut decoder = Decoder::with_ip(64, &code[(at - start) as usize..], at, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let Some(moved) = moves(&instruction) else { continue };
        let flow = instruction.flow_control();
        if matches!(flow, FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch) {
            open.push((instruction.near_branch_target(), depth));
        }
        let continues = matches!(
            flow,
            FlowControl::Next
                | FlowControl::ConditionalBranch
                | FlowControl::Call
                | FlowControl::IndirectCall
        );
        if continues {
            open.push((instruction.next_ip(), depth + moved));
        }
    }
    (wrong, seen.len())
}

fn check(image: &'static Image) {
    let file: ElfFile64<'static, LittleEndian> = ElfFile64::parse(image.bytes()).expect("an ELF file");
    let section = file.section_by_name(".eh_frame").expect("the table");
    let table = EhFrame::new(section.data().expect("its bytes"), NativeEndian);
    let text = file.section_by_name(".text").expect("code").address();
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
    let (mut all, mut compared, mut entries) = (Vec::new(), 0, table.entries(&bases));
    while let Some(entry) = entries.next().expect("an entry") {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let entry = partial.parse(EhFrame::cie_from_offset).expect("an entry of a function");
        let (wrong, seen) = wrong(&file, &entry, &rows(&table, &bases, &entry));
        all.extend(wrong);
        compared += seen;
    }
    assert!(compared > 10_000, "{compared} instructions");
    assert!(all.is_empty(), "{} of {compared} instructions:\n{}", all.len(), all.join("\n"));
}

#[test]
fn the_unwind_table_follows_the_stack_pointer_at_every_instruction() {
    [&PRELOADED, &ATTACHED, &PLACED].into_iter().for_each(check);
}

//! Return addresses according to the unwinding information: where each instruction's frame has it,
//! and which functions read it.
//!
//! Some functions read their own return address: setjmp stores it, dlsym identifies its caller by
//! it. Behind a return stub they would find the stub's address instead.
//!
//! `stack_depth.rs` handles functions without unwinding information.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, Pointer, UnwindContext,
    UnwindSection, X86_64,
};
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind,
    Register,
};
use object::elf;

use super::landing;
use super::search::Areas;
use crate::code::decode::decoder;
use crate::elf::entries::Common;
use crate::elf::image::Image;

/// Results of reading a file's unwinding information.
#[derive(Default)]
pub(crate) struct Rows {
    /// Functions that read their own return address, each with the first instruction that does.
    pub readers: BTreeMap<u64, u64>,
    /// Ranges in which the stack is as at a function's entry, in order: first address and the one
    /// behind.
    bare: Vec<(u64, u64)>,
    /// Code of each frame description, in order: first address and the one behind.
    described: Vec<(u64, u64)>,
    /// Jumps at which the stack is as at a function's entry: in functions without unwinding
    /// information, and each `ret` that pops a word which its function has stored there.
    pub bare_jumps: BTreeSet<u64>,
    /// Landing pads.
    pub landings: Vec<u64>,
    /// Functions whose landing pads could not be read.
    pub unread: Vec<u64>,
    /// Whether exceptions are expected from code without calls: a signal handler may throw where an
    /// instruction faults.
    pub faults_throw: bool,
}

impl Rows {
    /// Whether the stack at `address` is known to be as at a function's entry: the return address
    /// is on top.
    pub(crate) fn is_bare(&self, address: u64) -> bool {
        has(&self.bare, address).is_some() || self.bare_jumps.contains(&address)
    }

    /// Whether the stack at `address` is known to be another than at a function's entry.
    pub(crate) fn has_frame(&self, address: u64) -> bool {
        has(&self.described, address).is_some() && !self.is_bare(address)
    }

    /// Whether a frame description that begins before `address` has another stack there than at a
    /// function's entry: jumps lead there, with a frame already set up.
    pub(crate) fn is_within_frame(&self, address: u64) -> bool {
        let within = has(&self.described, address).is_some_and(|start| start < address);
        within && !self.is_bare(address)
    }
}

/// Returns the beginning of the range that has `address`.
fn has(ranges: &[(u64, u64)], address: u64) -> Option<u64> {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    let (start, end) = *ranges.get(after.checked_sub(1)?)?;
    (address < end).then_some(start)
}

/// Reads all unwinding information, or that of the code in these areas.
pub(crate) fn rows(image: &Image<'_>, areas: Option<&Areas>) -> Rows {
    let mut found = Rows::default();
    read(image, areas, &mut found);
    found.bare.sort_unstable();
    found.described.sort_unstable();
    found.unread.sort_unstable();
    found
}

fn read(image: &Image<'_>, areas: Option<&Areas>, found: &mut Rows) {
    let Some((address, bytes)) = frames(image) else { return };
    let section = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let (mut context, mut factory) = (UnwindContext::new(), InstructionInfoFactory::new());
    let mut entries = section.entries(&bases);
    // Every byte of code is in one frame; in a hostile file, each frame may claim all of it.
    let mut budget = image.data.len() as u64 * 3;
    let mut calls = image.data.len() as u64;
    let mut common = Common::default();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let concerns = |code: &Range<u64>| areas.is_none_or(|areas| areas.overlap(code));
        if areas.is_some()
            && let Some((code, has_landings)) = common.code(&section, (&bases, address), bytes, &partial)
            && !has_landings
            && !concerns(&code)
        {
            continue;
        }
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        if let Some(Pointer::Direct(lsda)) = fde.lsda() {
            match landing::table(image.tail(lsda, MAX_LSDA_SIZE), fde.initial_address(), &mut calls) {
                Some(table) => {
                    found.faults_throw |= table.throwing.iter().any(|code| has_no_call(image, *code));
                    found.landings.extend(table.pads);
                }
                None => found.unread.push(fde.initial_address()),
            }
        }
        // A landing pad may lie in another function's code.
        let code = fde.initial_address()..fde.initial_address().saturating_add(fde.len());
        if !concerns(&code) {
            continue;
        }
        // The common entry (CIE) is evaluated for each frame.
        let Some(left) = budget.checked_sub(fde.cie().entry_len() as u64) else { return };
        budget = left;
        let Ok(mut rows) = fde.rows(&section, &bases, &mut context) else { continue };
        found.described.push((code.start, code.end));
        while let Ok(Some(row)) = rows.next_row() {
            let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { continue };
            let register = match register {
                X86_64::RSP => Register::RSP,
                X86_64::RBP => Register::RBP,
                _ => continue,
            };
            let length = row.end_address().saturating_sub(row.start_address()).min(fde.len());
            if register == Register::RSP && offset == 8 {
                found.bare.push((row.start_address(), row.start_address().saturating_add(length)));
            }
            let code = image.tail(row.start_address(), length);
            if register == Register::RSP && offset == 16 {
                found.bare_jumps.extend(return_to_stored(code).map(|at| row.start_address() + at));
            }
            let Some(left) = budget.checked_sub(code.len() as u64) else { return };
            budget = left;
            let slot = Slot { register, offset: offset.wrapping_sub(8) };
            if !slot.may_be_used(code) {
                continue;
            }
            if let Some(reader) = slot.first_use(code, row.start_address(), &mut factory) {
                found.readers.entry(fde.initial_address()).or_insert(reader);
            }
        }
    }
}

/// Returns the offset of a `ret` behind `mov %register,(%rsp)`, with which a retpoline's last row
/// ends.
fn return_to_stored(code: &[u8]) -> Option<u64> {
    const MAX_ROW_LEN: usize = 16;
    const TOP: u8 = 0x24;
    const RET: u8 = 0xC3;
    let code = code.get(..code.len().min(MAX_ROW_LEN))?;
    code.windows(2).position(|pair| pair == [TOP, RET]).map(|at| at as u64 + 1)
}

/// Whether code has no call. True only if no byte is an operation code of a call.
fn has_no_call(image: &Image<'_>, (start, length): (u64, u64)) -> bool {
    let code = image.bytes(start, length).unwrap_or_default();
    !code.is_empty() && !code.iter().any(|byte| matches!(byte, 0xE8 | 0xFF))
}

/// Maximum number of bytes that are read of one function's exception table.
const MAX_LSDA_SIZE: u64 = 1 << 20;

/// Returns the unwinding information and its address.
fn frames<'d>(image: &Image<'d>) -> Option<(u64, &'d [u8])> {
    if let Some(section) = image.section(b".eh_frame") {
        return Some((section.address, image.section_data(section)?));
    }
    let header = image.program_header(elf::PT_GNU_EH_FRAME)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr.get(object::LittleEndian));
    let table = EhFrameHdr::new(image.program_data(header)?, LittleEndian).parse(&bases, 8).ok()?;
    let start = table.eh_frame_ptr().direct().ok()?;
    Some((start, image.tail(start, u64::MAX)))
}

/// Position of the return address, relative to a register.
pub(crate) struct Slot {
    pub register: Register,
    pub offset: i64,
}

impl Slot {
    /// Returns the first instruction of this code that reads the return address, through the
    /// register or a copy of it.
    fn first_use(&self, code: &[u8], address: u64, factory: &mut InstructionInfoFactory) -> Option<u64> {
        let mut copies = Copies { distances: [None; 16], factory };
        let mut decoder = decoder(code, address);
        let mut is_use = |instruction: &Instruction| {
            let is_used = self.is_used(instruction) || self.is_indexed(instruction);
            let is_use = is_used || copies.use_slot(instruction);
            copies.follow(instruction, self);
            is_use
        };
        decoder.iter().find(|instruction| is_use(instruction)).map(|instruction| instruction.ip())
    }

    /// Whether an instruction reads at an index from the slot, on top of the stack.
    fn is_indexed(&self, instruction: &Instruction) -> bool {
        self.is_top()
            && instruction.memory_base() == Register::RSP
            && instruction.memory_index() != Register::None
            && instruction.memory_displacement64() == 0
            && instruction.mnemonic() != Mnemonic::Lea
    }

    fn is_top(&self) -> bool {
        self.register == Register::RSP && self.offset == 0
    }

    /// Whether an instruction reads the return address, or may hand it on to code that does.
    pub(crate) fn is_used(&self, instruction: &Instruction) -> bool {
        // An `lea` of the address behind a function's variables names the slot without reading it.
        let reads = self.is_named(instruction) && instruction.mnemonic() != Mnemonic::Lea;
        // A barrier of compilers on the top of the stack: `lock or $0` or `lock add $0`.
        let is_barrier = instruction.has_lock_prefix()
            && matches!(instruction.mnemonic(), Mnemonic::Or | Mnemonic::Add)
            && instruction.try_immediate(1).is_ok_and(|value| value == 0);
        let reads = reads && !is_barrier;
        let pops = instruction.mnemonic() == Mnemonic::Pop && self.is_top();
        reads || pops || self.has_frame_taken(instruction)
    }

    /// Whether an instruction takes the address above the return address, on top of the stack. Few
    /// functions with arguments on the stack do so at their entry, and those that save the thread's
    /// state to return once more: a callee may copy the frame with the return address.
    fn has_frame_taken(&self, instruction: &Instruction) -> bool {
        // By r10 or r13, a function that aligns its stack finds its arguments.
        const OTHERS: [Register; 3] = [Register::RSP, Register::R10, Register::R13];
        self.is_top()
            && instruction.mnemonic() == Mnemonic::Lea
            && !OTHERS.contains(&instruction.op0_register())
            && instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None
            && instruction.memory_displacement64() == 8
    }

    /// Whether an instruction that begins anywhere in this code might read the return address.
    /// Decoding all of it takes much longer than this search for the bytes of such an instruction.
    fn may_be_used(&self, code: &[u8]) -> bool {
        let Ok(offset) = i32::try_from(self.offset) else { return true };
        let far = offset.to_le_bytes();
        let near = i8::try_from(offset).ok().map(|offset| offset as u8);
        let is_top = self.is_top();
        // The displacement follows the byte that names the base.
        let is_there =
            |behind: &[u8]| behind.first().copied() == near.or(Some(far[0])) || behind.starts_with(&far);
        // `mov` of the register into another one, in its two encodings.
        let number = self.register.number() as u8;
        let before = |at: usize, count: usize| at.checked_sub(count).map_or(0, |at| code[at]);
        let is_copied = |at: usize, byte: u8| {
            let is_move = match byte {
                0x89 => code.get(at + 1).is_some_and(|operands| operands & 0xf8 == 0xc0 | number << 3),
                0x8b => code.get(at + 1).is_some_and(|operands| operands & 0xc7 == 0xc0 | number),
                _ => false,
            };
            is_move && before(at, 1) & 0xf8 == 0x48
        };
        // `lea` of the address behind the slot, to read in front of it.
        let behind_slot = offset.wrapping_add(8).to_le_bytes();
        let is_behind = |behind: &[u8]| {
            behind.starts_with(&behind_slot)
                || i8::try_from(offset.wrapping_add(8)).is_ok() && behind.first() == Some(&behind_slot[0])
        };
        let takes_behind =
            |at: usize| is_behind(&code[at + 1..]) && (before(at, 1) == 0x8d || before(at, 2) == 0x8d);
        code.iter().enumerate().any(|(at, byte)| {
            let names_base = match self.register {
                Register::RSP => byte & 0x3f == 0x24,
                _ => matches!(byte & 0xc7, 0x45 | 0x85) || byte & 0x3f == 0x25,
            };
            let pops = is_top && (byte & 0xf8 == 0x58 || *byte == 0x8f);
            // AVX-512 (prefix 62) scales displacements by the operand's size: each counts as a use.
            let is_near = || is_there(&code[at + 1..]) || takes_behind(at);
            let is_named = names_base && (is_top || is_near());
            let has_index = |next: &u8| next & 0x07 == 0x04 && next & 0x38 != 0x20;
            let is_indexed = is_top
                && matches!(byte & 0xc7, 0x04 | 0x44 | 0x84)
                && code.get(at + 1).is_some_and(has_index);
            pops || *byte == 0x62 || is_copied(at, *byte) || is_indexed || is_named
        })
    }

    /// Whether an instruction takes the address of the slot.
    pub(crate) fn is_taken(&self, instruction: &Instruction) -> bool {
        self.is_named(instruction)
            && instruction.mnemonic() == Mnemonic::Lea
            && instruction.op0_register() != Register::RSP
    }

    fn is_named(&self, instruction: &Instruction) -> bool {
        (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory)
            && instruction.memory_base() == self.register
            && instruction.memory_index() == Register::None
            && instruction.memory_displacement64() as i64 == self.offset
    }
}

/// Registers with addresses near the return address, each with the distance to it, in a row of the
/// unwinding information.
struct Copies<'a> {
    distances: [Option<i64>; 16],
    factory: &'a mut InstructionInfoFactory,
}

impl Copies<'_> {
    /// Whether an instruction reads the return address through one of them.
    fn use_slot(&self, instruction: &Instruction) -> bool {
        let base = instruction.memory_base();
        let distance = base.is_gpr64().then(|| self.distances[base.number()]).flatten();
        (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory)
            && distance == Some(instruction.memory_displacement64() as i64)
            && instruction.memory_index() == Register::None
            && instruction.mnemonic() != Mnemonic::Lea
    }

    /// Follows the addresses through an instruction.
    fn follow(&mut self, instruction: &Instruction, slot: &Slot) {
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let of = |copies: &Copies<'_>, register: Register| match register {
            _ if register == slot.register => Some(slot.offset),
            _ if register.is_gpr64() => copies.distances[register.number()],
            _ => None,
        };
        let copied = match instruction.mnemonic() {
            Mnemonic::Mov => of(self, from),
            Mnemonic::Lea if instruction.memory_index() == Register::None => {
                let displacement = instruction.memory_displacement64() as i64;
                let distance = of(self, instruction.memory_base());
                let left = distance.map(|distance| distance.wrapping_sub(displacement));
                // The bytes of other addresses are not searched for.
                left.filter(|left| instruction.memory_base() != slot.register || matches!(left, 0 | -8))
            }
            _ => None,
        };
        if copied.is_none() && self.distances.iter().all(Option::is_none) {
            return;
        }
        // Behind a jump or a return, registers have other values.
        let goes_on = matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Interrupt
        );
        let info = self.factory.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        for used in info.used_registers() {
            let register = used.register().full_register();
            let is_written = !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead);
            if is_written && register.is_gpr64() {
                self.distances[register.number()] = None;
            }
        }
        if !goes_on {
            self.distances = [None; 16];
        }
        if to.is_gpr64() && to != slot.register {
            self.distances[to.number()] = copied;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Encoder, MemoryOperand};

    /// Checks that the byte search finds every encoding of a use, also behind other instructions.
    #[test]
    fn no_use_is_overlooked_where_only_bytes_are_looked_at() {
        let mut encoder = Encoder::new(64);
        let mut encode = |instruction: Instruction| {
            encoder.encode(&instruction, 0x1000).unwrap();
        };
        for displacement in [0, 8, 0x78, -8, 0x80, 0x1234] {
            for base in [Register::RSP, Register::RBP] {
                let memory = MemoryOperand::with_base_displ(base, displacement);
                encode(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, memory).unwrap());
                encode(Instruction::with1(Code::Push_rm64, memory).unwrap());
                encode(Instruction::with2(Code::Cmp_rm8_imm8, memory, 0x24).unwrap());
                encode(Instruction::with2(Code::VEX_Vmovdqu_ymm_ymmm256, Register::YMM9, memory).unwrap());
                let wide = Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512;
                encode(Instruction::with2(wide, Register::ZMM20, memory).unwrap());
                encode(Instruction::with2(Code::Movzx_r32_rm16, Register::R8D, memory).unwrap());
            }
        }
        encode(Instruction::with1(Code::Pop_r64, Register::RAX).unwrap());
        encode(Instruction::with1(Code::Pop_r64, Register::R12).unwrap());
        let code = encoder.take_buffer();
        let instructions: Vec<Instruction> = decoder(&code, 0x1000).into_iter().collect();
        let mut used = 0;
        for register in [Register::RSP, Register::RBP] {
            for offset in [0, 8, 0x78, -8, 0x80, 0x1234] {
                let slot = Slot { register, offset };
                for instruction in instructions.iter().filter(|instruction| slot.is_used(instruction)) {
                    let end = (instruction.next_ip() - 0x1000) as usize;
                    let start = end - instruction.len();
                    assert!(slot.may_be_used(&code[start..end]), "{instruction:?}");
                    assert!(slot.may_be_used(&code[..end]), "{instruction:?}");
                    used += 1;
                }
            }
        }
        assert!(used >= 72, "{used}");
        assert!(!Slot { register: Register::RSP, offset: 24 }.may_be_used(&[0x48, 0x8b, 0x44, 0x24, 0x10]));
        assert!(!Slot { register: Register::RBP, offset: 8 }.may_be_used(&[0x48, 0x8b, 0x45, 0xf8, 0xc3]));
    }

    /// Checks whether instructions read a return address that is on top of the stack.
    fn check(instructions: &[Instruction], expected: Option<usize>) {
        let slot = Slot { register: Register::RSP, offset: 0 };
        let mut encoder = Encoder::new(64);
        let mut starts = Vec::new();
        let mut at = 0x1000;
        for instruction in instructions {
            starts.push(at);
            at += encoder.encode(instruction, at).unwrap() as u64;
        }
        let code = encoder.take_buffer();
        let mut factory = InstructionInfoFactory::new();
        let is_candidate = slot.may_be_used(&code);
        let found = is_candidate.then(|| slot.first_use(&code, 0x1000, &mut factory)).flatten();
        assert_eq!(found, expected.map(|n| starts[n]), "{code:02x?}");
    }

    #[test]
    fn reads_through_copies_of_the_stack_pointer_are_found() {
        use Register::{RAX, RCX, RDX, RSP};
        let load = |base, displacement| {
            let memory = MemoryOperand::with_base_displ(base, displacement);
            Instruction::with2(Code::Mov_r64_rm64, RAX, memory).unwrap()
        };
        let lea = |to, base, displacement| {
            let memory = MemoryOperand::with_base_displ(base, displacement);
            Instruction::with2(Code::Lea_r64_m, to, memory).unwrap()
        };
        let copy = |to, from| Instruction::with2(Code::Mov_r64_rm64, to, from).unwrap();
        let copy_back = |to, from| Instruction::with2(Code::Mov_rm64_r64, to, from).unwrap();
        let indexed = MemoryOperand::with_base_index_scale(RSP, RCX, 8);
        check(&[copy(RDX, RSP), load(RDX, 0)], Some(1));
        check(&[copy_back(RDX, RSP), copy(RCX, RDX), load(RCX, 0)], Some(2));
        check(&[lea(RDX, RSP, 8), load(RDX, -8)], Some(0));
        check(&[lea(RDX, RSP, 8), copy(RCX, RAX)], Some(0));
        check(&[lea(RSP, RSP, 8), copy(RCX, RAX)], None);
        check(&[lea(Register::R10, RSP, 8), copy(RCX, RAX)], None);
        check(&[lea(RDX, RSP, 0), lea(RCX, RDX, 24), load(RCX, -24)], Some(2));
        check(&[lea(RDX, RSP, 24), load(RDX, -24)], None);
        check(&[Instruction::with2(Code::Mov_r64_rm64, RAX, indexed).unwrap()], Some(0));
        // This may be the first argument on the stack, or the end of a frame that is handed on.
        check(&[lea(RDX, RSP, 8), load(RDX, 0)], Some(0));
        // The address of an array's end in the red zone.
        check(&[copy(RDX, RSP), load(RDX, -8)], None);
        // Another value.
        check(&[copy(RDX, RSP), copy(RDX, RCX), load(RDX, 0)], None);
        let call = Instruction::with_branch(Code::Call_rel32_64, 0x2000).unwrap();
        check(&[copy(RDX, RSP), call, load(RDX, 0)], None);
        let jump = Instruction::with_branch(Code::Jmp_rel32_64, 0x2000).unwrap();
        check(&[copy(RDX, RSP), jump, load(RDX, 0)], None);
    }
}

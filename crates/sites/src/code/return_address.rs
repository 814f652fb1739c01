//! What the unwinding information says of all instructions: where the return address is, and which functions look at it.
//!
//! Functions look at their own: setjmp, which keeps it, dlsym, which asks for its caller. While their return is traced by a stub, another address is in its place.
//!
//! Of functions of which it says nothing, see `stack_depth.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, Pointer, UnwindContext,
    UnwindSection, X86_64,
};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use object::elf;

use super::landing;
use super::search::Areas;
use crate::elf::entries::Common;
use crate::elf::image::Image;

/// What is found in a file's unwinding information.
#[derive(Default)]
pub(crate) struct Rows {
    /// Functions that look at their own return address, and the first instruction that does.
    pub users: BTreeMap<u64, u64>,
    /// Where the stack is as at a function's entry, in order: first address and the one behind.
    bare: Vec<(u64, u64)>,
    /// Jumps of functions of which nothing says it, where it is so, too.
    pub handed: BTreeSet<u64>,
    /// Where exceptions land.
    pub landings: Vec<u64>,
    /// Functions of which that is not known.
    pub unread: Vec<u64>,
}

impl Rows {
    /// Is the stack there as at a function's entry, as far as something says so?
    pub fn is_bare(&self, address: u64) -> bool {
        let after = self.bare.partition_point(|(start, _)| *start <= address);
        after.checked_sub(1).is_some_and(|n| address < self.bare[n].1) || self.handed.contains(&address)
    }
}

/// Reads all of it, or what concerns the code in these areas.
pub(crate) fn rows(image: &Image<'_>, areas: Option<&Areas>) -> Rows {
    let mut found = Rows::default();
    read(image, areas, &mut found);
    found.bare.sort_unstable();
    found.unread.sort_unstable();
    found
}

fn read(image: &Image<'_>, areas: Option<&Areas>, found: &mut Rows) {
    let Some((address, bytes)) = frames(image) else { return };
    let section = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut context = UnwindContext::new();
    let mut entries = section.entries(&bases);
    // Every byte of code is in one frame; a hostile file may say that all of it is in each.
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
            match landing::pads(image.tail(lsda, LONGEST_LSDA), fde.initial_address(), &mut calls) {
                Some(pads) => found.landings.extend(pads),
                None => found.unread.push(fde.initial_address()),
            }
        }
        // Exceptions may land in other code than the function's own.
        if !concerns(&(fde.initial_address()..fde.initial_address().saturating_add(fde.len()))) {
            continue;
        }
        // What frames have in common is evaluated for each of them.
        let Some(left) = budget.checked_sub(fde.cie().entry_len() as u64) else { return };
        budget = left;
        let Ok(mut rows) = fde.rows(&section, &bases, &mut context) else { continue };
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
            let Some(left) = budget.checked_sub(code.len() as u64) else { return };
            budget = left;
            let slot = Slot { register, offset: offset.wrapping_sub(8) };
            if !slot.may_be_used(code) {
                continue;
            }
            let mut decoder = Decoder::with_ip(64, code, row.start_address(), DecoderOptions::NONE);
            if let Some(user) = decoder.iter().find(|instruction| slot.is_used(instruction)) {
                found.users.entry(fde.initial_address()).or_insert(user.ip());
            }
        }
    }
}

/// Bytes of one function's exception table.
const LONGEST_LSDA: u64 = 1 << 20;

/// The unwinding information and its address.
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

/// Where the return address is.
pub(crate) struct Slot {
    pub register: Register,
    pub offset: i64,
}

impl Slot {
    /// Is what is there used?
    pub fn is_used(&self, instruction: &Instruction) -> bool {
        // An address one behind a function's variables is that of the slot, too.
        let reads = self.is_named(instruction) && instruction.mnemonic() != Mnemonic::Lea;
        let pops =
            instruction.mnemonic() == Mnemonic::Pop && self.register == Register::RSP && self.offset == 0;
        reads || pops
    }

    /// Might an instruction use it that begins anywhere in this code? Decoding all of it takes much longer than looking for the bytes that such an instruction has.
    fn may_be_used(&self, code: &[u8]) -> bool {
        let Ok(offset) = i32::try_from(self.offset) else { return true };
        let far = offset.to_le_bytes();
        let near = i8::try_from(offset).ok().map(|offset| offset as u8);
        let is_top = self.register == Register::RSP && offset == 0;
        // The displacement follows the byte that names the base.
        let is_there =
            |behind: &[u8]| behind.first().copied() == near.or(Some(far[0])) || behind.starts_with(&far);
        code.iter().enumerate().any(|(at, byte)| {
            let names_base = match self.register {
                Register::RSP => byte & 0x3f == 0x24,
                _ => matches!(byte & 0xc7, 0x45 | 0x85) || byte & 0x3f == 0x25,
            };
            let pops = is_top && (byte & 0xf8 == 0x58 || *byte == 0x8f);
            // AVX-512 counts displacements in operands.
            pops || *byte == 0x62 || names_base && (is_top || is_there(&code[at + 1..]))
        })
    }

    /// Is its address taken?
    pub fn is_taken(&self, instruction: &Instruction) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Encoder, MemoryOperand};

    /// Every use is seen by its bytes: by each way to encode it, behind other instructions.
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
        let instructions: Vec<Instruction> =
            Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE).into_iter().collect();
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
}

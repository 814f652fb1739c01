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

use super::entries::Common;
use super::image::Image;
use super::landing;
use super::search::Areas;

/// What is found in a file's unwinding information.
#[derive(Default)]
pub(super) struct Rows {
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
pub(super) fn rows(image: &Image<'_>, areas: Option<&Areas>) -> Rows {
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
pub(super) struct Slot {
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

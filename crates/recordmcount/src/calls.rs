//! Finds the calls to mcount by their relocations.

use crate::error::Error;
use crate::format::Machine;
use crate::object_file::{Object, string};
use object::elf;

/// A call, by the place of its instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    /// Number of the section that contains it.
    pub section: usize,
    /// Offset in the section.
    pub offset: u64,
}

/// Whether this is the name of a profiling function.
fn is_hook(name: &[u8]) -> bool {
    matches!(name, b"mcount" | b"_mcount" | b"__fentry__")
}

/// Returns all calls, in the order of the sections.
pub(crate) fn find(object: &Object<'_>) -> Result<Vec<Call>, Error> {
    let Some(symbols) = object.symbols else { return Ok(Vec::new()) };
    let table = object.section(symbols)?;
    let strings = object.section(table.header.link as usize)?.data;
    let hooks: Vec<u32> = object
        .symbols_of(table)
        .zip(0..)
        .filter(|(symbol, _)| is_hook(string(strings, symbol.name)))
        .map(|(_, number)| number)
        .collect();
    let mut calls = Vec::new();
    if hooks.is_empty() {
        return Ok(calls);
    }
    for relocations in &object.sections {
        let code = relocations.header.info as usize;
        if relocations.header.link as usize != symbols {
            continue;
        }
        if relocations.is(elf::SHT_CREL) {
            let what = "its relocations are in LLVM's compact form (-Wa,--crel), which is not known here";
            return Err(Error::Unknown { what: what.to_owned() });
        }
        let Some(size) = object.format.relocation_size(relocations.header.kind) else { continue };
        let target = object.section(code)?;
        if !target.has(elf::SHF_EXECINSTR) || !target.has(elf::SHF_ALLOC) {
            continue;
        }
        for bytes in relocations.data.chunks_exact(size) {
            let Some(relocation) = object.format.relocation(bytes) else { continue };
            if hooks.binary_search(&relocation.symbol).is_err() {
                continue;
            }
            let before = usize::try_from(relocation.offset).ok().and_then(|at| target.data.get(..at));
            let Some(before) = before else {
                return Err(Error::corrupt(format!("a relocation beyond the end of section {code}")));
            };
            if let Some(length) = opcode(object.format.machine, relocation.kind, before) {
                calls.push(Call { section: code, offset: relocation.offset - length });
            }
        }
    }
    calls.sort_unstable();
    calls.dedup();
    Ok(calls)
}

/// Returns how many bytes in front of the relocation the call begins; `None` if this is no call as
/// compilers generate it for profiling.
fn opcode(machine: Machine, kind: u32, before: &[u8]) -> Option<u64> {
    match machine {
        Machine::X86_64 => match (elf::RelocationType(kind), before) {
            // call mcount
            (elf::R_X86_64_PLT32 | elf::R_X86_64_PC32, [.., 0xe8]) => Some(1),
            // call *mcount@GOTPCREL(%rip)
            (elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX, [.., 0xff, 0x15]) => Some(2),
            // -mcmodel=large: movabs $mcount, %r10; call *%r10
            (elf::R_X86_64_64, [.., 0x49, 0xba]) => Some(2),
            // the same with -fPIC: movabs, lea and add, which compute the GOT's address;
            // movabs $mcount@PLTOFF, %r11; add; call *%r10
            #[rustfmt::skip]
            (elf::R_X86_64_PLTOFF64,
                [.., 0x49, 0xbb, _, _, _, _, _, _, _, _, 0x4c, 0x8d, 0x15, _, _, _, _, 0x4d, 0x01, 0xda, 0x49, 0xbb]) => Some(22),
            _ => None,
        },
        Machine::I386 => match (elf::RelocationType(kind), before) {
            (elf::R_386_PLT32 | elf::R_386_PC32, [.., 0xe8]) => Some(1),
            // call *mcount@GOT(%ebx), or any other register but %esp; without one: call *mcount@GOT
            (elf::R_386_GOT32 | elf::R_386_GOT32X, [.., 0xff, 0x90..=0x93 | 0x95..=0x97 | 0x15]) => Some(2),
            _ => None,
        },
    }
}

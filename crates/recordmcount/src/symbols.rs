//! The symbols of sections, which the list's relocations need.
//!
//! The function's own symbol does not work: if it is exported, another module's function of that
//! name may preempt it. Where the compiler had no use for a section's symbol, the assembler has
//! left it out. A new one must be among the local symbols, in front of the global ones, whose
//! numbers change; so do the numbers in every relocation and in all other references to symbols.

use std::collections::BTreeMap;

use crate::edited::Edited;
use crate::error::Error;
use crate::object_file::{Object, section_of, wide_indices};
use object::elf;

/// LLVM's list of symbols whose addresses are taken (SHT_LLVM_ADDRSIG).
const ADDRSIG: u32 = 0x6fff_4c03;

/// LLVM's counts of calls: the section is linked to the symbol table, but refers to symbols only by
/// its relocations.
const CALL_GRAPH_PROFILE: u32 = 0x6fff_4c09;

/// Returns the number of each section's symbol, adding the symbol where there is none.
pub(crate) fn of_sections(
    edited: &mut Edited<'_>,
    wanted: impl Iterator<Item = usize>,
) -> Result<BTreeMap<usize, u32>, Error> {
    let object = edited.object;
    let missing = || Error::corrupt("the symbol table");
    let index = object.symbols.ok_or_else(missing)?;
    let table = object.section(index)?;
    let count = table.data.len() / object.format.symbol_size();
    let first_global = table.header.info;
    if first_global == 0 || first_global as usize > count {
        return Err(missing());
    }
    let wide = wide_indices(object, index);
    let mut known = BTreeMap::new();
    for (symbol, number) in object.symbols_of(table).zip(0..first_global) {
        if symbol.info == elf::STT_SECTION.0 && symbol.value == 0 {
            let section = section_of(&symbol, number as usize, wide);
            known.entry(section as usize).or_insert(number);
        }
    }
    let mut new = Vec::new();
    let mut number = first_global;
    let symbols = wanted.map(|section| {
        let symbol = *known.entry(section).or_insert_with(|| {
            new.push(section);
            number += 1;
            number - 1
        });
        (section, symbol)
    });
    let symbols = symbols.collect();
    if !new.is_empty() {
        insert(edited, index, first_global, &new)?;
    }
    Ok(symbols)
}

/// Inserts symbols for these sections in front of symbol number `first`, in the table that is
/// section `index`.
fn insert(edited: &mut Edited<'_>, index: usize, first: u32, sections: &[usize]) -> Result<(), Error> {
    let object = edited.object;
    let (table, format) = (&object.sections[index], object.format);
    let wide = wide_indices(object, index);
    let (mut new, mut indices) = (Vec::new(), Vec::new());
    for &section in sections {
        let short = u16::try_from(section).ok().filter(|&section| section < elf::SHN_LORESERVE);
        if short.is_none() && wide.is_none() {
            return Err(Error::corrupt("sections of high numbers without symbols"));
        }
        new.extend(format.section_symbol(short.unwrap_or(elf::SHN_XINDEX.0)));
        let index = if short.is_some() { 0 } else { section as u32 };
        indices.extend(index.to_le_bytes());
    }
    let added = sections.len() as u32;
    let at = first as usize * format.symbol_size();
    edited.replace(index, &[&table.data[..at], &new, &table.data[at..]].concat());
    edited.headers[index].info = first + added;
    if let Some((index, data)) = wide {
        let (before, behind) = data.split_at_checked(first as usize * 4).ok_or_else(|| {
            Error::corrupt("the table of sections of high numbers is shorter than that of symbols")
        })?;
        edited.replace(index, &[before, &indices, behind].concat());
    }
    renumber(edited, object, index, &|number| {
        if number < first { number } else { number.saturating_add(added) }
    })
}

/// Changes the numbers of symbols of the table `index` in all references.
fn renumber(
    edited: &mut Edited<'_>,
    object: &Object<'_>,
    index: usize,
    new: &dyn Fn(u32) -> u32,
) -> Result<(), Error> {
    let format = object.format;
    for (number, section) in object.sections.iter().enumerate() {
        if section.header.link as usize != index {
            continue;
        }
        if let Some(size) = format.relocation_size(section.header.kind) {
            let mut table = section.data.to_vec();
            for bytes in table.chunks_exact_mut(size) {
                let Some(relocation) = format.relocation(bytes) else { continue };
                let info = format.relocation_info(new(relocation.symbol), relocation.kind)?;
                let word = format.word();
                bytes[word..2 * word].copy_from_slice(&info.to_le_bytes()[..word]);
            }
            edited.overwrite(number, &table);
        } else if section.is(elf::SHT_GROUP) {
            edited.headers[number].info = new(section.header.info);
        } else if section.header.kind == ADDRSIG {
            let list = leb128(section.data).ok_or_else(|| Error::corrupt(".llvm_addrsig"))?;
            let mut renumbered = Vec::new();
            list.into_iter().for_each(|symbol| put_leb128(&mut renumbered, new(symbol)));
            edited.replace(number, &renumbered);
        } else if !section.is(elf::SHT_SYMTAB_SHNDX) && section.header.kind != CALL_GRAPH_PROFILE {
            let name = String::from_utf8_lossy(section.name);
            let what = format!("section {name} names symbols in a form that is not known here");
            return Err(Error::Unknown { what });
        }
    }
    Ok(())
}

/// Decodes LEB128: numbers of seven bits per byte, the lowest first.
fn leb128(bytes: &[u8]) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0_u32, 0);
    for byte in bytes {
        let bits = u32::from(byte & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        shift += 7;
        if byte & 0x80 == 0 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(numbers)
}

/// Encodes a number as LEB128.
fn put_leb128(to: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

//! The dynamic segment: needed libraries, relocations, exported symbols.

use object::elf::{self, Dyn64, FileHeader64, Rela64, Sym64, Versym};
use object::read::elf::{GnuHashTable, HashTable};
use object::{LittleEndian as Le, U64, pod};

use super::image::{Image, string};

/// A relocation of a pointer-sized word.
struct Relocation {
    at: u64,
    kind: u32,
    symbol: u32,
    addend: u64,
}

const ABSOLUTE: u32 = elf::R_X86_64_64.0;
const GLOB_DAT: u32 = elf::R_X86_64_GLOB_DAT.0;
const JUMP_SLOT: u32 = elf::R_X86_64_JUMP_SLOT.0;
const RELATIVE: u32 = elf::R_X86_64_RELATIVE.0;

/// The dynamic segment's contents; empty for a static program.
#[derive(Default)]
pub(crate) struct Dynamic<'d> {
    pub needed: Vec<String>,
    pub soname: Option<String>,
    /// Whether the linker marked the file as a position-independent *program* (`DF_1_PIE`).
    pub marked_pie: bool,
    /// Exported and imported symbols, as far as their number is known.
    pub symbols: &'d [Sym64<Le>],
    pub strings: &'d [u8],
    /// Versions of the symbols, as far as the file has them.
    versions: &'d [Versym<Le>],
    /// All symbols up to the end of the table's segment: relocations may name any of them.
    all_symbols: &'d [Sym64<Le>],
    relocations: Vec<Relocation>,
    /// RELR relocations: the words to which the loader adds its bias.
    packed: &'d [u8],
}

impl<'d> Dynamic<'d> {
    /// Reads PT_DYNAMIC.
    pub(crate) fn parse(image: &Image<'d>, complaints: &mut Vec<String>) -> Self {
        let mut dynamic = Dynamic::default();
        let Some(header) = image.program_header(elf::PT_DYNAMIC) else { return dynamic };
        let Some(bytes) = image.program_data(header) else {
            complaints.push("the dynamic section lies beyond the end of the file".to_owned());
            return dynamic;
        };
        let entries: &[Dyn64<Le>] = whole(bytes);
        let end = entries.iter().position(|entry| entry.d_tag.get(Le) == elf::DT_NULL);
        let entries = &entries[..end.unwrap_or(entries.len())];
        let value = |tag| {
            let entry = entries.iter().find(|entry| entry.d_tag.get(Le) == tag)?;
            Some(entry.d_val.get(Le))
        };
        if let Some(at) = value(elf::DT_STRTAB) {
            dynamic.strings = image.tail(at, value(elf::DT_STRSZ).unwrap_or(0));
        }
        let text = |entry: &Dyn64<Le>| {
            let name = string(dynamic.strings, u32::try_from(entry.d_val.get(Le)).ok()?, 4096)?;
            Some(calltap_names::printable_bytes(name))
        };
        let texts = |tag| entries.iter().filter(move |entry| entry.d_tag.get(Le) == tag).filter_map(text);
        // A hostile file may name one long string many times.
        dynamic.needed = texts(elf::DT_NEEDED).take(4096).collect();
        dynamic.soname = texts(elf::DT_SONAME).next();
        dynamic.marked_pie = value(elf::DT_FLAGS_1).is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0);
        if let Some(at) = value(elf::DT_SYMTAB) {
            dynamic.all_symbols = whole(image.tail(at, u64::MAX));
            let count = value(elf::DT_HASH)
                .and_then(|at| hash_count(image.tail(at, u64::MAX)))
                .or_else(|| value(elf::DT_GNU_HASH).and_then(|at| gnu_hash_count(image.tail(at, u64::MAX))))
                .unwrap_or(0);
            dynamic.symbols = &dynamic.all_symbols[..count.min(dynamic.all_symbols.len())];
        }
        if let Some(at) = value(elf::DT_VERSYM) {
            dynamic.versions = whole(image.tail(at, u64::MAX));
        }
        for (table, size) in [(elf::DT_RELA, elf::DT_RELASZ), (elf::DT_JMPREL, elf::DT_PLTRELSZ)] {
            let (Some(at), Some(size)) = (value(table), value(size)) else { continue };
            match image.bytes(at, size) {
                Some(bytes) => dynamic.relocations.extend(whole(bytes).iter().filter_map(relocation)),
                None => complaints.push(format!("the relocations at {at:#x} are not in the file")),
            }
        }
        if let (Some(at), Some(size)) = (value(elf::DT_RELR), value(elf::DT_RELRSZ)) {
            dynamic.packed = image.tail(at, size);
        }
        dynamic.relocations.sort_by_key(|relocation| relocation.at);
        dynamic
    }

    /// Whether the exported symbol with this number is kept for programs that were linked with a
    /// former version of the file: new ones are not linked with it.
    pub(crate) fn is_former(&self, symbol: usize) -> bool {
        self.versions.get(symbol).is_some_and(|version| version.0.get(Le).is_hidden())
    }

    /// Returns the link-time address that the word at `at` holds after relocation.
    ///
    /// RELR relocations need no lookup: the loader adds the bias to the word in the file.
    pub(crate) fn pointer_at(&self, image: &Image<'_>, at: u64) -> Option<u64> {
        self.pointers(image, at, 1).next()?
    }

    /// Returns [`Self::pointer_at`] of `count` words from `at` on.
    pub(crate) fn pointers(
        &self,
        image: &Image<'_>,
        at: u64,
        count: u64,
    ) -> impl Iterator<Item = Option<u64>> {
        let mut relocations = &self.relocations[..];
        (0..count).map_while(move |index| at.checked_add(index * 8)).map(move |at| {
            // A list of sites has one relocation after the other, so the next one nearly always
            // matches.
            let passed = match relocations {
                [next, ..] if next.at >= at => 0,
                [_, next, ..] if next.at >= at => 1,
                _ => relocations.partition_point(|relocation| relocation.at < at),
            };
            relocations = &relocations[passed..];
            match relocations.first().filter(|relocation| relocation.at == at) {
                Some(relocation) if relocation.kind == RELATIVE => Some(relocation.addend),
                Some(relocation) => {
                    let symbol = self.all_symbols.get(relocation.symbol as usize)?;
                    let defined = symbol.st_shndx.get(Le) != elf::SHN_UNDEF;
                    defined.then(|| symbol.st_value.get(Le).wrapping_add(relocation.addend))
                }
                None => image.bytes(at, 8)?.try_into().ok().map(u64::from_le_bytes),
            }
        })
    }

    /// Returns the address of the exported function of this file to which the loader sets the word
    /// at `at`, unless another file replaces the function.
    pub(crate) fn exported_at(&self, at: u64) -> Option<u64> {
        let n = self.relocations.binary_search_by_key(&at, |relocation| relocation.at).ok()?;
        let relocation = &self.relocations[n];
        let symbol = self.all_symbols.get(relocation.symbol as usize).filter(|_| relocation.symbol != 0)?;
        let is_own =
            matches!(relocation.kind, JUMP_SLOT | GLOB_DAT) && symbol.st_shndx.get(Le) != elf::SHN_UNDEF;
        is_own.then(|| symbol.st_value.get(Le))
    }

    /// Relative relocations: address of the word, and the link-time address that it gets.
    pub(crate) fn addends(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let relative = self.relocations.iter().filter(|relocation| relocation.kind == RELATIVE);
        relative.map(|relocation| (relocation.at, relocation.addend))
    }

    /// Words to which RELR relocations add the bias, as far as the file has them.
    pub(crate) fn packed(&self, image: &Image<'_>) -> Vec<u64> {
        let (mut words, mut next) = (Vec::new(), 0u64);
        for entry in whole::<U64<Le>>(self.packed).iter().map(|entry| entry.get(Le)) {
            // An even entry is an address; an odd one has a bit for each of the next 63 words.
            let (first, bits) = if entry & 1 == 0 { (entry, 1) } else { (next, entry >> 1) };
            let set = (0..63).filter(|bit| bits >> bit & 1 != 0).map(|bit| first.wrapping_add(8 * bit));
            words.extend(set);
            next = first.wrapping_add(if entry & 1 == 0 { 8 } else { 8 * 63 });
            // The file has no more words.
            if words.len() > image.data.len() / 8 {
                break;
            }
        }
        words
    }

    /// Words that the loader fills with the address of an imported symbol, each with the symbol's
    /// name if it has at most `longest` bytes.
    pub(crate) fn imports(&self, longest: usize) -> impl Iterator<Item = (u64, &'d [u8])> + '_ {
        self.imports_at(longest, |_| true)
    }

    /// Words that the loader fills with a function's address for other uses than a stub's call,
    /// each with the function's name of at most `longest` bytes.
    pub(crate) fn function_addresses(&self, longest: usize) -> impl Iterator<Item = (u64, &'d [u8])> + '_ {
        let addresses = self.relocations.iter().filter(|relocation| relocation.kind == GLOB_DAT);
        addresses.filter_map(move |relocation| {
            let symbol = self.all_symbols.get(relocation.symbol as usize)?;
            let is_import = symbol.st_type() == elf::STT_FUNC && symbol.st_shndx.get(Le) == elf::SHN_UNDEF;
            let name = string(self.strings, symbol.st_name.get(Le), longest)?;
            is_import.then_some((relocation.at, name))
        })
    }

    /// Imports as of [`Self::imports`], only for wanted words.
    pub(crate) fn imports_at(
        &self,
        longest: usize,
        is_wanted: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = (u64, &'d [u8])> {
        let named = move |relocation: &&Relocation| relocation.kind != RELATIVE && is_wanted(relocation.at);
        self.relocations.iter().filter(named).filter_map(move |relocation| {
            let symbol = self.all_symbols.get(relocation.symbol as usize)?;
            Some((relocation.at, string(self.strings, symbol.st_name.get(Le), longest)?))
        })
    }
}

fn relocation(rela: &Rela64<Le>) -> Option<Relocation> {
    let info = rela.r_info.get(Le);
    let kind = info as u32;
    matches!(kind, ABSOLUTE | GLOB_DAT | JUMP_SLOT | RELATIVE).then(|| Relocation {
        at: rela.r_offset.get(Le),
        kind,
        symbol: (info >> 32) as u32,
        addend: rela.r_addend.get(Le) as u64,
    })
}

/// Returns as many whole records as fit into `bytes`.
pub(crate) fn whole<T: pod::Pod>(bytes: &[u8]) -> &[T] {
    let count = bytes.len().checked_div(size_of::<T>()).unwrap_or(0);
    pod::slice_from_bytes(bytes, count).map_or(&[], |(records, _)| records)
}

fn hash_count(bytes: &[u8]) -> Option<usize> {
    let table = HashTable::<FileHeader64<Le>>::parse(Le, bytes).ok()?;
    Some(table.symbol_table_length() as usize)
}

fn gnu_hash_count(bytes: &[u8]) -> Option<usize> {
    let table = GnuHashTable::<FileHeader64<Le>>::parse(Le, bytes).ok()?;
    Some(table.symbol_table_length(Le)? as usize)
}

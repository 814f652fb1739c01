//! A quick look: could this file have sites at all?
//!
//! Most shared objects of a process have none, and listing their functions would be the larger part of a start; so would
//! reading the whole of their files.

use std::cell::Cell;
use std::fs::File;

use object::LittleEndian as Le;
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _, Sym as _};
use object::read::{ReadCache, ReadRef};

use crate::discover::image::string;
use crate::load::{MOST, Parts};

const SECTIONS: [&[u8]; 3] = [b"__patchable_function_entries", b"__mcount_loc", b"xray_instr_map"];
/// As they stand in a string table.
const CALLED: [&[u8]; 3] = [b"mcount\0", b"_mcount\0", b"__fentry__\0"];
/// Defined by the C library, which defines mcount for others and does not call it.
const C_LIBRARY: &[u8] = b"__libc_start_main\0";

/// Does it define a profiling function for others, as a C library does? (Headers and symbols are read.)
pub fn file_defines_profiler(file: &File) -> bool {
    look_at(file).is_ok_and(|found| found.defines)
}

/// What a look at a file shows.
struct Found {
    may_have_sites: bool,
    defines: bool,
}

/// False only if [`crate::read`] would find no site, or if this is a C library without site sections. What has no section headers
/// is not looked at.
pub fn may_have_sites(data: &[u8]) -> bool {
    look(data).map_or(true, |found| found.may_have_sites)
}

/// The same of a file, of which it reads only headers, and symbols where it must.
pub fn file_may_have_sites(file: &File) -> bool {
    look_at(file).map_or(true, |found| found.may_have_sites)
}

fn look_at(file: &File) -> object::Result<Found> {
    let (cache, left) = (ReadCache::new(file), Cell::new(MOST));
    look(Parts::new(&cache, &left))
}

fn look<'d>(data: impl ReadRef<'d>) -> object::Result<Found> {
    let file = ElfFile64::<Le, _>::parse(data)?;
    let sections = file.elf_section_table();
    let bytes = |index| sections.section(index)?.data(Le, data);
    let names = bytes(file.elf_header().section_strings_index(Le, data)?)?;
    let mut section_names = sections.iter().map(|section| string(names, section.sh_name.get(Le), 64));
    if section_names.any(|name| name.is_some_and(|name| SECTIONS.contains(&name))) {
        return Ok(Found { may_have_sites: true, defines: false });
    }
    let exported = file.elf_dynamic_symbol_table();
    let (mut defined, mut c_library) = (false, false);
    for table in [exported, file.elf_symbol_table()] {
        let strings = bytes(table.string_section()).unwrap_or_default();
        for symbol in table.symbols() {
            let name = strings.get(symbol.st_name.get(Le) as usize..).unwrap_or(&[]);
            if CALLED.iter().any(|called| name.starts_with(called)) {
                if symbol.is_undefined(Le) {
                    return Ok(Found { may_have_sites: true, defines: false });
                }
                defined = true;
            }
            // (A static program has the C library's symbols in it, but exports none.)
            c_library |= name.starts_with(C_LIBRARY)
                && table.section() == exported.section()
                && symbol.is_definition(Le, table.strings());
        }
    }
    Ok(Found { may_have_sites: defined && !c_library, defines: defined })
}

//! A quick check whether a file may have sites at all.
//!
//! Most shared objects of a process have none. Listing their functions, or reading their whole
//! files, would take most of the time of a start.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;

use object::LittleEndian as Le;
use object::Object as _;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _, Sym as _};
use object::read::{ReadCache, ReadRef};

use crate::discover::names::build_id_in;
use crate::elf::image::string;
use crate::load::{MAX_READ, Parts};

const SECTIONS: [&[u8]; 3] = [b"__patchable_function_entries", b"__mcount_loc", b"xray_instr_map"];
/// Profiling functions' names as a string table has them.
const CALLED: [&[u8]; 3] = [b"mcount\0", b"_mcount\0", b"__fentry__\0"];
/// A symbol of the C library, which defines mcount for other files and does not call it.
const C_LIBRARY: &[u8] = b"__libc_start_main\0";

/// Whether a file defines a profiling function for others, as a C library does. Reads headers and
/// symbols.
pub fn file_defines_profiler(file: &File) -> bool {
    look_at(file).is_ok_and(|found| found.defines)
}

/// Result of the check.
struct FileContents {
    may_have_sites: bool,
    defines: bool,
}

/// Returns false only if [`crate::read()`] would find no site, or if this is a C library without
/// site sections. A file without section headers is not checked, and may have sites.
pub fn may_have_sites(data: &[u8]) -> bool {
    parse_headers(data).map_or(true, |found| found.may_have_sites)
}

/// Checks a file as [`may_have_sites`] does. Reads only headers, and symbols where necessary.
pub fn file_may_have_sites(file: &File) -> bool {
    look_at(file).map_or(true, |found| found.may_have_sites)
}

fn look_at(file: &File) -> object::Result<FileContents> {
    let (cache, left) = (ReadCache::new(file), Cell::new(MAX_READ));
    parse_headers(Parts::new(&cache, &left))
}

/// Returns the linker's identifier of a file's build, in hexadecimal. Reads headers and notes.
pub fn build_id_of_file(file: &File) -> Option<String> {
    let (cache, left) = (ReadCache::new(file), Cell::new(MAX_READ));
    build_id_in(Parts::new(&cache, &left))
}

/// Sections with names of functions other than symbol tables: packed, and Go's tables.
const NAMES_ELSEWHERE: [&[u8]; 4] =
    [b".gnu_debugdata", b".gopclntab", b".data.rel.ro.gopclntab", b".go.buildinfo"];
/// Length of the longest name that is checked.
const MAX_NAME_LEN: usize = 1 << 16;

/// Returns false only if no symbol that this file defines passes, and it has no names of functions
/// in other sections. Reads headers and symbol tables.
pub fn file_may_define(file: &File, mut passes: impl FnMut(&str) -> bool) -> bool {
    let cache = ReadCache::new(file);
    let mut defines = || -> object::Result<bool> {
        let file = ElfFile64::<Le, _>::parse(&cache)?;
        if file.elf_section_table().is_empty()
            || NAMES_ELSEWHERE.iter().any(|name| file.section_by_name_bytes(name).is_some())
        {
            return Ok(true);
        }
        any_function(&file, &cache, &mut passes)
    };
    defines().unwrap_or(true)
}

/// Counts the different names of functions in a file's symbol tables that pass. Returns 0 for a
/// file that cannot be read.
pub fn count_functions(file: &File, passes: impl Fn(&str) -> bool) -> usize {
    function_names(file, passes).len()
}

/// Returns the different names of functions in a file's symbol tables that pass. Returns none for a
/// file that cannot be read.
pub fn function_names(file: &File, passes: impl Fn(&str) -> bool) -> HashSet<String> {
    let (cache, mut found) = (ReadCache::new(file), HashSet::new());
    let mut note = |name: &str| {
        if passes(name) {
            found.insert(name.to_owned());
        }
        false
    };
    let read = ElfFile64::<Le, _>::parse(&cache).and_then(|file| any_function(&file, &cache, &mut note));
    if read.is_ok() { found } else { HashSet::new() }
}

/// Whether any name of a function in the symbol tables passes.
fn any_function<'d>(
    file: &ElfFile64<'d, Le, &'d ReadCache<&File>>,
    cache: &'d ReadCache<&File>,
    passes: &mut dyn FnMut(&str) -> bool,
) -> object::Result<bool> {
    let sections = file.elf_section_table();
    let tables = [file.elf_dynamic_symbol_table(), file.elf_symbol_table()];
    for table in tables.into_iter().filter(|table| !table.is_empty()) {
        // Reads the table as a whole: otherwise each name would be read from the file separately.
        let strings = sections.section(table.string_section())?.data(Le, cache)?;
        for symbol in table.symbols().iter().filter(|symbol| !symbol.is_undefined(Le)) {
            if !matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC) {
                continue;
            }
            let name = string(strings, symbol.st_name.get(Le), MAX_NAME_LEN).unwrap_or_default();
            let name = name.split(|byte| *byte == b'@').next().unwrap_or_default();
            if passes(&String::from_utf8_lossy(name)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn parse_headers<'d>(data: impl ReadRef<'d>) -> object::Result<FileContents> {
    let file = ElfFile64::<Le, _>::parse(data)?;
    let sections = file.elf_section_table();
    let bytes = |index| sections.section(index)?.data(Le, data);
    let names = bytes(file.elf_header().section_strings_index(Le, data)?)?;
    let mut section_names = sections.iter().map(|section| string(names, section.sh_name.get(Le), 64));
    if section_names.any(|name| name.is_some_and(|name| SECTIONS.contains(&name))) {
        return Ok(FileContents { may_have_sites: true, defines: false });
    }
    let exported = file.elf_dynamic_symbol_table();
    let (mut defined, mut c_library) = (false, false);
    for table in [exported, file.elf_symbol_table()] {
        let strings = bytes(table.string_section()).unwrap_or_default();
        for symbol in table.symbols() {
            let name = strings.get(symbol.st_name.get(Le) as usize..).unwrap_or(&[]);
            if CALLED.iter().any(|called| name.starts_with(called)) {
                if symbol.is_undefined(Le) {
                    return Ok(FileContents { may_have_sites: true, defines: false });
                }
                defined = true;
            }
            // A static program contains the C library's symbols, but exports none.
            c_library |= name.starts_with(C_LIBRARY)
                && table.section() == exported.section()
                && symbol.is_definition(Le, table.strings());
        }
    }
    Ok(FileContents { may_have_sites: defined && !c_library, defines: defined })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks whether this test's own file, which has symbols, may define a function of this name.
    fn check(name: &str, expected: bool) {
        let file = File::open(std::env::current_exe().expect("a test is a file")).expect("it can be read");
        assert_eq!(file_may_define(&file, |symbol| symbol == name), expected, "{name}");
    }

    #[test]
    fn file_defines_its_symbols() {
        check("main", true);
        check("_start", true);
        check("no_function_of_this_name", false);
        // `malloc` is called here, and defined elsewhere.
        check("malloc", false);
    }

    #[test]
    fn non_elf_file_may_define_anything() {
        let file = tempfile::tempfile().expect("a temporary file");
        assert!(file_may_define(&file, |_| false));
    }
}

//! A quick look: could this file have sites at all?
//!
//! Most shared objects of a process have none, and listing their functions would be the larger part of a start.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};

const SECTIONS: [&str; 2] = ["__patchable_function_entries", "__mcount_loc"];
const CALLED: [&str; 3] = ["mcount", "_mcount", "__fentry__"];
/// Defined by the C library, which defines mcount for others and does not call it.
const C_LIBRARY: &str = "__libc_start_main";

/// False only if [`crate::read`] would find no site, or if this is a C library without site sections.
pub fn may_have_sites(data: &[u8]) -> bool {
    let Ok(file) = ElfFile64::<LittleEndian, _>::parse(data) else { return true };
    if file.sections().any(|section| section.name().is_ok_and(|name| SECTIONS.contains(&name))) {
        return true;
    }
    let symbols = || file.dynamic_symbols().chain(file.symbols());
    let named = |undefined: bool| {
        symbols().any(|symbol| {
            symbol.is_undefined() == undefined && symbol.name().is_ok_and(|n| CALLED.contains(&n))
        })
    };
    // (A static program has the C library's symbols in it, but exports none.)
    let c_library = || {
        file.dynamic_symbols()
            .any(|symbol| symbol.is_definition() && symbol.name().is_ok_and(|n| n == C_LIBRARY))
    };
    named(true) || named(false) && !c_library()
}

//! A quick look: could this file have sites at all?
//!
//! Most shared objects of a process have none, and listing their functions would be the larger part of a start.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};

const SECTIONS: [&str; 2] = ["__patchable_function_entries", "__mcount_loc"];
const CALLED: [&str; 3] = ["mcount", "_mcount", "__fentry__"];

/// False only if [`crate::read`] would find no site. A library that merely *defines* mcount (libc) is not instrumented.
pub fn may_have_sites(data: &[u8]) -> bool {
    let Ok(file) = ElfFile64::<LittleEndian, _>::parse(data) else { return true };
    let called = |name: Result<&str, _>| name.is_ok_and(|name| CALLED.contains(&name));
    file.sections().any(|section| section.name().is_ok_and(|name| SECTIONS.contains(&name)))
        || file.dynamic_symbols().any(|symbol| symbol.is_undefined() && called(symbol.name()))
        || file.dynamic_symbols().next().is_none() && file.symbols().any(|symbol| called(symbol.name()))
}

//! Jumps to functions of other files that read their return address. If the jumping function had a
//! return stub, they would find the stub's address.

use std::collections::BTreeSet;

use crate::code::branches::{Branches, To};
use crate::code::decode::{LONGEST, decoder};
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::plt;

/// Functions of C libraries that store their return address, or identify their caller by it. Those
/// of the same file are found by their code.
const NAMES: [&[u8]; 13] = [
    b"dlopen",
    b"dlmopen",
    b"dlsym",
    b"dlvsym",
    b"dl_iterate_phdr",
    b"setjmp",
    b"_setjmp",
    b"__sigsetjmp",
    b"sigsetjmp",
    b"getcontext",
    b"swapcontext",
    b"vfork",
    b"__vfork",
];
/// Length of the longest of these names.
const LONGEST_NAME: usize = 15;

/// Returns the words of a file that the loader fills with the addresses of these functions.
pub(crate) fn slots(dynamic: &Dynamic<'_>) -> BTreeSet<u64> {
    let imports = dynamic.imports(LONGEST_NAME).filter(|(_, name)| NAMES.contains(name));
    imports.map(|(slot, _)| slot).collect()
}

/// Returns the jumps of a file that lead to one of these functions, through a linker's stub or a
/// pointer that the loader fills in.
pub(crate) fn jumps(image: &Image<'_>, branches: &Branches) -> Vec<u64> {
    let slots = slots(&Dynamic::parse(image, &mut Vec::new()));
    if slots.is_empty() {
        return Vec::new();
    }
    let slot = |at: u64, to: To| match to {
        To::If(target) | To::Address(target) => plt::slot(image, target),
        To::Pointer | To::PointerOrWithin => {
            let jump = decoder(image.tail(at, LONGEST), at).decode();
            jump.is_ip_rel_memory_operand().then(|| jump.ip_rel_memory_address())
        }
        To::Caller | To::Oddly => None,
    };
    let leads_there = |at, to| slot(at, to).is_some_and(|slot| slots.contains(&slot));
    let leavings = branches.leavings.iter().filter(|leaving| leads_there(leaving.at, leaving.to));
    leavings.map(|leaving| leaving.at).collect()
}

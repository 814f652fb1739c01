//! Jumps through linker's stubs to functions that read their return address. If the jumping
//! function had a return stub, they would find the stub's address.

use std::collections::BTreeSet;

use crate::code::branches::{Branches, To};
use crate::code::decode::{MAX_INSTRUCTION_LEN, decoder};
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
const MAX_NAME_LEN: usize = 15;

/// Returns the words of a file that the loader fills with the addresses of these functions.
pub(crate) fn slots(dynamic: &Dynamic<'_>) -> BTreeSet<u64> {
    let imports = dynamic.imports(MAX_NAME_LEN).filter(|(_, name)| NAMES.contains(name));
    imports.map(|(slot, _)| slot).collect()
}

/// A jump through a linker's stub, or through a pointer that the loader fills in.
pub(crate) struct Jump {
    pub at: u64,
    /// Address of the exported function of this file that it leads to. None if it leads to one of
    /// [`NAMES`].
    pub to: Option<u64>,
}

/// Returns the word through which a jump at this address leads: that of a linker's stub, or the
/// pointer that the jump names.
pub(super) fn slot(image: &Image<'_>, at: u64, to: To) -> Option<u64> {
    match to {
        To::If(target) | To::Address(target) => plt::slot(image, target),
        To::Pointer | To::PointerOrWithin => {
            let jump = decoder(image.tail(at, MAX_INSTRUCTION_LEN), at).decode();
            jump.is_ip_rel_memory_operand().then(|| jump.ip_rel_memory_address())
        }
        To::Caller | To::Oddly => None,
    }
}

/// Returns the jumps of a file that lead to one of these functions, or to an exported function of
/// the file itself, which may jump on.
pub(crate) fn jumps(image: &Image<'_>, dynamic: &Dynamic<'_>, branches: &Branches) -> Vec<Jump> {
    let slots = slots(dynamic);
    let through = |at, to| {
        let slot = slot(image, at, to)?;
        if slots.contains(&slot) {
            return Some(Jump { at, to: None });
        }
        dynamic.exported_at(slot).map(|to| Jump { at, to: Some(to) })
    };
    branches.leavings.iter().filter_map(|leaving| through(leaving.at, leaving.to)).collect()
}

//! Go programs: how they are recognized, and their functions without a symbol.

use object::LittleEndian as Le;
use object::elf::ProgramHeader64;
use object::read::elf::ProgramHeader as _;

use super::lookup::Lookup;
use crate::address::Svma;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::pclntab::{self, Entry};
use crate::function::{Function, Verdict};

/// Maximum number of notes that are searched for Go's own.
const NOTES: usize = 64;

/// Whether Go's linker made the file.
pub(crate) fn is_go(image: &Image<'_>) -> bool {
    const MARKS: [&[u8]; 4] =
        [b".gopclntab", b".data.rel.ro.gopclntab", b".note.go.buildid", b".go.buildinfo"];
    let has_note = |header: &ProgramHeader64<Le>| {
        let mut notes = header.notes(Le, image.data).ok().flatten();
        std::iter::from_fn(|| notes.as_mut()?.next().ok()?).take(NOTES).any(|note| note.name() == b"Go")
    };
    MARKS.iter().any(|name| image.section(name).is_some()) || image.program_headers.iter().any(has_note)
}

/// Adds the functions of a Go program that have no symbol.
pub(crate) fn add_functions(image: &Image<'_>, dynamic: &Dynamic<'_>, functions: &mut Vec<Function>) {
    if !is_go(image) {
        return;
    }
    let entries = pclntab::functions(image, dynamic);
    let mut known = Lookup::new(functions);
    let new: Vec<Function> =
        entries.iter().filter(|entry| known.at(entry.address).is_none()).map(function).collect();
    functions.extend(new);
    functions.sort_by_key(|function| function.address);
}

fn function(entry: &Entry<'_>) -> Function {
    Function {
        name: calltap_names::printable_bytes(entry.name),
        aliases: Vec::new(),
        address: Svma(entry.address),
        size: entry.size,
        verdict: Verdict::Open,
        role: Default::default(),
        returns: Default::default(),
        poll: None,
        watch: None,
    }
}

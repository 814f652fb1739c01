//! Jumps of Swift code to asynchronous functions. These take arguments from the stack when they
//! return, also where none was passed, and end with jumps to each other, mostly through pointers.
//! If the jumping function had a return stub, control would come back to it with another stack
//! pointer.

use std::collections::BTreeSet;

use super::return_address_readers;
use crate::code::branches::{Branches, To};
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;

/// Beginning of the names of the sections in which compiled Swift describes itself to its runtime.
const SECTIONS: &[u8] = b"swift5_";
/// Name of the library with the runtime of asynchronous functions.
const RUNTIME: &str = "libswift_Concurrency.so";
/// Beginnings of the names of the runtime's own asynchronous functions.
const RUNTIME_FUNCTIONS: [&[u8]; 3] = [b"swift_task", b"swift_async", b"swift_continuation"];
/// Parts of the mangled names of other asynchronous functions: the type of one, and a thunk between
/// two types.
const PARTS: [&[u8]; 2] = [b"Ya", b"TR"];
/// Maximum length of a name that is looked at; longer names count as those of asynchronous
/// functions.
const MAX_NAME_LEN: usize = 4096;

/// Whether a file contains compiled Swift.
fn is_swift(image: &Image<'_>, dynamic: &Dynamic<'_>) -> bool {
    image.sections.iter().any(|section| section.name.starts_with(SECTIONS))
        || dynamic.needed.iter().any(|library| library == RUNTIME)
}

/// Whether a function with this name in a library may be an asynchronous one of Swift.
pub(super) fn may_be_async(name: &[u8]) -> bool {
    let is_mangled = name.starts_with(b"$s") || name.starts_with(b"$S");
    let has = |part: &&[u8]| memchr::memmem::find(name, part).is_some();
    RUNTIME_FUNCTIONS.iter().any(|start| name.starts_with(start)) || is_mangled && PARTS.iter().any(has)
}

/// Returns the addresses of the jumps out of functions that may lead to an asynchronous function of
/// Swift in another file, or through a pointer.
pub(crate) fn jumps(image: &Image<'_>, dynamic: &Dynamic<'_>, branches: &Branches) -> Vec<u64> {
    if !is_swift(image, dynamic) {
        return Vec::new();
    }
    let imports = dynamic.imports(MAX_NAME_LEN).filter(|(_, name)| !may_be_async(name));
    let ordinary: BTreeSet<u64> = imports.map(|(slot, _)| slot).collect();
    let is_other = |at: u64, to: To| match (return_address_readers::slot(image, at, to), to) {
        (Some(slot), _) => !ordinary.contains(&slot),
        (None, To::Pointer | To::PointerOrWithin) => true,
        (None, To::If(_) | To::Address(_) | To::Caller | To::Oddly) => false,
    };
    let leavings = branches.leavings.iter().filter(|leaving| is_other(leaving.at, leaving.to));
    leavings.map(|leaving| leaving.at).collect()
}

#[cfg(test)]
mod tests {
    use super::may_be_async;

    #[test]
    fn names_of_async_functions_are_recognised() {
        for name in ["swift_task_switch", "swift_asyncLet_get", "$sScTss5NeverORszABRs_rlE5yieldyyYaFZ"] {
            assert!(may_be_async(name.as_bytes()), "{name}");
        }
        for name in ["swift_release", "malloc", "$sSa6appendyyxnF", "Ya", "dispatch_async"] {
            assert!(!may_be_async(name.as_bytes()), "{name}");
        }
    }
}

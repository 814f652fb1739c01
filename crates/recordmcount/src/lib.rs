//! Adds `__mcount_loc`, the list of calls to mcount, to object files compiled with `-pg`, as the
//! compiler itself does with `-mrecord-mcount`, where it has that switch.
//!
//! The compiler leaves a relocation at each call to `mcount` or `__fentry__` (`calls`). For each of
//! them the list gets a word with its own relocation, against the symbol of the section that
//! contains the call (`append`): the linker fills in the address.
//!
//! Everything but the list stays the same, byte for byte at the same offset. Parts that must change
//! (the symbol table of an object without section symbols, the groups of C++, the section headers)
//! are written again behind the end. `object::build`, which takes a file apart and builds a new
//! one, refuses objects with groups, which are all of C++, and those of LLVM, whose section names
//! are in the string table of the symbols.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod append;
mod calls;
mod edited;
mod error;
mod format;
mod object_file;
mod symbols;

pub use error::Error;

use format::LIST;
use object_file::Object;

/// Returns the object file with the list of its calls to mcount; `None` if it has no such call, or
/// has a list already.
pub fn add(object: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let object = Object::parse(object)?;
    if object.sections.iter().any(|section| section.name == LIST) {
        return Ok(None);
    }
    let calls = calls::find(&object)?;
    if calls.is_empty() { Ok(None) } else { append::lists(&object, &calls).map(Some) }
}

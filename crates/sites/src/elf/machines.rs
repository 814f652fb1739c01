//! Runtimes that use return addresses. Virtual machines identify generated code by its return
//! address when it calls one of their functions; for the address of a stub they stop with an error.
//! A collector that searches stacks for references keeps code by them.

use std::fs::File;

use memchr::memmem;
use object::read::ReadCache;
use object::{Object, ObjectSection};

use super::image::Image;

/// Strings in the data of each machine, stripped or not: V8's name for the entry from generated
/// code into C++, and the tables that HotSpot exports for its debugger.
const MARKS: [(&str, &[u8]); 2] = [("V8", b"CEntry_Return1"), ("HotSpot", b"gHotSpotVMStructs")];

/// Returns the virtual machine that a file contains.
pub(crate) fn inside(image: &Image<'_>) -> Option<&'static str> {
    let finders = MARKS.map(|(name, mark)| (name, memmem::Finder::new(mark)));
    let data = image.segments.iter().filter(|segment| !segment.executable);
    data.map(|segment| image.tail(segment.address.0, segment.file_size))
        .find_map(|data| finders.iter().find(|(_, finder)| finder.find(data).is_some()))
        .map(|(name, _)| *name)
}

/// Functions that SBCL's runtime exports, as its table of names has them.
const LISP: [&[u8]; 2] = [b"alloc_code_object\0", b"collect_garbage\0"];

/// Whether the collector of a program moves or frees compiled code that nothing refers to but
/// return addresses on the stack, as SBCL's does: a function of any file that generated code calls
/// must leave its return address where it is.
pub fn collects_code(program: &File) -> bool {
    let cache = ReadCache::new(program);
    let Ok(object) = object::File::parse(&cache) else { return false };
    let names = object.section_by_name(".dynstr").and_then(|section| section.data().ok());
    names.is_some_and(|names| LISP.iter().all(|name| memmem::find(names, name).is_some()))
}

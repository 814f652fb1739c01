//! Runtimes that use return addresses. Virtual machines identify generated code by its return
//! address when it calls one of their functions; for the address of a stub they stop with an error.
//! A collector that searches stacks for references keeps code by them. Sanitizers use the memory
//! where calltap would keep them.

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

/// Functions of the sanitizers whose memory takes all of the address space beside the stacks, as a
/// program's table of names has them.
const SHADOWS: [&[u8]; 3] = [b"__msan_init\0", b"__tsan_init\0", b"__dfsan_arg_tls\0"];

/// Why the return addresses of a program's calls must stay on the stack, in all of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnsStay {
    /// The program's collector moves or frees compiled code that nothing refers to but return
    /// addresses on the stack, as SBCL's does.
    CollectsCode,
    /// A sanitizer uses the memory in which the return addresses would be kept.
    Sanitizer,
}

impl ReturnsStay {
    /// Finds the reason in a program's file, if there is one.
    pub fn find(program: &File) -> Option<ReturnsStay> {
        let cache = ReadCache::new(program);
        let object = object::File::parse(&cache).ok()?;
        let names = object.section_by_name(".dynstr").and_then(|section| section.data().ok())?;
        let has = |name: &[u8]| memmem::find(names, name).is_some();
        if LISP.iter().all(|name| has(name)) {
            return Some(ReturnsStay::CollectsCode);
        }
        SHADOWS.iter().any(|name| has(name)).then_some(ReturnsStay::Sanitizer)
    }
}

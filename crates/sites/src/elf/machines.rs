//! Virtual machines that look up return addresses: they identify generated code by its return
//! address when it calls one of their functions. For the address of a stub they stop with an error.

use memchr::memmem;

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

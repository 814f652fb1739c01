//! Virtual machines that look up return addresses: where code they have made calls a function of theirs, they find by its return address which of that code it
//! was. They know no jump of calltap's, and stop with an error.

use memchr::memmem;

use super::image::Image;

/// What is in the data of each, stripped or not: the name that V8 has for the way from its own code into C++; the tables that HotSpot exports for its debugger.
const MARKS: [(&str, &[u8]); 2] = [("V8", b"CEntry_Return1"), ("HotSpot", b"gHotSpotVMStructs")];

/// Which of them a file contains.
pub(crate) fn inside(image: &Image<'_>) -> Option<&'static str> {
    let finders = MARKS.map(|(name, mark)| (name, memmem::Finder::new(mark)));
    let data = image.segments.iter().filter(|segment| !segment.executable);
    data.map(|segment| image.tail(segment.address.0, segment.file_size))
        .find_map(|data| finders.iter().find(|(_, finder)| finder.find(data).is_some()))
        .map(|(name, _)| *name)
}

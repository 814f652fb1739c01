//! Places in code whose addresses are stored in data: functions, and labels (a table of a computed `goto`) where somebody may land.

use object::elf;
use object::{LittleEndian as Le, U64};

use super::dynamic::{Dynamic, whole};
use super::image::Image;

/// All of them, in no order.
pub(super) fn into_code(image: &Image<'_>) -> Vec<u64> {
    let dynamic = Dynamic::parse(image, &mut Vec::new());
    let mut found: Vec<u64> = dynamic.addends().collect();
    let word = |at: u64| image.bytes(at, 8)?.try_into().ok().map(u64::from_le_bytes);
    found.extend(dynamic.packed(image).into_iter().filter_map(word));
    if image.header.e_type.get(Le) == elf::ET_EXEC {
        // Nothing says what is an address where nothing is moved.
        for segment in image.segments.iter().filter(|segment| !segment.executable) {
            let start = segment.address.0.next_multiple_of(8);
            let words: &[U64<Le>] = whole(image.tail(start, segment.file_size));
            found.extend(words.iter().map(|word| word.get(Le)));
        }
    }
    found.retain(|at| image.is_code(*at));
    found
}

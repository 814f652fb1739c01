//! Addresses of code that are stored in data: functions, and labels (tables of computed `goto`s)
//! where control may land.

use object::elf;
use object::{LittleEndian as Le, U64};

use super::dynamic::{Dynamic, whole};
use super::image::Image;

/// An address of code that is stored in data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pointer {
    /// Address of the word.
    pub at: u64,
    /// The address of code that it holds.
    pub to: u64,
}

/// Returns all stored addresses of code, ordered by the addresses of their words.
pub(crate) fn into_code(image: &Image<'_>) -> Vec<Pointer> {
    let dynamic = Dynamic::parse(image, &mut Vec::new());
    let mut found: Vec<Pointer> = dynamic.addends().map(|(at, to)| Pointer { at, to }).collect();
    let word = |at: u64| {
        let word = image.bytes(at, 8)?.try_into().ok()?;
        Some(Pointer { at, to: u64::from_le_bytes(word) })
    };
    found.extend(dynamic.packed(image).into_iter().filter_map(word));
    if image.header.e_type.get(Le) == elf::ET_EXEC {
        // Without relocations, any word may be an address; most are far from any code.
        let code = || image.segments.iter().filter(|segment| segment.executable);
        let first = code().map(|segment| segment.address.0).min().unwrap_or(0);
        let end = code().map(|segment| segment.address.0 + segment.memory_size).max().unwrap_or(0);
        let may_be_code = first..end;
        for (address, data) in image.data_areas() {
            let start = address.next_multiple_of(8);
            let words: &[U64<Le>] = whole(data.get((start - address) as usize..).unwrap_or_default());
            let words = (start..).step_by(8).zip(words).map(|(at, word)| Pointer { at, to: word.get(Le) });
            found.extend(words.filter(|pointer| may_be_code.contains(&pointer.to)));
        }
    }
    found.retain(|pointer| image.is_code(pointer.to));
    found.sort_unstable_by_key(|pointer| pointer.at);
    found
}

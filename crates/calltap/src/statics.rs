//! Sites of functions with the `traced` attribute: records in a section of the file.
//!
//! A record is the distance from itself to the site (8 bytes), a mark where the site passes a
//! frame, the function's name, a zero, and zeros up to a multiple of 8. Distances need no
//! relocation, so the section is the same in the file and in memory.

use object::LittleEndian as Le;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::read::{ReadCache, ReadRef};
use std::fs::File;

const SECTION: &[u8] = b"calltap_sites";
/// The instruction at a site.
pub(crate) const NOP: [u8; 5] = [0x0F, 0x1F, 0x44, 0, 0];

/// A site.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// Link-time address.
    pub address: u64,
    pub name: String,
    pub place: SitePosition,
}

/// The place of a site, and its argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SitePosition {
    /// Anywhere in a function; it has no argument.
    Alone,
    /// At a function's beginning; its argument is the frame, which keeps the call's data until its
    /// end.
    Entry,
    /// In the drop of such a frame, which is its argument.
    End,
}

/// Returns the place and the name in a record.
fn marked(text: &[u8]) -> (SitePosition, String) {
    let (place, name) = match text {
        [1, name @ ..] => (SitePosition::Entry, name),
        [2, name @ ..] => (SitePosition::End, name),
        name => (SitePosition::Alone, name),
    };
    (place, String::from_utf8_lossy(name).into_owned())
}

/// Whether the file has any records. Reads its headers only.
pub(crate) fn has_any(file: &File) -> bool {
    section(&ReadCache::new(file)).is_some()
}

/// Returns all records of a file.
pub(crate) fn read(data: &[u8]) -> Vec<Record> {
    section(data).map(|(address, bytes)| parse(address, bytes)).unwrap_or_default()
}

/// Returns address and bytes of the section of records.
fn section<'d, R: ReadRef<'d>>(data: R) -> Option<(u64, &'d [u8])> {
    let header = FileHeader64::<Le>::parse(data).ok()?;
    let sections = header.sections(Le, data).ok()?;
    let (_, section) = sections.section_by_name(Le, SECTION)?;
    Some((section.sh_addr.get(Le), section.data(Le, data).ok()?))
}

/// Parses the records of a section.
fn parse(address: u64, bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some((distance, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) {
        let distance = u64::from_le_bytes(*distance);
        // Linkers may leave gaps between the parts of a section.
        if distance == 0 {
            at += 8;
            continue;
        }
        let length = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let (place, name) = marked(&rest[..length]);
        records.push(Record { address: address.wrapping_add(at as u64).wrapping_add(distance), name, place });
        at = (at + 8 + length + 1).next_multiple_of(8);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::{Record, SitePosition, parse};

    #[test]
    fn records_follow_one_another() {
        let mut bytes = Vec::new();
        for (distance, name) in [(-64i64, "one"), (-80, "\u{1}seven7"), (0, ""), (-8, "\u{2}")] {
            bytes.extend(distance.to_le_bytes());
            if distance != 0 {
                bytes.extend(name.bytes().chain([0]));
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
        }
        let expected = [
            (0x1000 - 64, "one", SitePosition::Alone),
            (0x1010 - 80, "seven7", SitePosition::Entry),
            (0x1028 - 8, "", SitePosition::End),
        ];
        assert_eq!(
            parse(0x1000, &bytes),
            expected.map(|(address, name, place)| Record { address, name: name.to_owned(), place })
        );
        for length in 0..bytes.len() {
            parse(0x1000, &bytes[..length]);
        }
    }
}

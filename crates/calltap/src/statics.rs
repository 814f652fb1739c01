//! Sites of functions with the `traced` attribute: records in a section of the file.
//!
//! A record is the distance from itself to the site (8 bytes), the function's name, a zero, and zeros up to a multiple of 8. Distances need no
//! relocation, so what is in the file is what is in memory.

use object::LittleEndian as Le;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::read::{ReadCache, ReadRef};
use std::fs::File;

const SECTION: &[u8] = b"calltap_sites";
/// The instruction that a site is.
pub const NOP: [u8; 5] = [0x0F, 0x1F, 0x44, 0, 0];

/// Address in the file's terms and name.
pub type Record = (u64, String);

/// Does the file have any? Reads its headers only.
pub fn has_any(file: &File) -> bool {
    section(&ReadCache::new(file)).is_some()
}

/// All records of a file.
pub fn read(data: &[u8]) -> Vec<Record> {
    section(data).map(|(address, bytes)| parse(address, bytes)).unwrap_or_default()
}

fn section<'d, R: ReadRef<'d>>(data: R) -> Option<(u64, &'d [u8])> {
    let header = FileHeader64::<Le>::parse(data).ok()?;
    let sections = header.sections(Le, data).ok()?;
    let (_, section) = sections.section_by_name(Le, SECTION)?;
    Some((section.sh_addr.get(Le), section.data(Le, data).ok()?))
}

fn parse(address: u64, bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some((distance, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) {
        let distance = u64::from_le_bytes(*distance);
        // Linkers may leave room between the parts of a section.
        if distance == 0 {
            at += 8;
            continue;
        }
        let length = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let name = String::from_utf8_lossy(&rest[..length]).into_owned();
        records.push((address.wrapping_add(at as u64).wrapping_add(distance), name));
        at = (at + 8 + length + 1).next_multiple_of(8);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn records_follow_one_another() {
        let mut bytes = Vec::new();
        for (distance, name) in [(-64i64, "one"), (-80, "seven77"), (0, ""), (-8, "")] {
            bytes.extend(distance.to_le_bytes());
            if distance != 0 {
                bytes.extend(name.bytes().chain([0]));
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
        }
        let expected = [(0x1000 - 64, "one"), (0x1010 - 80, "seven77"), (0x1028 - 8, "")];
        assert_eq!(parse(0x1000, &bytes), expected.map(|(at, name)| (at, name.to_owned())));
        for length in 0..bytes.len() {
            parse(0x1000, &bytes[..length]);
        }
    }
}

//! A file in memory, without what nobody looks at.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::LittleEndian as Le;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, SectionHeader as _};

/// The bytes of an ELF file for [`crate::read`], with zeros for its debugging information, which may be many times as large
/// as the program.
pub fn load(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    // Pages of zeros that are never written take no memory.
    let mut data = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut left_out = for_debuggers(file, length).unwrap_or_default();
    left_out.push(length..length);
    let mut start = 0;
    for range in left_out {
        if let Some(part) = data.get_mut(start as usize..range.start as usize) {
            file.read_exact_at(part, start)?;
        }
        start = start.max(range.end);
    }
    Ok(data)
}

/// Where the names of stripped functions are, or where to find them.
const NAMES: [&[u8]; 2] = [b".gnu_debugdata", b".gnu_debuglink"];

/// The places in the file, sorted, of what is not loaded and is no table of symbols or strings.
fn for_debuggers(file: &File, length: u64) -> object::Result<Vec<Range<u64>>> {
    let data = &ReadCache::new(file);
    let sections = FileHeader64::<Le>::parse(data)?.sections(Le, data)?;
    let mut ranges: Vec<Range<u64>> = sections
        .iter()
        .filter(|section| section.sh_type(Le) == elf::SHT_PROGBITS)
        .filter(|section| section.sh_flags(Le).0 & elf::SHF_ALLOC.0 == 0)
        .filter(|section| !sections.section_name(Le, section).is_ok_and(|name| NAMES.contains(&name)))
        .filter_map(|section| section.file_range(Le))
        .filter_map(|(offset, size)| Some(offset..offset.checked_add(size)?))
        .filter(|range| range.end <= length)
        .collect();
    ranges.sort_by_key(|range| range.start);
    Ok(ranges)
}

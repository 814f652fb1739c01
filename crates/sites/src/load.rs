//! Loads a file into memory, without the parts that no view shows.
//!
//! Users may put files of any size in front of calltap. So the length of a file, the bytes that are
//! read of it, and its share of holes are bounded.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use object::LittleEndian as Le;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::read::{ReadCache, ReadRef};

/// Bytes of the longest file that is read.
const MAX_FILE_LEN: u64 = 16 << 30;
/// Maximum number of bytes that are read of one file.
pub(crate) const MAX_READ: u64 = 2 << 30;
/// A longer file is refused as sparse if less than a sixteenth of it is allocated.
const MAY_BE_SPARSE: u64 = 64 << 20;

const O_NONBLOCK: i32 = 0o4000;
const O_NOFOLLOW: i32 = 0o400000;

/// Opens a regular file for reading. Refuses a pipe or a device instead of waiting for it.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, O_NONBLOCK)
}

/// Opens a regular file as [`open`] does, but follows no symbolic link: in another process's root
/// directory the link would lead elsewhere.
pub fn open_itself(path: &Path) -> io::Result<File> {
    open_with(path, O_NONBLOCK | O_NOFOLLOW)
}

fn open_with(path: &Path, flags: i32) -> io::Result<File> {
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    // Opening a device may have a side effect.
    if !fs::metadata(path)?.is_file() {
        return Err(no_file());
    }
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_file()) }
}

/// Reads an ELF file for [`crate::read()`]. Its debugging information, which may be many times as
/// large as the program, is replaced by zeros.
pub fn load(file: &File) -> io::Result<Vec<u8>> {
    load_but(file, |length| for_debuggers(file, length).unwrap_or_default())
}

/// Reads all bytes of a file.
pub fn load_all(file: &File) -> io::Result<Vec<u8>> {
    load_but(file, |_| Vec::new())
}

/// Reads a file, with zeros in the left-out ranges, which are sorted.
fn load_but(file: &File, left_out: impl FnOnce(u64) -> Vec<Range<u64>>) -> io::Result<Vec<u8>> {
    let length = checked_length(file)?;
    let mut wanted = Vec::new();
    let mut start = 0;
    for range in left_out(length).into_iter().chain(std::iter::once(length..length)) {
        if start < range.start {
            wanted.push(start..range.start);
        }
        start = start.max(range.end);
    }
    if wanted.iter().map(|range| range.end - range.start).sum::<u64>() > MAX_READ {
        return Err(too_large(format!("more than {} MiB would have to be read of it", MAX_READ >> 20)));
    }
    let length = usize::try_from(length).map_err(io::Error::other)?;
    // An impossible allocation fails here with an error; below it would abort the process.
    Vec::<u8>::new().try_reserve_exact(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // Pages of zeros that are never written take no memory.
    let mut data = vec![0; length];
    for range in wanted {
        if let Some(part) = data.get_mut(range.start as usize..range.end as usize) {
            file.read_exact_at(part, range.start)?;
        }
    }
    Ok(data)
}

fn too_large(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("too large to be read: {why}"))
}

/// Returns the length of a file, or an error if it must not be read.
fn checked_length(file: &File) -> io::Result<u64> {
    let meta = file.metadata()?;
    let (length, allocated) = (meta.len(), meta.blocks().saturating_mul(512));
    if length > MAX_FILE_LEN {
        return Err(too_large(format!("it is {} GiB long", length >> 30)));
    }
    // Some file systems report no allocated blocks.
    if length > MAY_BE_SPARSE && allocated > 0 && allocated < length / 16 {
        return Err(too_large(format!("it is {} MiB long, and nearly all of it is a hole", length >> 20)));
    }
    Ok(length)
}

/// A file that is read in parts, within a [budget](MAX_READ).
#[derive(Clone, Copy)]
pub(crate) struct Parts<'f> {
    cache: &'f ReadCache<&'f File>,
    left: &'f Cell<u64>,
}

impl<'f> Parts<'f> {
    /// Creates a reader that may read `left` bytes.
    pub(crate) fn new(cache: &'f ReadCache<&'f File>, left: &'f Cell<u64>) -> Parts<'f> {
        Parts { cache, left }
    }
}

impl<'f> ReadRef<'f> for Parts<'f> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'f [u8], ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'f [u8], ()> {
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

/// Sections that have the names of stripped functions, or refer to a file with them.
const NAMES: [&[u8]; 2] = [b".gnu_debugdata", b".gnu_debuglink"];

/// Returns the file ranges, sorted, of sections that are neither loaded nor tables of symbols or
/// strings.
fn for_debuggers(file: &File, length: u64) -> object::Result<Vec<Range<u64>>> {
    let (cache, left) = (ReadCache::new(file), Cell::new(MAX_READ));
    let data = Parts::new(&cache, &left);
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

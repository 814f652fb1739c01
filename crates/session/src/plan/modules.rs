//! What a process has loaded, and what can be traced in it.

use crate::plan::directory::is_session_file;
use crate::plan::journal::NO_FILE;
use calltap_names::printable;
use calltap_patch::{Avma, Bias};
use calltap_process::memory::maps::Region;
use calltap_process::proc;
use calltap_sites::Binary;
use calltap_sites::open_itself;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file mapped executable into a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Path in the process's view.
    pub path: PathBuf,
    /// Device and inode.
    pub file: (String, u64),
    /// First and one-past-last address of all its mappings.
    pub range: (u64, u64),
    /// File offset and address of its first executable mapping,
    pub text: (u64, u64),
    /// and one past its last address.
    text_end: u64,
}

/// What tells a version of a file from another.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    file: (String, u64),
    size: u64,
    changed: (i64, i64),
}

impl Identity {
    /// Of a file with device and inode as `/proc/PID/maps` shows them.
    pub fn of(file: &(String, u64), meta: &fs::Metadata) -> Identity {
        Identity { file: file.clone(), size: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) }
    }
}

/// What code is called that is in no file.
const MADE: &str = "[jit]";

/// Between two segments of one object lies no more than this.
const GAP: u64 = 64 << 20;

/// The files a process has mapped executable, by address. `session` is the session's own directory: its files, and those of [earlier sessions](is_session_file), do not count.
pub fn mapped(regions: &[Region], session: &Path) -> Vec<Mapped> {
    let mut found: Vec<Mapped> = Vec::new();
    let is_own = |region: &Region| region.path.starts_with(session) || is_session_file(&region.path);
    for region in regions.iter().filter(|region| region.file.1 != 0 && !is_own(region)) {
        let same = |mapped: &&mut Mapped| {
            // Not what the program maps of the same file for itself, somewhere else.
            mapped.file == region.file && region.start - mapped.range.1 <= GAP
        };
        // The segments of one object follow each other; a second copy of a file (dlmopen) starts again at offset 0.
        match found.last_mut().filter(same).filter(|_| region.offset != 0) {
            Some(mapped) => {
                mapped.range.1 = region.end;
                if region.executable && mapped.text.1 == 0 {
                    (mapped.text, mapped.text_end) = ((region.offset, region.start), region.end);
                }
            }
            None => {
                let text = if region.executable { (region.offset, region.start) } else { (0, 0) };
                let (range, text_end) = ((region.start, region.end), region.end);
                let (path, file) = (region.path.clone(), region.file.clone());
                found.push(Mapped { path, file, range, text, text_end });
            }
        }
    }
    found.retain(|mapped| mapped.text.1 != 0);
    found
}

impl Mapped {
    /// Code that is of no program file: made at run time, in this mapping.
    pub fn made(region: &Region) -> Mapped {
        let path = if region.path.as_os_str().is_empty() { MADE.into() } else { region.path.clone() };
        let range = (region.start, region.end);
        Mapped { path, file: (String::new(), NO_FILE), range, text: (0, region.start), text_end: region.end }
    }

    /// Where the file's first byte would be, going by its text.
    pub fn base(&self) -> u64 {
        self.text.1.wrapping_sub(self.text.0)
    }

    /// Bytes of its first executable mapping.
    pub fn text_bytes(&self) -> u64 {
        self.text_end - self.text.1
    }

    /// Does the address lie between its first and its last mapping?
    pub fn contains(&self, address: Avma) -> bool {
        (self.range.0..self.range.1).contains(&address.0)
    }

    /// The same file at the same place; its path may change (it was deleted), and what else is mapped of it.
    pub fn is_same(&self, other: &Mapped) -> bool {
        (&self.file, self.text) == (&other.file, other.text)
    }

    /// The file as it is now: another one may get its inode, and it may be written to.
    pub fn identity(&self, pid: u32) -> Option<Identity> {
        Some(Identity::of(&self.file, &self.open(pid)?.metadata().ok()?))
    }

    /// What the loader added to the file's addresses.
    pub fn bias(&self, binary: &Binary) -> Option<Bias> {
        let (offset, address) = self.text;
        let inside = |segment: &&calltap_sites::Segment| {
            let start = segment.file_offset & !0xfff;
            segment.executable && (start..segment.file_offset + segment.file_size).contains(&offset)
        };
        let segment = binary.segments.iter().find(inside)?;
        Some(Bias(
            address.wrapping_sub(segment.address.0.wrapping_sub(segment.file_offset).wrapping_add(offset)),
        ))
    }

    /// File name without directories.
    pub fn name(&self) -> String {
        printable(&self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy()).into_owned()
    }

    /// Opens the file: itself where that is permitted, also if it was deleted or replaced since; else by its name in the process's root directory (it
    /// may be in another mount namespace).
    pub fn open(&self, pid: u32) -> Option<File> {
        let place = proc::place(pid);
        let itself = place.join("map_files").join(format!("{:x}-{:x}", self.text.1, self.text_end));
        let inside =
            || open_itself(&place.join("root").join(self.path.strip_prefix("/").unwrap_or(&self.path)));
        File::open(itself).or_else(|_| inside()).or_else(|_| open_itself(&self.path)).ok()
    }
}

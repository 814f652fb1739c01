//! The files that a process has mapped, and their identities.

use crate::plan::directory::is_session_file;
use crate::plan::journal::NO_FILE;
use calltap_abi::PAGE;
use calltap_names::{ModuleNames, printable};
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
pub(crate) struct Mapped {
    /// Path in the process's view.
    pub path: PathBuf,
    /// Name of the symbolic link through which the program was started from the file.
    pub link: Option<String>,
    /// Device and inode.
    pub file: (String, u64),
    /// Start, and end exclusive, of all its mappings.
    pub range: (u64, u64),
    /// File offset and address of its first executable mapping.
    pub text: (u64, u64),
    /// End of its first executable mapping, exclusive.
    text_end: u64,
}

/// Version of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    file: (String, u64),
    size: u64,
    changed: (i64, i64),
}

impl Identity {
    /// Returns the version of a file with device and inode as in `/proc/PID/maps`.
    pub(crate) fn of(file: &(String, u64), meta: &fs::Metadata) -> Identity {
        Identity { file: file.clone(), size: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) }
    }
}

/// Name of code that is in no file.
const MADE: &str = "[jit]";

/// Maximum distance between two segments of one object.
const GAP: u64 = 64 << 20;

/// Returns the files that a process has mapped executable, by the address of their text. Files of
/// the session directory `session`, and those of [earlier sessions](is_session_file), do not count,
/// nor does [shared text](is_shared_text).
pub(crate) fn mapped(regions: &[Region], session: &Path) -> Vec<Mapped> {
    let mut found: Vec<Mapped> = Vec::new();
    let is_own = |region: &Region| region.path.starts_with(session) || is_session_file(&region.path);
    for region in regions.iter().filter(|region| region.file.1 != 0 && !is_own(region)) {
        let same = |mapped: &&mut Mapped| {
            // The program itself may map the same file elsewhere, which is not part of the object.
            mapped.file == region.file && region.start - mapped.range.1 <= GAP
        };
        // The segments of one object are adjacent; a second copy of a file (dlmopen) starts again
        // at offset 0.
        match found.last_mut().filter(same).filter(|_| region.offset != 0) {
            Some(mapped) => {
                mapped.range.1 = region.end;
                if is_text(region) && mapped.text.1 == 0 {
                    (mapped.text, mapped.text_end) = ((region.offset, region.start), region.end);
                }
            }
            None => {
                let text = if is_text(region) { (region.offset, region.start) } else { (0, 0) };
                let (range, text_end) = ((region.start, region.end), region.end);
                let (path, file) = (region.path.clone(), region.file.clone());
                found.push(Mapped { path, link: None, file, range, text, text_end });
            }
        }
    }
    found.retain(|mapped| mapped.text.1 != 0);
    found.sort_by_key(|mapped| mapped.text.1);
    found
}

fn is_text(region: &Region) -> bool {
    region.executable && !is_shared_text(region)
}

/// Whether a change of the text in this mapping would reach its file, and the other processes that
/// have mapped it. The kernel changes a shared mapping only if it is writable.
pub(crate) fn is_shared_text(region: &Region) -> bool {
    region.executable && region.shared && region.writable
}

/// Whether a file is among those that [`mapped`] has returned.
pub(crate) fn is_among(all: &[Mapped], one: &Mapped) -> bool {
    let found = all.binary_search_by_key(&one.text.1, |mapped| mapped.text.1);
    found.is_ok_and(|n| all[n].is_same(one))
}

impl Mapped {
    /// Returns code that is in no program file, but was made at run time in this mapping.
    pub(crate) fn made(region: &Region) -> Mapped {
        let path = if region.path.as_os_str().is_empty() { MADE.into() } else { region.path.clone() };
        let range = (region.start, region.end);
        let (file, text) = ((String::new(), NO_FILE), (0, region.start));
        Mapped { path, link: None, file, range, text, text_end: region.end }
    }

    /// Returns the address that corresponds to the file's first byte, according to its text.
    pub(crate) fn base(&self) -> u64 {
        self.text.1.wrapping_sub(self.text.0)
    }

    /// Returns the size of its first executable mapping.
    pub(crate) fn text_bytes(&self) -> u64 {
        self.text_end - self.text.1
    }

    /// Whether an address lies between its first and its last mapping.
    pub(crate) fn contains(&self, address: Avma) -> bool {
        (self.range.0..self.range.1).contains(&address.0)
    }

    /// Whether this is the same file at the same place. Its path may change when it is deleted, and
    /// so may its other mappings.
    pub(crate) fn is_same(&self, other: &Mapped) -> bool {
        (&self.file, self.text) == (&other.file, other.text)
    }

    /// Returns the current version of the file: another file may get its inode, and it may be
    /// written to.
    pub(crate) fn identity(&self, pid: u32) -> Option<Identity> {
        Some(Identity::of(&self.file, &self.open(pid)?.metadata().ok()?))
    }

    /// Returns the difference between run-time and link-time addresses.
    pub(crate) fn bias(&self, binary: &Binary) -> Option<Bias> {
        let (offset, address) = self.text;
        let inside = |segment: &&calltap_sites::Segment| {
            let start = segment.file_offset / PAGE * PAGE;
            segment.executable && (start..segment.file_offset + segment.file_size).contains(&offset)
        };
        let segment = binary.segments.iter().find(inside)?;
        Some(Bias(
            address.wrapping_sub(segment.address.0.wrapping_sub(segment.file_offset).wrapping_add(offset)),
        ))
    }

    /// Returns the path by which the process has opened the file: that of another file now if the
    /// file was [replaced](Mapped::is_replaced).
    pub(crate) fn former_path(&self) -> &Path {
        proc::without_deleted(&self.path)
    }

    /// Whether the file was removed or replaced since the process has mapped it.
    pub(crate) fn is_replaced(&self) -> bool {
        self.former_path() != self.path
    }

    /// Returns the file name without directories; of a file that was deleted or replaced, its
    /// former name.
    pub(crate) fn name(&self) -> String {
        let path = self.former_path();
        printable(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()).into_owned()
    }

    /// Returns the names by which words select it. `file`: its [file name](Mapped::name).
    pub(crate) fn names<'n>(&'n self, file: &'n str) -> ModuleNames<'n> {
        ModuleNames { file, link: self.link.as_deref() }
    }

    /// Opens the file: the mapped one where permitted, even if it was deleted or replaced since.
    /// Otherwise opens it by its name in the process's root directory, which may be in another
    /// mount namespace.
    pub(crate) fn open(&self, pid: u32) -> Option<File> {
        let place = proc::place(pid);
        let itself = place.join("map_files").join(format!("{:x}-{:x}", self.text.1, self.text_end));
        let inside =
            || open_itself(&place.join("root").join(self.path.strip_prefix("/").unwrap_or(&self.path)));
        File::open(itself).or_else(|_| inside()).or_else(|_| open_itself(&self.path)).ok()
    }
}

//! Queries for single mappings of a process (PROCMAP_QUERY, Linux 6.11). A process of a thousand
//! threads has two thousand mappings: the kernel takes milliseconds to write their lines, while a
//! stop needs only a few.
//!
//! Unsafe because the request has no safe wrapper.
#![allow(unsafe_code)]

use super::Region;
use crate::proc;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong = 0xC068_6611;
/// Flag: the mapping around an address, or the next one above it.
const COVERING_OR_NEXT: u64 = 0x10;
const WRITABLE: u64 = 0x2;
const EXECUTABLE: u64 = 0x4;
const SHARED: u64 = 0x8;
const FILE_BACKED: u64 = 0x20;
/// PATH_MAX, the length of the longest name that the kernel writes.
const MAX_NAME_LEN: usize = 4096;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Answer {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    protection: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// The kind of mappings to query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    All,
    Executable,
    OfFiles,
}

/// The open `/proc/PID/maps` of a process.
#[derive(Debug)]
pub(super) struct Query(File);

impl Query {
    /// Opens the mappings of a process. None if the kernel is older, or if the first thread of the
    /// process has ended: its file shows no mapping.
    pub(super) fn open(pid: u32) -> Option<Query> {
        let query = Query(File::open(proc::place(pid).join("maps")).ok()?);
        query.next(0, Which::All).ok()?.map(|_| query)
    }

    /// Returns the first mapping of a kind that ends above an address, without its name.
    pub(super) fn next(&self, address: u64, which: Which) -> io::Result<Option<Region>> {
        self.ask(address, which, &mut [])
    }

    /// Returns all mappings of a kind, in the order of addresses.
    pub(super) fn all(&self, which: Which) -> io::Result<Vec<Region>> {
        let (mut all, mut name) = (Vec::new(), [0; MAX_NAME_LEN]);
        let mut address = 0;
        while let Some(region) = self.ask(address, which, &mut name)? {
            address = region.end;
            all.push(region);
        }
        Ok(all)
    }

    fn ask(&self, address: u64, which: Which, name: &mut [u8]) -> io::Result<Option<Region>> {
        let kind = match which {
            Which::All => 0,
            Which::Executable => EXECUTABLE,
            Which::OfFiles => FILE_BACKED,
        };
        let mut answer = Answer {
            size: size_of::<Answer>() as u64,
            flags: COVERING_OR_NEXT | kind,
            address,
            name_size: name.len() as u32,
            name: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
            ..Answer::default()
        };
        // SAFETY: the kernel reads and writes `answer`, whose size it is given, and writes no more
        // than `name_size` bytes to `name`.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), PROCMAP_QUERY, &raw mut answer) };
        if done < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) };
        }
        // The size includes the terminating zero; it is 0 for a mapping without a name.
        let name = name.get(..(answer.name_size as usize).saturating_sub(1)).unwrap_or_default();
        let [major, minor] = answer.device;
        Ok(Some(Region {
            start: answer.start,
            end: answer.end,
            writable: answer.protection & WRITABLE != 0,
            executable: answer.protection & EXECUTABLE != 0,
            shared: answer.protection & SHARED != 0,
            offset: answer.offset,
            file: (format!("{major:02x}:{minor:02x}"), answer.inode),
            path: OsStr::from_bytes(name).into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::maps;

    #[test]
    fn queries_and_lines_say_the_same_of_code_and_files() {
        let own = std::process::id();
        let Some(query) = Query::open(own) else {
            eprintln!("SKIPPED: the kernel has no PROCMAP_QUERY");
            return;
        };
        let lines = maps::read(own).expect("the mappings of this process");
        let code: Vec<&Region> = lines.iter().filter(|region| region.executable).collect();
        // The kernel's own page in its half of the address space is no mapping of the process.
        let code: Vec<&Region> = code.into_iter().filter(|region| region.name() != "[vsyscall]").collect();
        let files: Vec<&Region> = lines.iter().filter(|region| region.file.1 != 0).collect();
        assert!(code.len() > 2 && files.len() > 2);
        assert_eq!(query.all(Which::Executable).expect("code").iter().collect::<Vec<_>>(), code);
        assert_eq!(query.all(Which::OfFiles).expect("files").iter().collect::<Vec<_>>(), files);
    }

    #[test]
    fn the_mapping_around_an_address_or_the_next_is_found() {
        let own = std::process::id();
        let Some(query) = Query::open(own) else {
            eprintln!("SKIPPED: the kernel has no PROCMAP_QUERY");
            return;
        };
        let lines = maps::read(own).expect("the mappings of this process");
        let stack = lines.iter().find(|region| region.name() == "[stack]").expect("a stack");
        let around = query.next(stack.end - 8, Which::All).expect("an answer").expect("a mapping");
        assert_eq!((around.end, around.writable), (stack.end, true));
        let first = query.next(0, Which::All).expect("an answer").expect("a mapping");
        assert_eq!((first.start, first.end), (lines[0].start, lines[0].end));
        assert!(query.next(u64::MAX - 1, Which::All).expect("an answer").is_none());
    }
}

//! The mappings of a process, read from `/proc/PID/maps`, and the search for free gaps between
//! them.

mod query;

use crate::proc;
use calltap_abi::{PAGE, USER_END};
use calltap_sites::open_itself;
use query::{Query, Which};
use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The kernel's name of the data segment's extension.
const HEAP: &str = "[heap]";
/// Start of the kernel's half of the address space.
const KERNEL: u64 = 1 << 63;

/// A mapping of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// Whether the mapping is writable.
    pub writable: bool,
    /// Whether the mapping is executable.
    pub executable: bool,
    /// Whether the mapping is shared: what is written to it reaches the file, and other processes.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device and inode of the file; inode 0 means no file.
    pub file: (String, u64),
    /// Path, as the kernel shows it to calltap; `[heap]` and the like for the kernel's own.
    pub path: PathBuf,
}

/// Reads the mappings of a process, in the order of addresses. If the first thread has ended, reads
/// them through another thread.
pub fn read(pid: u32) -> io::Result<Vec<Region>> {
    read_passing(pid, |_| true)
}

/// Returns the mapping around an address, without its name. Reading all of them can take longer
/// than a process may be stopped.
pub fn around(pid: u32, address: u64) -> io::Result<Option<Region>> {
    match Query::open(pid).map(|query| query.next(address, Which::All)) {
        Some(Ok(region)) => Ok(region.filter(|region| region.contains(address))),
        _ => Ok(at(&read(pid)?, address).cloned()),
    }
}

/// Reads the mappings that are executable or of a file.
pub fn code_and_files(pid: u32) -> io::Result<Vec<Region>> {
    let asked = Query::open(pid).and_then(|query| asked_code_and_files(&query).ok());
    asked.map_or_else(|| read_passing(pid, is_code_or_file), Ok)
}

fn asked_code_and_files(query: &Query) -> io::Result<Vec<Region>> {
    let mut all = query.all(Which::OfFiles)?;
    all.extend(query.all(Which::Executable)?);
    all.sort_by_key(|region| region.start);
    all.dedup_by_key(|region| region.start);
    Ok(all)
}

/// Whether a line shows executable memory, or a file.
fn is_code_or_file(line: &str) -> bool {
    let mut words = line.split(' ');
    let is_executable = words.nth(1).is_some_and(|protection| protection.as_bytes().get(2) == Some(&b'x'));
    is_executable || words.nth(2).is_some_and(|inode| inode != "0")
}

/// Reads the mappings whose lines pass.
fn read_passing(pid: u32, passes: impl Fn(&str) -> bool) -> io::Result<Vec<Region>> {
    let parse_all =
        |text: String| text.lines().filter(|line| passes(line)).filter_map(parse).collect::<Vec<Region>>();
    let first = fs::read_to_string(format!("/proc/{pid}/maps")).map(parse_all);
    if first.as_ref().is_ok_and(|regions| !regions.is_empty()) {
        return first;
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("maps")).ok()).map(parse_all);
    texts.into_iter().find(|regions| !regions.is_empty()).map_or(first, Ok)
}

/// The mappings of a process whose threads are stopped, read as far as the search of stacks needs
/// them.
#[derive(Debug)]
pub struct Mappings<'a> {
    /// All mappings, or [code and files](code_and_files).
    known: &'a [Region],
    /// The process id, and the source of the other mappings.
    others: Option<(u32, OnceCell<Others>)>,
}

/// The source of mappings that are neither executable nor of files.
#[derive(Debug)]
enum Others {
    Asked(Query),
    /// All mappings, of a kernel without PROCMAP_QUERY.
    Read(Vec<Region>),
}

impl<'a> Mappings<'a> {
    /// Wraps the list of all mappings.
    pub fn known(all: &'a [Region]) -> Mappings<'a> {
        Mappings { known: all, others: None }
    }

    /// Wraps [code and files](code_and_files) of a process. The other mappings are queried on
    /// demand.
    pub fn asked(pid: u32, code: &'a [Region]) -> Mappings<'a> {
        Mappings { known: code, others: Some((pid, OnceCell::new())) }
    }

    /// Returns at least all code and files.
    pub fn code(&self) -> &'a [Region] {
        self.known
    }

    /// Returns the process, with its code and files, if other mappings are queried on demand.
    pub fn process(&self) -> Option<(u32, &'a [Region])> {
        self.others.as_ref().map(|(pid, _)| (*pid, self.known))
    }

    /// Returns the first mapping that ends above an address.
    pub fn next(&self, address: u64) -> Option<Region> {
        let of = |all: &[Region]| all.get(all.partition_point(|region| region.end <= address)).cloned();
        match &self.others {
            None => of(self.known),
            Some((pid, others)) => match others.get_or_init(|| Others::of(*pid)) {
                Others::Asked(query) => query.next(address, Which::All).ok().flatten(),
                Others::Read(all) => of(all),
            },
        }
    }
}

impl Others {
    fn of(pid: u32) -> Others {
        let read = || Others::Read(read(pid).unwrap_or_default());
        Query::open(pid).map_or_else(read, Others::Asked)
    }
}

/// Returns the ranges of code that the process itself may write to.
pub(crate) fn writable_code(pid: u32) -> Vec<(u64, u64)> {
    let regions = code_and_files(pid).unwrap_or_default();
    let writable = regions.iter().filter(|region| region.executable && region.writable);
    writable.map(|region| (region.start, region.end)).collect()
}

/// Returns the stack of a thread around an address: the mapping, and the free range below that it
/// may grow into.
pub fn stack_around(pid: u32, tid: u32, address: u64) -> Option<Range<u64>> {
    let regions = read(pid).ok()?;
    let n = regions.iter().position(|region| (region.start..region.end).contains(&address))?;
    // The first thread's stack has a name; other memory that it may run on is not its own.
    if tid == pid && regions[n].name() != "[stack]" {
        return None;
    }
    let below = n.checked_sub(1).map_or(0, |below| regions[below].end);
    Some(below..regions[n].end)
}

/// Whether the process has extended its data segment, as the first allocation of the C library
/// does.
pub fn has_heap(regions: &[Region]) -> bool {
    regions.iter().any(|region| region.path.as_os_str() == HEAP)
}

/// Returns the lowest address that may be mapped.
pub fn lowest_address() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/mmap_min_addr").unwrap_or_default();
    text.trim().parse::<u64>().unwrap_or(0).max(0x10000)
}

/// Returns the first address of memory above [`USER_END`], which a process can map with five levels
/// of page tables. The kernel's own page `[vsyscall]` is in the other half of the address space.
pub(crate) fn above_user_end(regions: &[Region]) -> Option<u64> {
    let is_above = |start: &u64| (USER_END..KERNEL).contains(start);
    regions.iter().map(|region| region.start).find(is_above)
}

/// Returns the address ranges of the text of files whose name passes.
pub(crate) fn text_of(regions: &[Region], passes: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
    let own = regions.iter().filter(|region| region.executable && passes(region.name()));
    own.map(|region| (region.start, region.end)).collect()
}

impl Region {
    /// Whether an address lies in this region.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the file's name without directories, or an empty string if there is none.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Opens the mapped file: by `map_files` where that is permitted, else by its path, which may
    /// by now be another file's.
    pub fn open(&self, pid: u32) -> io::Result<File> {
        let place = proc::place(pid);
        let itself = place.join("map_files").join(format!("{:x}-{:x}", self.start, self.end));
        let named =
            || open_itself(&place.join("root").join(self.path.strip_prefix("/").unwrap_or(&self.path)));
        File::open(itself).or_else(|_| named())
    }

    /// Returns the bytes that the file has now for an address in this region.
    pub fn in_file(&self, pid: u32, address: u64, length: usize) -> Option<Vec<u8>> {
        let offset = self.offset + address.checked_sub(self.start)?;
        let mut bytes = vec![0; length];
        self.open(pid).ok()?.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// Whether the region lies in the kernel's half of the address space.
    pub fn is_kernels(&self) -> bool {
        self.start >= KERNEL
    }

    /// Whether the byte of a file at `offset` is mapped at an address in this region.
    pub fn shows(&self, address: u64, inode: u64, offset: u64) -> bool {
        (self.start..self.end).contains(&address)
            && self.file.1 == inode
            && self.offset + (address - self.start) == offset
    }

    /// Whether the region is part of a file whose first byte would be mapped at `base`.
    pub fn begins_at(&self, inode: u64, base: u64) -> bool {
        self.file.1 == inode && self.start.wrapping_sub(self.offset) == base
    }

    /// Returns a region that stands for a range already chosen for a mapping.
    pub fn taken(start: u64, length: u64) -> Region {
        Region {
            start,
            end: start + length,
            writable: false,
            executable: false,
            shared: false,
            offset: 0,
            file: (String::new(), 0),
            path: PathBuf::new(),
        }
    }
}

/// Returns the mapping that contains an address. `regions` are in the order of their addresses.
pub fn at(regions: &[Region], address: u64) -> Option<&Region> {
    let next = regions.partition_point(|region| region.end <= address);
    regions.get(next).filter(|region| region.contains(address))
}

fn parse(line: &str) -> Option<Region> {
    let mut rest = line;
    let mut word = || {
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail.trim_start();
        word
    };
    let (start, end) = word().split_once('-')?;
    let protection = word();
    let offset = word();
    let (device, inode) = (word(), word());
    Some(Region {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        writable: protection.as_bytes().get(1) == Some(&b'w'),
        executable: protection.as_bytes().get(2) == Some(&b'x'),
        shared: protection.as_bytes().get(3) == Some(&b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        file: (device.to_owned(), inode.parse().ok()?),
        path: PathBuf::from(rest),
    })
}

/// Bytes kept free above a heap, and below the first thread's stack.
const ROOM_TO_GROW: u64 = 1 << 30;

/// Bytes kept free above a heap where a window has no more: without its functions' returns, a Go
/// program is hardly traced, and its C code rarely has a large heap.
const LESS_ROOM_TO_GROW: u64 = 64 << 20;

/// Bytes kept free above calltap's mappings if possible: the kernel places new mappings, such as
/// stacks of new threads, downwards.
const ROOM_FOR_MORE: u64 = 256 << 20;

/// Minimum bytes kept free between existing mappings and calltap's.
const MARGIN: u64 = 1 << 20;

/// Finds a free range of `length` bytes from which `[start, end)` can be reached with a 32-bit
/// displacement, in both directions.
///
/// Tries below the module first, as the heap grows above it; then as far above as can be reached:
/// the heap of a program at a low address may begin anywhere within the gigabyte behind it.
/// `lowest` is the lowest address that the system allows to map.
pub fn gap_near(regions: &[Region], start: u64, end: u64, length: u64, lowest: u64) -> Option<u64> {
    const REACH: u64 = (1 << 31) - (1 << 20);
    let (reach_low, reach_high) = (end.saturating_sub(REACH).max(lowest), start.saturating_add(REACH));
    let is_right_below = |at: u64, stack: &Region| {
        stack.path.as_os_str() == "[stack]"
            && !regions.iter().any(|region| at < region.end && region.end <= stack.start)
    };
    let free = |at: u64, room: u64| {
        let room = |above: &Region| if is_right_below(at, above) { ROOM_TO_GROW } else { room };
        let is_clear =
            |region: &Region| region.end + MARGIN <= at || at + length + room(region) <= region.start;
        regions.iter().all(is_clear)
    };
    let below = |room: u64| {
        regions
            .iter()
            .filter(|region| region.start <= start)
            .rev()
            .filter_map(|region| region.start.checked_sub(room + length))
            .map(|at| at / PAGE * PAGE)
            .find(|at| *at >= reach_low && free(*at, room))
    };
    let is_heap = |region: &Region| region.path.as_os_str() == HEAP || region.end == end;
    let far_above = || {
        let heap = regions.iter().filter(|region| is_heap(region)).map(|region| region.end).max()?;
        let starts = regions.iter().filter(|region| region.start >= end);
        let ends = starts.filter_map(|region| region.start.checked_sub(MARGIN)).chain([reach_high]);
        let starts = ends.filter_map(|end| Some(end.checked_sub(length)? / PAGE * PAGE));
        let is_right = |at: &u64| {
            *at + length <= reach_high && *at >= heap.saturating_add(ROOM_TO_GROW) && free(*at, MARGIN)
        };
        starts.filter(is_right).max()
    };
    below(ROOM_FOR_MORE).or_else(|| below(MARGIN)).or_else(far_above).or_else(|| {
        regions
            .iter()
            .filter(|region| region.end >= end)
            .map(|region| {
                (region.end + if is_heap(region) { ROOM_TO_GROW } else { MARGIN }).next_multiple_of(PAGE)
            })
            .find(|at| at + length <= reach_high && free(*at, MARGIN))
    })
}

/// Finds the first free range of `length` bytes within a window, far from the heap if there is one.
/// `lowest` is the lowest address that the system allows to map.
pub fn gap_within(regions: &[Region], window: &Range<u64>, length: u64, lowest: u64) -> Option<u64> {
    let rooms = [ROOM_TO_GROW, LESS_ROOM_TO_GROW].into_iter();
    rooms.filter_map(|room| gap_within_behind_heap(regions, window, (length, room), lowest)).next()
}

/// Finds such a range with this much room for the heap.
fn gap_within_behind_heap(
    regions: &[Region],
    window: &Range<u64>,
    (length, room): (u64, u64),
    lowest: u64,
) -> Option<u64> {
    let start = window.start.max(lowest).next_multiple_of(PAGE);
    let taken = |region: &Region| match region.path.to_str() {
        Some(HEAP) => (region.start, region.end.saturating_add(room)),
        Some("[stack]") => (region.start.saturating_sub(ROOM_TO_GROW), region.end),
        _ => (region.start, region.end),
    };
    let free = |at: &u64| {
        let end = at.checked_add(length).filter(|end| *end <= window.end.min(USER_END));
        end.is_some_and(|end| regions.iter().map(taken).all(|(from, to)| to <= *at || end <= from))
    };
    let ends = regions.iter().map(|region| taken(region).1);
    let behind = ends.filter_map(|end| end.checked_next_multiple_of(PAGE)).filter(|end| *end > start);
    std::iter::once(start).chain(behind).filter(free).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: (u64, u64, bool, u64, u64, &str)) {
        let region = parse(line).expect("a valid line");
        let got = (
            region.start,
            region.end,
            region.executable,
            region.offset,
            region.file.1,
            region.path.to_str().unwrap(),
        );
        assert_eq!(got, expected);
    }

    #[test]
    fn memory_above_four_levels_of_page_tables_is_seen() {
        let highest = "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0    [stack]";
        let vsyscall = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    [vsyscall]";
        let asked_for = "80000000000000-80000000001000 rw-p 00000000 00:00 0";
        let regions = |lines: &[&str]| lines.iter().filter_map(|line| parse(line)).collect::<Vec<_>>();
        assert_eq!(above_user_end(&regions(&[highest, vsyscall])), None);
        assert_eq!(above_user_end(&regions(&[highest, asked_for, vsyscall])), Some(1 << 55));
    }

    #[test]
    fn lines_of_the_kernel_are_understood() {
        check(
            "7f0000001000-7f0000002000 r-xp 00003000 fe:00 1234                       /usr/lib/a b.so (deleted)",
            (0x7f00_0000_1000, 0x7f00_0000_2000, true, 0x3000, 1234, "/usr/lib/a b.so (deleted)"),
        );
        check(
            "7ffc0000-7ffd0000 rw-p 00000000 00:00 0    [stack]",
            (0x7ffc_0000, 0x7ffd_0000, false, 0, 0, "[stack]"),
        );
        check("1000-2000 rw-p 00000000 00:00 0 ", (0x1000, 0x2000, false, 0, 0, ""));
    }

    #[test]
    fn gap_is_below_module_if_large_enough_and_clear_of_heap_and_stack() {
        let region = |start, end, path: &str| Region {
            start,
            end,
            writable: false,
            executable: false,
            shared: false,
            offset: 0,
            file: (String::new(), 0),
            path: path.into(),
        };
        let pie = [
            region(0x5555_5000_0000, 0x5555_5010_0000, "prog"),
            region(0x5555_5100_0000, 0x5555_5200_0000, "[heap]"),
        ];
        let at = gap_near(&pie, 0x5555_5000_0000, 0x5555_5010_0000, 0x8000, 0x10000).unwrap();
        assert!(at < 0x5555_5000_0000 && at > 0x5554_d000_0000);
        // A heap may grow behind the library.
        let begin = 0x8000_0000 + (1 << 30);
        for distance in [3 << 20, 512 << 20, 2 << 30] {
            let stack = begin + 0x100_0000 + distance;
            let regions =
                [region(0x1000_0000, 0x8000_0000, "libc.so"), region(stack, stack + 0x2_0000, "[stack]")];
            let at = gap_near(&regions, 0x7000_0000, 0x8000_0000, 0x100_0000, 0x1000_0000).unwrap();
            let is_clear = at > stack || at + 0x100_0000 + (1 << 30) <= stack;
            assert!(at >= begin && is_clear, "{at:#x} for a stack {distance:#x} above");
        }
        let low = [region(0x40_0000, 0x80_0000, "prog"), region(0x90_0000, 0xa0_0000, "[heap]")];
        let small = gap_near(&low, 0x40_0000, 0x80_0000, 0x8000, 0x10000).unwrap();
        assert!(small < 0x40_0000);
        let large = gap_near(&low, 0x40_0000, 0x80_0000, 0x50_0000, 0x10000).unwrap();
        // Two of them leave most of the reach to the heap.
        assert!(large > 0x7f00_0000 && large + 0x50_0000 < 0x8040_0000, "{large:#x}");
        let both = [&low[..], &[region(large, large + 0x50_0000, "agent")]].concat();
        let second = gap_near(&both, 0x40_0000, 0x80_0000, 0x200_0000, 0x10000).unwrap();
        assert!(second > 0x7b00_0000 && second + 0x200_0000 < large, "{second:#x}");
    }

    #[test]
    fn the_next_threads_stacks_find_room_above_a_gap() {
        let region = |start, end| Region::taken(start, end - start);
        let lowest = 0x7fff_0000_0000_u64;
        let gap = |regions: &[Region]| gap_near(regions, lowest, lowest + 0x20_0000, 0x1_0000, 0x10000);
        let library = region(lowest, lowest + 0x20_0000);
        let at = gap(std::slice::from_ref(&library)).unwrap();
        assert!(lowest - (at + 0x1_0000) >= ROOM_FOR_MORE, "{at:#x}");
        // If only a narrow gap is free, it is used.
        let little = lowest - 0x40_0000;
        let at = gap(&[region(0x10000, little), library, region(lowest + 0x30_0000, lowest << 1)]).unwrap();
        assert!((little..lowest).contains(&at), "{at:#x}");
    }

    #[test]
    fn a_gap_within_a_window_is_its_first_free_one() {
        let region = |start, end| Region::taken(start, end - start);
        let gap = |regions: &[Region]| gap_within(regions, &(0x1_0234..0x2_0000), 0x3000, 0x10000);
        assert_eq!(gap(&[]), Some(0x1_1000));
        assert_eq!(gap(&[region(0, 0x1_1000), region(0x1_4000, 0x1_5000)]), Some(0x1_1000));
        assert_eq!(gap(&[region(0x1_3000, 0x1_5000), region(0x1_0000, 0x1_1800)]), Some(0x1_5000));
        assert_eq!(gap(&[region(0x1_3000, 0x1_d001)]), None);
        for grows in ["[heap]", "[stack]"] {
            let near = Region { path: grows.into(), ..region(0x2000, 0x3000) };
            let above = Region { path: grows.into(), ..region(0x3_0000, 0x4_0000) };
            assert_eq!(gap(&[near]).is_none(), grows == "[heap]");
            assert_eq!(gap(&[above]).is_none(), grows == "[stack]");
        }
        // The heap begins so near in front of the window that only its end is far enough.
        let heap = |end| Region { path: HEAP.into(), ..region(0x1000_0000, end) };
        let gap = |regions: &[Region]| gap_within(regions, &(0x1200_0000..0x1500_0000), 0x3000, 0x10000);
        assert_eq!(gap(&[heap(0x1004_0000)]), Some(0x1404_0000));
        assert_eq!(gap(&[heap(0x1104_0000)]), None);
    }
}

//! Describes the addresses at which threads wait: the symbol of a global object, or the kind of
//! memory.

use crate::output::Output;
use calltap_abi::PAGE;
use calltap_process::memory::maps::{self, Region};
use calltap_process::proc;
use calltap_sites::Svma;
use calltap_sites::types::Types;
use calltap_trace::{Address, Record};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of addresses that are looked up, in all.
const MAX_ADDRESSES: usize = 1 << 14;
/// Pause between two looks at the names of addresses that are waited at again.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of processes whose mappings are kept, for addresses that are looked up after
/// their end.
const KEPT: usize = 64;
/// Place of memory that no file and no name describes.
const ANONYMOUS: &str = "anonymous memory";
/// Place of an address that had several objects, or one and no more, during the recording.
const IN_TURN: &str = "memory used in turn";

/// Place of an address at which pthread_join waits.
const CONTROL_BLOCK: &str = "a thread's control block (pthread_join)";
/// Offsets in a control block of glibc: its own address, twice, and the id of its thread, which the
/// kernel clears when the thread ends.
const OWN_ADDRESS: [usize; 2] = [0, 0x10];
const ID: u64 = 0x2d0;
/// Size of the largest lock of the C library. A larger object may have a lock as its first member.
const LARGEST_LOCK: u64 = 56;

/// The objects of a file by address: size and name.
#[derive(Default)]
struct Objects {
    by_address: BTreeMap<u64, (u64, String)>,
    /// Segments: offset in the file, its size there, and address.
    segments: Vec<(u64, u64, u64)>,
}

/// Looks addresses up. The name of an object is taken back once the memory is found to be another
/// one's: which of them a wait was for is not known.
#[derive(Default)]
pub(crate) struct Addresses {
    /// Inode of the session's control file.
    control: u64,
    /// Ids of the processes, by their indices.
    processes: HashMap<u32, u32>,
    /// Mappings of the newest processes, by their indices, as they were last.
    mappings: BTreeMap<u32, Vec<Region>>,
    /// Names by process and address.
    known: BTreeMap<(u32, u64), Option<String>>,
    new: Vec<(u32, u64)>,
    /// Addresses with names that are waited at again.
    again: BTreeSet<(u32, u64)>,
    /// When names were compared last.
    compared: Option<Instant>,
    files: HashMap<FileKey, Objects>,
    /// Addresses within objects, by process and address. Members are named in the end.
    inside: BTreeMap<(u32, u64), Inside>,
}

/// Device and inode of a file.
type FileKey = (String, u64);

/// An address within an object of a file.
struct Inside {
    described: Address,
    found: Found,
    /// Mapping of the file, and the process that has it.
    region: Region,
    pid: u32,
}

/// An object of a file, and an offset in it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    /// Name of the object.
    name: String,
    /// Address of the object as its file was linked.
    object: u64,
    size: u64,
    offset: u64,
}

impl Found {
    /// Returns the name with the offset: `queue+16`.
    fn text(&self) -> String {
        match self.offset {
            0 => self.name.clone(),
            offset => format!("{}+{offset}", self.name),
        }
    }
}

impl Addresses {
    /// Creates an empty table for a session whose control file has this inode.
    pub(crate) fn new(control: u64) -> Addresses {
        Addresses { control, ..Addresses::default() }
    }

    /// Notes the id of the process with this index.
    pub(crate) fn know(&mut self, process: u32, pid: u32) {
        if self.processes.insert(process, pid) != Some(pid) {
            self.map(process, pid);
        }
    }

    /// Reads the mappings of a process, if it has not ended.
    fn map(&mut self, process: u32, pid: u32) {
        if let Some(regions) = maps::read(pid).ok().filter(|regions| !regions.is_empty()) {
            if self.mappings.len() >= KEPT && !self.mappings.contains_key(&process) {
                self.mappings.pop_first();
            }
            self.mappings.insert(process, regions);
        }
    }

    /// Notes that the process with this index runs another program.
    pub(crate) fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
        self.mappings.remove(&process);
    }

    /// Notes that a thread of the process waits at an address.
    pub(crate) fn see(&mut self, process: u32, address: u64) {
        match self.known.get(&(process, address)) {
            Some(Some(_)) => drop(self.again.insert((process, address))),
            Some(None) => {}
            None if self.known.len() < MAX_ADDRESSES => {
                self.known.insert((process, address), None);
                self.new.push((process, address));
            }
            None => {}
        }
    }

    /// Records the descriptions of the new addresses, and of those whose names have changed.
    pub(crate) fn tell(&mut self, output: &mut Output<'_>) {
        let mut asked = std::mem::take(&mut self.new);
        if !self.again.is_empty() && self.compared.is_none_or(|then| then.elapsed() > PAUSE) {
            asked.extend(std::mem::take(&mut self.again));
            self.compared = Some(Instant::now());
        }
        let mut by_process = BTreeMap::<u32, Vec<u64>>::new();
        asked.into_iter().for_each(|(process, address)| by_process.entry(process).or_default().push(address));
        let mut addresses = Vec::new();
        for (process, asked) in by_process {
            let Some(pid) = self.processes.get(&process).copied() else { continue };
            self.map(process, pid);
            let Some(regions) = self.mappings.remove(&process) else { continue };
            for address in asked {
                let found = self.look_up(process, pid, &regions, address);
                addresses.extend(found.and_then(|found| self.note(found)));
            }
            self.mappings.insert(process, regions);
        }
        if !addresses.is_empty() {
            output.record(&Record::Addresses { addresses });
        }
    }

    /// Records the members of objects at which threads waited, as the debugging information names
    /// them. Reading that takes long, so it is done once, when the program is not traced any more.
    pub(crate) fn tell_members(&mut self, output: &mut Output<'_>) {
        let mut types = HashMap::<FileKey, Option<Types>>::new();
        let mut addresses = Vec::new();
        for (at, Inside { described, found, region, pid }) in std::mem::take(&mut self.inside) {
            // Another object may have been there, too.
            if self.known.get(&at) != Some(&described.name) {
                continue;
            }
            let read = || Types::read(&open(pid, &region).ok()?).ok()?;
            let types = types.entry(region.file.clone()).or_insert_with(read);
            let suffix =
                types.as_ref().and_then(|types| types.member_suffix(Svma(found.object), found.offset));
            // At its beginning, an object as a whole has its name already.
            let is_new = |(suffix, _): &(String, u64)| found.offset > 0 || !suffix.is_empty();
            addresses.extend(suffix.filter(is_new).map(|(suffix, offset)| {
                let object = Some(described.address - offset);
                Address { name: Some(found.name + &suffix), object, ..described }
            }));
        }
        if !addresses.is_empty() {
            output.record(&Record::Addresses { addresses });
        }
    }

    /// Returns what is to be recorded of a description: nothing if it is known.
    fn note(&mut self, found: Address) -> Option<Address> {
        let known = self.known.entry((found.process, found.address)).or_default();
        match known {
            None => {
                known.clone_from(&found.name);
                Some(found)
            }
            Some(name) if found.name.as_ref() == Some(name) => None,
            Some(_) => {
                *known = None;
                Some(Address { name: None, object: None, place: IN_TURN.to_owned(), ..found })
            }
        }
    }

    /// Describes an address, if it is mapped.
    fn look_up(&mut self, process: u32, pid: u32, regions: &[Region], address: u64) -> Option<Address> {
        let region = maps::at(regions, address)?;
        let place = place_of(&region.path);
        let recorder = region.file.1 != 0 && region.file.1 == self.control;
        let has_file = region.file.1 != 0 && !recorder;
        let mut described = Address { process, address, name: None, object: None, place, recorder };
        let file_region = if has_file { Some(region) } else { file_of_bss(regions, region) };
        let found = file_region.and_then(|region| {
            let objects = self.files.entry(region.file.clone()).or_insert_with(|| read(pid, region));
            Some((region, objects.find(region, address - region.start + region.offset)?))
        });
        if let Some((region, found)) = found {
            (described.name, described.object) = (Some(found.text()), Some(address - found.offset));
            if found.offset > 0 || found.size > LARGEST_LOCK {
                let inside = Inside { described: described.clone(), found, region: region.clone(), pid };
                self.inside.insert((process, address), inside);
            }
        } else if described.place == ANONYMOUS && is_thread_id(pid, address) {
            CONTROL_BLOCK.clone_into(&mut described.place);
        }
        Some(described)
    }
}

/// Whether an address is that of the thread's id in a control block of glibc.
fn is_thread_id(pid: u32, address: u64) -> bool {
    let (mut bytes, block) = ([0; 24], address.wrapping_sub(ID));
    let memory = File::open(proc::place(pid).join("mem"));
    if memory.and_then(|memory| memory.read_exact_at(&mut bytes, block)).is_err() {
        return false;
    }
    let is_own = |at: usize| bytes[at..at + 8] == block.to_le_bytes();
    OWN_ADDRESS.into_iter().all(is_own)
}

/// Returns the file's last mapping in front of memory that is zeros of no file: its objects are
/// that file's.
fn file_of_bss<'r>(regions: &'r [Region], region: &Region) -> Option<&'r Region> {
    let is_anonymous = region.path.as_os_str().is_empty();
    let is_before = |other: &&Region| other.end == region.start && other.file.1 != 0;
    regions.iter().rfind(is_before).filter(|_| is_anonymous)
}

/// Returns the description of the memory of a mapping with a path. The kernel gives shared memory
/// without a file the name of one that was deleted.
fn place_of(path: &Path) -> String {
    match path.to_string_lossy() {
        path if path.is_empty() => ANONYMOUS.to_owned(),
        path if path == "/dev/zero (deleted)" => "anonymous shared memory".to_owned(),
        path if path.starts_with("/SYSV") => "System V shared memory".to_owned(),
        path => path.trim_matches(['[', ']']).to_owned(),
    }
}

fn open(pid: u32, region: &Region) -> io::Result<File> {
    region.open(pid).or_else(|_| of_ended(region))
}

fn read(pid: u32, region: &Region) -> Objects {
    let parse = || -> Option<Objects> {
        let file = open(pid, region).ok()?;
        let data = calltap_sites::load(&file).ok()?;
        let elf = object::File::parse(&*data).ok()?;
        let segments = elf.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (offset, size.max(segment.size()), segment.address())
        });
        let mut objects = Objects { segments: segments.collect(), ..Objects::default() };
        for symbol in elf.dynamic_symbols().chain(elf.symbols()) {
            let is_object = symbol.kind() == SymbolKind::Data && symbol.is_definition();
            if let (true, Ok(name)) = (is_object && symbol.size() > 0, symbol.name()) {
                objects.by_address.insert(symbol.address(), (symbol.size(), name.to_owned()));
            }
        }
        Some(objects)
    };
    parse().unwrap_or_default()
}

/// Opens the file of a mapping of a process that has ended, unless the path is by now another's.
fn of_ended(region: &Region) -> io::Result<File> {
    let file = File::open(&region.path)?;
    let is_it = file.metadata()?.ino() == region.file.1;
    if is_it { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

impl Objects {
    /// Returns the object at an offset in the file, which may lie behind the file's end in zeros.
    fn find(&self, region: &Region, offset: u64) -> Option<Found> {
        // The mapping of a segment begins at the start of its page.
        let page = |offset: u64| offset / PAGE * PAGE;
        let of_region = |(start, size, _): &&(u64, u64, u64)| {
            (page(*start)..start + size).contains(&offset) && page(*start) <= region.offset
        };
        let (start, _, address) = self.segments.iter().rfind(of_region)?;
        self.at(address.wrapping_add(offset.wrapping_sub(*start)))
    }

    fn at(&self, address: u64) -> Option<Found> {
        let (start, (size, name)) = self.by_address.range(..=address).next_back()?;
        let (name, offset) = (calltap_names::demangle(name), address - start);
        (offset == 0 || offset < *size).then_some(Found { name, object: *start, size: *size, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static LOCK: Mutex<[u64; 4]> = Mutex::new([1; 4]);
    static ZEROS: Mutex<[u64; 4096]> = Mutex::new([0; 4096]);

    #[test]
    fn objects_of_this_program_are_found_by_address() {
        let mut addresses = Addresses::default();
        let pid = std::process::id();
        let regions = maps::read(pid).unwrap();
        let mut look = |address: u64| addresses.look_up(0, pid, &regions, address).unwrap();
        let lock = look(&raw const LOCK as u64);
        assert!(lock.name.as_ref().is_some_and(|name| name.ends_with("LOCK")), "{lock:?}");
        let inside = look(&raw const ZEROS as u64 + 24);
        assert!(inside.name.as_ref().is_some_and(|name| name.ends_with("ZEROS+24")), "{inside:?}");
        let local = 5;
        let stack = look(&raw const local as u64);
        assert_eq!(stack.name, None);
        let made = Box::new(5);
        assert_eq!(look(&raw const *made as u64).name, None);
    }

    #[test]
    fn memory_is_described_by_its_kind() {
        let check = |path: &str, expected: &str| {
            assert_eq!(place_of(Path::new(path)), expected, "{path}");
        };
        check("", "anonymous memory");
        check("[heap]", "heap");
        check("/dev/zero (deleted)", "anonymous shared memory");
        check("/SYSV00000000 (deleted)", "System V shared memory");
        check("/lib/a b.so", "/lib/a b.so");
    }

    #[test]
    fn an_address_has_no_name_once_its_memory_is_found_to_be_used_in_turn() {
        let found = |name: Option<&str>| Address {
            process: 0,
            address: 5,
            name: name.map(str::to_owned),
            object: None,
            place: "/lib/a.so".to_owned(),
            recorder: false,
        };
        let mut addresses = Addresses::default();
        let mut told = |name| addresses.note(found(name)).map(|address| (address.name, address.place));
        let (one, a) = (|| Some("one".to_owned()), || "/lib/a.so".to_owned());
        assert_eq!(told(Some("one")), Some((one(), a())));
        assert_eq!(told(Some("one")), None);
        assert_eq!(told(Some("two")), Some((None, IN_TURN.to_owned())));
        let mut reused = Addresses::default();
        assert_eq!(reused.note(found(Some("one"))).and_then(|address| address.name), one());
        assert_eq!(reused.note(found(None)).map(|address| address.place), Some(IN_TURN.to_owned()));
        addresses.again.clear();
        addresses.see(0, 5);
        assert!(addresses.again.is_empty() && addresses.new.is_empty());
    }
}

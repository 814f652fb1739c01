//! A running process to attach to: its properties from `/proc`, and the checks whether it can be
//! attached to.

use crate::clock;
use crate::error::Error;
use crate::freezer::is_frozen;
use crate::memory::maps::{self, Region};
use crate::memory::text::ProcessText;
use crate::proc::{self, start_time};
use crate::ptrace::sharing;
use crate::reason::Reason;
use crate::status::Status;
use object::elf::{self, FileHeader64, PF_W, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef, StringTable};
use object::{Endianness, Object, ObjectSection};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process that can be attached to, as far as that can be determined without touching it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Process id.
    pub pid: u32,
    /// Name, for messages.
    pub name: String,
    /// Start time in clock ticks since boot. With the id, it identifies the process.
    pub start_time: u64,
    /// Path of its program, by which its children are found when it has ended.
    pub program: Option<PathBuf>,
}

/// SECCOMP_MODE_STRICT in a status file: the thread may only read, write and exit.
const STRICT: u32 = 1;
/// Time by when a child of vfork has executed its program.
const SPAWNING: Duration = Duration::from_secs(1);

/// Conditions for attaching, from the status of the first thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Condition {
    state: char,
    tracer: u32,
    seccomp: u32,
    shadow_stack: bool,
}

impl Condition {
    fn new(status: &Status) -> Condition {
        Condition {
            state: status.field("State").and_then(|word| word.chars().next()).unwrap_or('?'),
            tracer: status.tracer().unwrap_or(0),
            seccomp: status.number("Seccomp").unwrap_or(0),
            shadow_stack: status
                .field("x86_Thread_features")
                .is_some_and(|all| all.split_whitespace().any(|feature| feature == "shstk")),
        }
    }
}

fn condition(pid: u32) -> Option<Condition> {
    Status::of(pid).ok().map(|status| Condition::new(&status))
}

/// Whether a thread of the process lives. A process goes on when its first thread has ended.
fn has_living_thread(pid: u32) -> bool {
    proc::threads(pid).into_iter().any(|tid| proc::state(tid).is_some_and(|state| !proc::is_end(state)))
}

/// Whether the process is ending, and is no zombie yet.
fn is_ending(pid: u32) -> bool {
    let threads = proc::threads(pid);
    let has_ended = |tid: &u32| proc::state(*tid).is_none_or(proc::is_end);
    threads.iter().any(|tid| proc::is_ending(*tid))
        && threads.iter().all(|tid| proc::is_ending(*tid) || has_ended(tid))
}

/// Returns a process's name, made printable: a process may give itself any name.
fn comm(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    calltap_names::printable(String::from_utf8_lossy(&name).trim_end()).into_owned()
}

/// Returns the reason for a process with a tracer: a debugger, or another calltap that holds the
/// process for a moment.
fn traced_by(tracer: u32) -> Reason {
    let by = comm(tracer);
    let pid = Status::of(tracer).ok().and_then(|status| status.number("Tgid")).unwrap_or(tracer);
    // A tracer without a name has ended since, as a calltap does after a short stop.
    if by.is_empty() {
        return Reason::Attaching { by: format!("PID {pid} (it has ended just now)") };
    }
    if by == comm(std::process::id()) {
        return Reason::Attaching { by: format!("PID {pid} ({by})") };
    }
    Reason::Traced { by, pid }
}

/// Returns the reason for a process that has another tracer by now: a thread has one.
pub(crate) fn tracer_of(pid: u32) -> Option<Reason> {
    let tracers = proc::threads(pid).into_iter().filter_map(|tid| Some(condition(tid)?.tracer));
    tracers.into_iter().find(|tracer| *tracer != 0 && !is_own(*tracer)).map(traced_by)
}

/// Whether a thread is one of calltap's own.
fn is_own(tid: u32) -> bool {
    Path::new(&format!("/proc/self/task/{tid}")).exists()
}

impl Target {
    /// Checks whether a process can be attached to. Does nothing to it.
    pub fn find(pid: u32) -> Result<Target, Error> {
        proc::check()?;
        let existed = proc::exists(pid);
        Target::check(pid).map_err(|error| match error {
            // An ending process fails various checks: the end is the reason.
            Error::Attach { pid, name, .. } if existed && !proc::exists(pid) => {
                Error::Attach { pid, name, reason: Reason::Ended }
            }
            Error::Attach { pid, name, .. } if is_ending(pid) => {
                Error::Attach { pid, name, reason: Reason::Ending }
            }
            error => error,
        })
    }

    fn check(pid: u32) -> Result<Target, Error> {
        let refuse = |reason: Reason| Error::Attach { pid, name: comm(pid), reason };
        let (Some(status), Some(start_time)) = (condition(pid), start_time(pid)) else {
            return Err(refuse(Reason::NoProcess));
        };
        if pid == std::process::id() {
            return Err(refuse(Reason::Itself));
        }
        match status.state {
            'Z' | 'X' if !has_living_thread(pid) => return Err(refuse(Reason::Zombie)),
            'T' => return Err(refuse(Reason::Stopped)),
            _ => {}
        }
        if is_frozen(pid) {
            return Err(refuse(Reason::Frozen));
        }
        if status.tracer != 0 {
            return Err(refuse(traced_by(status.tracer)));
        }
        let regions = maps::read(pid).map_err(|error| refuse(denied(&error)))?;
        if regions.is_empty() {
            return Err(refuse(if proc::is_kernel_thread(pid) {
                Reason::KernelThread
            } else {
                Reason::Ending
            }));
        }
        // A stack there is beyond the table by which hooks find shadow stacks.
        if let Some(at) = maps::above_user_end(&regions) {
            return Err(refuse(Reason::HighMemory { at }));
        }
        ProcessText::open(pid).map_err(|error| refuse(denied(&error)))?;
        if !is_64_bit(pid).map_err(|error| refuse(denied(&error)))? {
            return Err(refuse(Reason::Bits32));
        }
        // The processor compares return addresses with copies of its own, which calltap cannot
        // change.
        if status.shadow_stack {
            return Err(refuse(Reason::ShadowStack));
        }
        // The filters are checked later, when the threads can be stopped.
        if status.seccomp == STRICT {
            return Err(refuse(Reason::StrictSeccomp));
        }
        // A process that shares the memory would be changed as well, and its threads are not
        // stopped for that.
        if let Some(other) = sharing::lasting(pid, SPAWNING) {
            return Err(refuse(Reason::Shared { other }));
        }
        Ok(Target { pid, name: comm(pid), start_time, program: proc::program(pid) })
    }

    /// Returns a process that exists, without any other check.
    pub fn known(pid: u32) -> Result<Target, Error> {
        proc::check()?;
        let none = || Error::Attach { pid, name: String::new(), reason: Reason::NoProcess };
        Target::of_child(pid).filter(Target::lives).ok_or_else(none)
    }

    /// Returns a process that was forked from one that calltap is attached to.
    pub fn of_child(pid: u32) -> Option<Target> {
        let start_time = start_time(pid)?;
        Some(Target { pid, name: comm(pid), start_time, program: proc::program(pid) })
    }

    /// Returns the program and its arguments.
    pub fn command(&self) -> Vec<String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = line.strip_suffix(&[0]).unwrap_or(&line).split(|byte| *byte == 0);
        words.map(calltap_names::printable_bytes).collect()
    }

    /// Whether the process still exists. Its id may have passed to another.
    pub fn lives(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
            && proc::state(self.pid).is_some_and(|state| !proc::is_end(state) || has_living_thread(self.pid))
    }

    /// Whether the process locks memory.
    pub fn locks_memory(&self) -> bool {
        self.locked_memory() > 0
    }

    /// Returns the size of the locked memory, KiB.
    pub(crate) fn locked_memory(&self) -> u64 {
        Status::of(self.pid).ok().and_then(|status| status.kib("VmLck")).unwrap_or(0)
    }

    /// Returns the processor time that the process has used. None once it has ended.
    pub fn cpu(&self) -> Option<Duration> {
        clock::cpu_of(self.pid).filter(|_| start_time(self.pid) == Some(self.start_time))
    }

    /// Returns a path of the process's mount namespace as calltap reaches it.
    pub fn path(&self, inside: &Path) -> PathBuf {
        proc::place(self.pid).join("root").join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Returns the user and group that files of the process must belong to.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        file_owner(self.pid)
    }
}

/// Returns the user and group as which a thread opens files.
pub fn file_owner(tid: u32) -> io::Result<(u32, u32)> {
    let status = Status::of(tid)?;
    // Real, effective, saved, file system.
    let id = |name| status.field(name)?.split_whitespace().nth(3)?.parse::<u32>().ok();
    id("Uid").zip(id("Gid")).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Whether a process runs a 64-bit program.
pub fn is_64_bit(pid: u32) -> io::Result<bool> {
    Ok(elf_class(&proc::program_link(pid))? == elf::ELFCLASS64.0)
}

/// Returns the byte of an ELF file that distinguishes 32 from 64 bits.
fn elf_class(path: &Path) -> io::Result<u8> {
    let mut head = [0; 5];
    File::open(path)?.read_exact(&mut head)?;
    Ok(head[4])
}

fn denied(error: &io::Error) -> Reason {
    if error.raw_os_error() == Some(libc::ESRCH) {
        return Reason::Ending;
    }
    if !matches!(error.kind(), io::ErrorKind::PermissionDenied) {
        return Reason::System { why: error.to_string() };
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "1" => Reason::OwnChildrenOnly,
        "2" => Reason::RootOnly,
        "3" => Reason::Forbidden,
        _ => Reason::NoPermission,
    }
}

/// The executable segment of a program or library.
#[derive(Clone, Copy, Debug)]
pub struct TextSegment {
    /// Link-time address.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Whether data lies in it too, and possibly behind it (`ld -N`).
    pub has_data: bool,
}

impl TextSegment {
    /// Finds the segment in a file, of which it reads only the headers.
    pub fn of<'d>(file: impl ReadRef<'d>) -> Option<TextSegment> {
        let header = FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let is_text = |segment: &&ProgramHeader64<Endianness>| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).0 & PF_X.0 != 0
        };
        let text = header.program_headers(endian, file).ok()?.iter().find(is_text)?;
        let (address, offset, size) = (text.p_vaddr(endian), text.p_offset(endian), text.p_filesz(endian));
        let has_data = text.p_flags(endian).0 & PF_W.0 != 0 || text.p_memsz(endian) > size;
        Some(TextSegment { address, offset, size, has_data })
    }
}

/// Whether this is the file name of the GNU C library. That of musl is `libc.so`, or the dynamic
/// linker itself.
pub fn is_libc(name: &str) -> bool {
    name == "libc.so.6" || name.starts_with("libc-2")
}

/// Some symbols of a loaded object, by run-time address.
#[derive(Debug)]
pub struct Symbols {
    /// Name, address, size.
    all: Vec<(String, u64, u64)>,
    handlers: bool,
}

impl Symbols {
    /// Reads the wanted symbols of the object whose file name passes.
    pub fn of(
        pid: u32,
        regions: &[Region],
        is_object: impl Fn(&str) -> bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<Symbols> {
        Symbols::read(pid, regions, is_object, wanted, true)
    }

    /// Reads the wanted symbols among those that the object exports.
    pub(crate) fn exported(
        pid: u32,
        regions: &[Region],
        is_object: impl Fn(&str) -> bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<Symbols> {
        Symbols::read(pid, regions, is_object, wanted, false)
    }

    fn read(
        pid: u32,
        regions: &[Region],
        is_object: impl Fn(&str) -> bool,
        wanted: impl Fn(&str) -> bool,
        all_tables: bool,
    ) -> Option<Symbols> {
        let region = regions.iter().find(|region| region.executable && is_object(region.name()))?;
        let file = region.open(pid).ok()?;
        let data = ReadCache::new(&file);
        let text = TextSegment::of(&data)?;
        let at = text.address.wrapping_sub(text.offset).wrapping_add(region.offset);
        let bias = region.start.wrapping_sub(at);
        let object = ElfFile64::<Endianness, _>::parse(&data).ok()?;
        let (endian, sections) = (object.endian(), object.elf_section_table());
        let mut all = Vec::new();
        let tables = [object.elf_dynamic_symbol_table(), object.elf_symbol_table()];
        for table in tables.into_iter().take(1 + usize::from(all_tables)) {
            // The string table is read as a whole: otherwise each of thousands of names would be
            // read from the file.
            let names = sections.section(table.string_section()).and_then(|names| names.data(endian, &data));
            let names = names.unwrap_or_default();
            let names = StringTable::new(names, 0, names.len() as u64);
            all.extend(table.symbols().iter().filter_map(|symbol| {
                let name = std::str::from_utf8(symbol.name(endian, names).ok()?).ok()?;
                let is_of_use = symbol.is_definition(endian, names) && wanted(name);
                is_of_use.then(|| {
                    (name.to_owned(), symbol.st_value(endian).wrapping_add(bias), symbol.st_size(endian))
                })
            }));
        }
        let handlers = object.section_by_name(".gcc_except_table").is_some_and(|section| section.size() > 0);
        Some(Symbols { all, handlers })
    }

    /// Whether the object has code that runs when an exception passes.
    pub(crate) fn has_handlers(&self) -> bool {
        self.handlers
    }

    /// Returns the ranges of all these symbols.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.all.iter().map(|(_, at, size)| (*at, at + size))
    }

    /// Returns a symbol's address.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.all.iter().find(|(own, ..)| own == name).map(|(_, address, _)| *address)
    }

    /// Returns the ranges of all versions of a symbol.
    pub(crate) fn ranges_of(&self, name: &str) -> impl Iterator<Item = (u64, u64)> {
        self.all.iter().filter(move |(own, ..)| own == name).map(|(_, at, size)| (*at, at + size))
    }

    /// Returns the range of a symbol.
    pub fn range(&self, name: &str) -> Option<(u64, u64)> {
        self.all.iter().find(|(own, ..)| own == name).map(|(_, at, size)| (*at, at + size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_proc_is_parsed() {
        let text =
            "Name:\tx y\nState:\tT (stopped)\nTgid:\t1\nTracerPid:\t12\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let expected = Condition { state: 'T', tracer: 12, seccomp: 2, shadow_stack: false };
        assert_eq!(Condition::new(&text.into()), expected);
        let features = format!("{text}x86_Thread_features:\tshstk wrss \n");
        assert_eq!(Condition::new(&features.as_str().into()), Condition { shadow_stack: true, ..expected });
    }
}

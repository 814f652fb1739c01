//! A running process to attach to: what `/proc` says of it, and why it cannot be attached to, if so.

use crate::clock;
use crate::error::Error;
use crate::memory::maps::{self, Region};
use crate::memory::text::ProcessText;
use crate::proc::{self, start_time};
use crate::ptrace::sharing;
use crate::reason::Reason;
use object::elf::{self, FileHeader64, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef, StringTable};
use object::{Endianness, Object, ObjectSection};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process that can be attached to, as far as can be seen without touching it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its id.
    pub pid: u32,
    /// Its name, for messages.
    pub name: String,
    /// When it was started, in clock ticks since boot: with the id, what tells it from a later one.
    pub start_time: u64,
}

/// A thread that may only read, write and exit (SECCOMP_MODE_STRICT).
const STRICT: u32 = 1;
/// A child of vfork runs its own program after this time.
const SPAWNING: Duration = Duration::from_secs(1);

/// The fields of `/proc/PID/status` and `stat` that matter here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Status {
    state: char,
    tracer: u32,
    seccomp: u32,
    shadow_stack: bool,
}

impl Status {
    fn parse(text: &str) -> Status {
        let field = |name| proc::field(text, name);
        let number = |name| field(name).and_then(|word| word.parse().ok()).unwrap_or(0);
        Status {
            state: field("State").and_then(|word| word.chars().next()).unwrap_or('?'),
            tracer: number("TracerPid"),
            seccomp: number("Seccomp"),
            shadow_stack: field("x86_Thread_features")
                .is_some_and(|all| all.split_whitespace().any(|feature| feature == "shstk")),
        }
    }
}

fn status(pid: u32) -> Option<Status> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok().map(|text| Status::parse(&text))
}

/// A process goes on when its first thread has ended.
fn has_living_thread(pid: u32) -> bool {
    proc::threads(pid).into_iter().any(|tid| proc::state(tid).is_some_and(|state| !proc::is_end(state)))
}

/// Is it being taken down, and not a zombie yet?
fn is_ending(pid: u32) -> bool {
    let threads = proc::threads(pid);
    let has_ended = |tid: &u32| proc::state(*tid).is_none_or(proc::is_end);
    threads.iter().any(|tid| proc::is_ending(*tid))
        && threads.iter().all(|tid| proc::is_ending(*tid) || has_ended(tid))
}

/// A process's name; it may have given itself any.
fn comm(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    calltap_names::printable(String::from_utf8_lossy(&name).trim_end()).into_owned()
}

/// Another thread is the tracer: a debugger's, or one of another calltap that holds the process for a moment.
fn traced_by(tracer: u32) -> Reason {
    let by = comm(tracer);
    let status = fs::read_to_string(format!("/proc/{tracer}/status")).unwrap_or_default();
    let pid = proc::field(&status, "Tgid").and_then(|pid| pid.parse().ok()).unwrap_or(tracer);
    if by == comm(std::process::id()) {
        return Reason::Attaching { by: format!("PID {pid} ({by})") };
    }
    Reason::Traced { by, pid }
}

impl Target {
    /// Looks at a process. Nothing is done to it.
    pub fn find(pid: u32) -> Result<Target, Error> {
        proc::check()?;
        let existed = proc::exists(pid);
        Target::look(pid).map_err(|error| match error {
            // What it was refused for is how a process looks that ends.
            Error::Attach { pid, name, .. } if existed && !proc::exists(pid) => {
                Error::Attach { pid, name, reason: Reason::Ended }
            }
            Error::Attach { pid, name, .. } if is_ending(pid) => {
                Error::Attach { pid, name, reason: Reason::Ending }
            }
            error => error,
        })
    }

    fn look(pid: u32) -> Result<Target, Error> {
        let refuse = |reason: Reason| Error::Attach { pid, name: comm(pid), reason };
        let (Some(status), Some(start_time)) = (status(pid), start_time(pid)) else {
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
        // The processor compares return addresses with copies of its own, which nothing can change.
        if status.shadow_stack {
            return Err(refuse(Reason::ShadowStack));
        }
        // What filters allow is found out when its threads can be stopped.
        if status.seccomp == STRICT {
            return Err(refuse(Reason::StrictSeccomp));
        }
        // Its code would be changed, too, and its threads are not stopped for it.
        if let Some(other) = sharing::lasting(pid, SPAWNING) {
            return Err(refuse(Reason::Shared { other }));
        }
        Ok(Target { pid, name: comm(pid), start_time })
    }

    /// A process that exists; nothing else is looked at.
    pub fn known(pid: u32) -> Result<Target, Error> {
        proc::check()?;
        let none = || Error::Attach { pid, name: String::new(), reason: Reason::NoProcess };
        Target::of_child(pid).filter(Target::lives).ok_or_else(none)
    }

    /// A process that was forked from one that calltap is attached to.
    pub fn of_child(pid: u32) -> Option<Target> {
        Some(Target { pid, name: comm(pid), start_time: start_time(pid)? })
    }

    /// Its program and arguments.
    pub fn command(&self) -> Vec<String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = line.strip_suffix(&[0]).unwrap_or(&line).split(|byte| *byte == 0);
        words.map(calltap_names::printable_bytes).collect()
    }

    /// Is it still the process it was?
    pub fn lives(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
            && proc::state(self.pid).is_some_and(|state| !proc::is_end(state) || has_living_thread(self.pid))
    }

    /// Does it keep memory from being swapped out?
    pub fn locks_memory(&self) -> bool {
        self.locked_memory() > 0
    }

    /// How much, in KiB.
    pub(crate) fn locked_memory(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let size = proc::field(&text, "VmLck").and_then(|size| size.split(' ').next());
        size.and_then(|size| size.parse().ok()).unwrap_or(0)
    }

    /// Processor time that it has used; unknown once it is gone.
    pub fn cpu(&self) -> Option<Duration> {
        clock::cpu_of(self.pid).filter(|_| start_time(self.pid) == Some(self.start_time))
    }

    /// A path of its own mount namespace, as calltap reaches it.
    pub fn path(&self, inside: &Path) -> PathBuf {
        proc::place(self.pid).join("root").join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// User and group that its files must belong to.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        // Real, effective, saved, file system.
        let id = |name| proc::field(&text, name)?.split_whitespace().nth(3)?.parse::<u32>().ok();
        id("Uid").zip(id("Gid")).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

/// Is it a program of 64 bits?
pub fn is_64_bit(pid: u32) -> io::Result<bool> {
    Ok(elf_class(&proc::place(pid).join("exe"))? == elf::ELFCLASS64.0)
}

/// The byte of an ELF file that tells 32 from 64 bits.
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
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
}

impl TextSegment {
    /// Of a file, of which only the headers are read.
    pub fn of<'d>(file: impl ReadRef<'d>) -> Option<TextSegment> {
        let header = FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let is_text = |segment: &&ProgramHeader64<Endianness>| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).0 & PF_X.0 != 0
        };
        let text = header.program_headers(endian, file).ok()?.iter().find(is_text)?;
        let (address, offset) = (text.p_vaddr(endian), text.p_offset(endian));
        Some(TextSegment { address, offset, size: text.p_filesz(endian) })
    }
}

/// Is this the file name of the GNU C library? That of musl is `libc.so`, or the dynamic linker itself.
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
    /// The wanted ones of the object whose file name passes.
    pub fn of(
        pid: u32,
        regions: &[Region],
        is_it: impl Fn(&str) -> bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<Symbols> {
        Symbols::read(pid, regions, is_it, wanted, true)
    }

    /// The same of those that it shows to other objects.
    pub fn exported(
        pid: u32,
        regions: &[Region],
        is_it: impl Fn(&str) -> bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<Symbols> {
        Symbols::read(pid, regions, is_it, wanted, false)
    }

    fn read(
        pid: u32,
        regions: &[Region],
        is_it: impl Fn(&str) -> bool,
        wanted: impl Fn(&str) -> bool,
        all_tables: bool,
    ) -> Option<Symbols> {
        let region = regions.iter().find(|region| region.executable && is_it(region.name()))?;
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
            // As a whole: asked for one by one, each name is read from the file, thousands of them.
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

    /// Is there code in it that runs when an exception passes?
    pub fn has_handlers(&self) -> bool {
        self.handlers
    }

    /// Where they are.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.all.iter().map(|(_, at, size)| (*at, at + size))
    }

    /// A symbol's address.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.all.iter().find(|(own, ..)| own == name).map(|(_, address, _)| *address)
    }

    /// The ranges of all versions of a symbol.
    pub fn ranges_of(&self, name: &str) -> impl Iterator<Item = (u64, u64)> {
        self.all.iter().filter(move |(own, ..)| own == name).map(|(_, at, size)| (*at, at + size))
    }

    /// The range of a symbol.
    pub fn range(&self, name: &str) -> Option<(u64, u64)> {
        self.all.iter().find(|(own, ..)| own == name).map(|(_, at, size)| (*at, at + size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_understood() {
        let text =
            "Name:\tx y\nState:\tT (stopped)\nTgid:\t1\nTracerPid:\t12\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let expected = Status { state: 'T', tracer: 12, seccomp: 2, shadow_stack: false };
        assert_eq!(Status::parse(text), expected);
        let features = format!("{text}x86_Thread_features:\tshstk wrss \n");
        assert_eq!(Status::parse(&features), Status { shadow_stack: true, ..expected });
    }
}

//! Places the agent in programs whose C library cannot load it: static ones, and those linked with
//! musl.
//!
//! The recorder chooses an address, relocates the agent for it into a file, and has a thread map
//! that file. This takes no lock of the program's.

use crate::agent::{LoadedAgent, PLACED};
use crate::frames::is_unwinder;
use crate::injection::allocators::locking_functions;
use crate::injection::inferior::program;
use crate::injection::inject::Mapping;
use crate::injection::leaks::LeakDetector;
use crate::memory::maps::{self, Region, gap_near};
use crate::memory::text::ProcessText;
use crate::ptrace::threads::StoppedThread;
use crate::reason::Reason;
use crate::target::{Symbols, Target};
use crate::{go, proc};
use calltap_abi::PAGE;
use calltap_abi::{SYSINFO, THREAD_MAX};
use calltap_patch::{Avma, Text};
use object::read::elf::{ElfFile64, ProgramHeader, Rela, SectionHeader};
use object::{Endianness, elf};

const LITTLE: Endianness = Endianness::Little;

/// The agent, relocated for one address.
pub struct Placement {
    /// Contents of the file to map.
    pub file: Vec<u8>,
    /// Mappings to create, in this order.
    pub mappings: Vec<Mapping>,
}

impl Placement {
    /// Relocates the agent for an address near the program, so that sites reach their stubs without
    /// veneers.
    pub fn near(target: &Target, regions: &[Region]) -> Option<Placement> {
        let program = program(target, regions)?;
        let same = regions.iter().filter(|region| region.file == program.file);
        let end = same.map(|region| region.end).max()?;
        let image = PLACED.file()?;
        let span = segments(&image).map(|segment| segment.end).max()?;
        let base = gap_near(regions, program.start, end, span, maps::lowest_address())?;
        Some(Placement { file: relocated(&image, base)?, mappings: mappings(&image, base, span) })
    }
}

struct Segment {
    /// Bounds in whole pages.
    start: u64,
    end: u64,
    /// Address in bytes.
    address: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

fn segments<'a>(image: &'a ElfFile64<'static, Endianness>) -> impl Iterator<Item = Segment> + 'a {
    let all = image.elf_program_headers().iter().filter(|header| header.p_type(LITTLE) == elf::PT_LOAD);
    all.map(|header| {
        let (address, size) = (header.p_vaddr(LITTLE), header.p_memsz(LITTLE));
        Segment {
            start: address / PAGE * PAGE,
            end: (address + size).next_multiple_of(PAGE),
            address,
            offset: header.p_offset(LITTLE),
            file_size: header.p_filesz(LITTLE),
            executable: header.p_flags(LITTLE).0 & elf::PF_X.0 != 0,
        }
    })
}

/// Returns the memory of the segments that have bytes in the file, relocated for `base`.
fn relocated(image: &ElfFile64<'static, Endianness>, base: u64) -> Option<Vec<u8>> {
    let of_file = || segments(image).filter(|segment| segment.file_size > 0);
    let mut memory = vec![0; of_file().map(|segment| segment.end).max()? as usize];
    for segment in of_file() {
        let bytes = PLACED.bytes().get(segment.offset as usize..)?.get(..segment.file_size as usize)?;
        memory.get_mut(segment.address as usize..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
    }
    for section in image.elf_section_table().iter() {
        let Some((relocations, _)) = section.rela(LITTLE, PLACED.bytes()).ok()? else { continue };
        for relocation in relocations {
            if relocation.r_type(LITTLE, false) != elf::R_X86_64_RELATIVE {
                return None;
            }
            let value = base.wrapping_add_signed(relocation.r_addend(LITTLE));
            let at = relocation.r_offset(LITTLE) as usize;
            memory.get_mut(at..at + 8)?.copy_from_slice(&value.to_le_bytes());
        }
    }
    Some(memory)
}

/// Returns the mappings of the agent: its address range, then the data, then the text. If the text
/// is mapped, everything is.
fn mappings(image: &ElfFile64<'static, Endianness>, base: u64, span: u64) -> Vec<Mapping> {
    let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let mut all =
        vec![Mapping { address: base, length: span, offset: 0, protection: libc::PROT_READ, flags: reserve }];
    let mut of_file: Vec<Segment> = segments(image).filter(|segment| segment.file_size > 0).collect();
    of_file.sort_by_key(|segment| segment.executable);
    all.extend(of_file.iter().map(|segment| Mapping {
        address: base + segment.start,
        length: segment.end - segment.start,
        offset: segment.start,
        protection: libc::PROT_READ | if segment.executable { libc::PROT_EXEC } else { libc::PROT_WRITE },
        flags: libc::MAP_PRIVATE | libc::MAP_FIXED,
    }));
    all
}

/// Offsets of a thread's id from its thread pointer: musl (1.1.19 and later), glibc (2.4 and
/// later).
const OWNER_WORDS: [u64; 2] = [0x30, 0x2d0];

/// Returns the offset of the thread's id from the thread pointer. Fails unless the thread library
/// is known and the stopped thread's control block is as expected.
pub fn owner_word(target: &Target, thread: &StoppedThread, text: &mut ProcessText) -> Result<u64, Reason> {
    let pointer = thread.regs.fs_base;
    let mut word = [0; 8];
    let known = pointer != 0 && text.read(Avma(pointer.wrapping_add(SYSINFO)), &mut word).is_ok();
    let id = proc::inner_id(target.pid, thread.tid).unwrap_or(thread.tid);
    let mut is_id = |at: &u64| {
        let mut found = [0; 4];
        text.read(Avma(pointer.wrapping_add(*at)), &mut found).is_ok() && u32::from_le_bytes(found) == id
    };
    let of_library = OWNER_WORDS.into_iter().find(|at| known && is_id(at));
    match of_library.or_else(|| go::owner_word(thread, id, text).filter(|_| known)) {
        // A small number is left over from an earlier session.
        Some(_) if u64::from_le_bytes(word) > THREAD_MAX as u64 => Err(Reason::WordInUse),
        Some(at) => Ok(at),
        None => Err(Reason::UnknownThreads),
    }
}

/// Returns the offset of the thread's id for a thread that returns from set_tid_address: glibc has
/// just passed the address of the id, musl another address.
pub fn owner_word_from_call(thread: &StoppedThread, text: &mut ProcessText) -> Option<u64> {
    let (pointer, named) = (thread.regs.fs_base, thread.regs.rdi);
    let mut own = [0; 8];
    // In both libraries, the block begins with its own address.
    text.read(Avma(pointer), &mut own)
        .ok()
        .filter(|()| pointer != 0 && u64::from_le_bytes(own) == pointer)?;
    let [musl, glibc] = OWNER_WORDS;
    Some(if named == pointer + glibc { glibc } else { musl })
}

/// The way to register the agent's unwind information with a program's unwinder, as no dynamic
/// linker knows it.
pub struct Frames {
    /// Address of the registration function. None if the program has no unwinder.
    register: Option<u64>,
    /// Address of the function that has LeakSanitizer search memory.
    leaks: Option<u64>,
    /// Sorted code that may hold a lock which registering takes.
    pub locking: Vec<(u64, u64)>,
}

/// Bytes of the object in which an unwinder keeps a registration.
const NOTES: usize = 48;
const REGISTER: &str = "__register_frame_info";
/// Functions of an unwinder that is linked in and may hold its lock; its other functions call
/// these.
const UNWINDER: &[&str] = &["_Unwind_Find_FDE", "__deregister_frame_info", REGISTER];

impl Frames {
    /// Finds the unwinder of a program, and its LeakSanitizer.
    pub fn of(target: &Target, regions: &[Region]) -> Result<Frames, Reason> {
        let mut frames = Frames::of_unwinder(target, regions)?;
        let detector = LeakDetector::of(target, regions);
        frames.leaks = detector.register;
        frames.locking.extend(detector.code);
        frames.locking.sort();
        Ok(frames)
    }

    fn of_unwinder(target: &Target, regions: &[Region]) -> Result<Frames, Reason> {
        let mut unwinder = maps::text_of(regions, is_unwinder);
        if !unwinder.is_empty() {
            let library = Symbols::of(target.pid, regions, is_unwinder, |name| name == REGISTER);
            let register = library.and_then(|library| library.address(REGISTER));
            let register = register.ok_or(Reason::UnwinderCannotRegister)?;
            return Ok(Frames { register: Some(register), leaks: None, locking: unwinder });
        }
        let name = program(target, regions).map(Region::name).ok_or(Reason::Unreadable)?;
        let symbols =
            Symbols::of(target.pid, regions, |other| other == name, |name| UNWINDER.contains(&name));
        let symbols = symbols.ok_or(Reason::Unreadable)?;
        let register = symbols.address(REGISTER);
        if register.is_none() && symbols.has_handlers() {
            return Err(Reason::UnwinderSymbolsMissing);
        }
        unwinder.extend(symbols.ranges());
        Ok(Frames { register, leaks: None, locking: unwinder })
    }

    /// Returns the functions in which a thread may hold a lock that registering takes beside the
    /// unwinder's. It locks a mutex, which a runtime may have replaced, and since GCC 13 it
    /// allocates.
    pub fn allocating(&self, target: &Target, regions: &[Region]) -> Vec<(u64, u64)> {
        let of_program = |program: &Region| locking_functions(target.pid, regions, program.name());
        let program = program(target, regions).filter(|_| self.register.is_some());
        program.map(of_program).unwrap_or_default()
    }

    /// Whether the unwinder has written its object: the registration is done.
    pub fn are_known(&self, [_, notes]: [u64; 2], text: &mut ProcessText) -> bool {
        let mut bytes = [0; NOTES];
        text.read(Avma(notes), &mut bytes).is_ok() && bytes != [0; NOTES]
    }

    /// Returns the call that registers: function, and as arguments the frames and the memory of the
    /// unwinder's object.
    pub fn registration(&self, agent: &LoadedAgent) -> Option<(u64, [u64; 2])> {
        let arguments = agent.section(".eh_frame").zip(agent.symbol("calltap_frame_object"))?;
        Some((self.register?, arguments.into()))
    }

    /// Returns the call after which LeakSanitizer finds what the unwinder allocates: function, and
    /// as arguments address and length of the unwinder's object.
    pub fn search(&self, agent: &LoadedAgent) -> Option<(u64, [u64; 2])> {
        let (_, [_, notes]) = self.registration(agent)?;
        Some((self.leaks?, [notes, NOTES as u64]))
    }
}

//! The agent's three images: one that is loaded with a program, one that is loaded into a process that runs already, and one that the recorder
//! places in programs without a dynamic linker that could (see [`crate::injection::placed`]).

use crate::memory::maps::{self, Region};
use crate::memory::text::ProcessText;
use crate::proc::{self, SessionId};
use calltap_patch::{Avma, Text};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::path::Path;

/// One of them.
#[derive(Debug)]
pub struct Image {
    /// The shared object.
    pub bytes: &'static [u8],
}

/// Loaded by a program's dynamic linker before the program begins. Each thread has its state by a thread-local variable.
pub static LIBRARY: Image = Image { bytes: include_bytes!(concat!(env!("OUT_DIR"), "/agent.so")) };
/// Loaded by `dlopen` into a process that runs already. It has no thread-local variable: a dynamic linker takes locks to make room for one that
/// other threads may hold while they wait for the thread that loads.
pub static JOINING: Image = Image { bytes: include_bytes!(concat!(env!("OUT_DIR"), "/attached.so")) };
/// Needs no dynamic linker.
pub static PLACED: Image = Image { bytes: include_bytes!(concat!(env!("OUT_DIR"), "/placed.so")) };

/// Its name in the directory of a program that is started,
pub const FILE: &str = "agent.so";
/// and of a process that is attached to: there it is in the middle of a thread's life, and does less at its start.
pub const ATTACHED: &str = "attached.so";
/// and of a program that one of the session's processes has become: both may be in one session, and the one may be placed.
pub const FOLLOWED: &str = "followed.so";

impl Image {
    /// Parsed.
    pub fn file(&self) -> Option<ElfFile64<'static, Endianness>> {
        ElfFile64::parse(self.bytes).ok()
    }

    /// Where a symbol is, counted from its load address.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        let file = self.file()?;
        let found = file.symbols().find(|symbol| symbol.name() == Ok(name) && symbol.is_definition());
        found.map(|symbol| symbol.address())
    }

    /// Its code, with all that is never written.
    fn text(&self) -> Option<&'static [u8]> {
        let file = self.file()?;
        let code = file.segments().next().filter(|code| code.address() == 0)?;
        code.data().ok()
    }

    /// Is it this build that is mapped at an address?
    fn is_at(&self, address: u64, text: &mut ProcessText) -> bool {
        let mut mapped = vec![0; self.text().map_or(0, <[u8]>::len)];
        text.read(Avma(address), &mut mapped).is_ok() && self.text() == Some(&mapped)
    }

    /// Where a section is, likewise.
    pub fn section(&self, name: &str) -> Option<u64> {
        Some(self.file()?.section_by_name(name)?.address())
    }
}

/// An agent in a process.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Its load address.
    pub base: u64,
    image: &'static Image,
}

impl Loaded {
    /// Looks for it in a process: this build of it, of any session. Another build stays where it is, inert, and is not used.
    pub fn find(regions: &[Region], text: &mut ProcessText) -> Option<Loaded> {
        let mut which = |region: &Region| {
            [&LIBRARY, &JOINING, &PLACED].into_iter().find(|image| image.is_at(region.start, text))
        };
        let first = |region: &&Region| region.offset == 0 && is_mapped(region);
        let all = regions.iter().filter(first);
        all.filter_map(|region| Some(Loaded { base: region.start, image: which(region)? })).next()
    }

    /// Was it placed by the recorder?
    pub fn is_placed(&self) -> bool {
        std::ptr::eq(self.image, &PLACED)
    }

    /// Must it be told [where the thread library keeps a thread's id](crate::injection::placed::owner_word)?
    pub fn needs_owner_word(&self) -> bool {
        !std::ptr::eq(self.image, &LIBRARY)
    }

    /// Is it still there?
    pub fn is_in(&self, regions: &[Region]) -> bool {
        regions.iter().any(|region| region.start == self.base)
    }

    /// The address of one of its symbols.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        Some(self.base + self.image.symbol(name)?)
    }

    /// The address of one of its sections.
    pub fn section(&self, name: &str) -> Option<u64> {
        Some(self.base + self.image.section(name)?)
    }
}

/// The agent's word that lets its profile function of CPython touch the session's memory.
pub const PYTHON_GATE: &str = "calltap_python_gate";

/// The file that stubs and veneers are mapped from, beside the agent's.
pub const CODE: &str = "code";

/// Is this the name of a mapping of stubs and veneers?
pub fn is_code(name: &str) -> bool {
    name.trim_end_matches(" (deleted)") == CODE
}

/// Is this a mapping of an agent's file?
pub fn is_mapped(region: &Region) -> bool {
    // The file itself is deleted when its session ends.
    matches!(region.name().trim_end_matches(" (deleted)"), FILE | ATTACHED | FOLLOWED)
}

/// The processes in which an agent has mapped the control file of a session: of those that are known, which come first, and of those that run the program of one of them, as
/// a forked child does. A process in the middle of execve locks its mappings, and may be there for long, as on a dead file server: the mappings of unrelated processes are not read.
pub fn who_maps(session: &SessionId, known: &[u32]) -> Vec<u32> {
    let all = known.iter().copied().chain(proc::of_same_programs(known));
    all.filter(|pid| has_mapped(*pid, session)).collect()
}

/// Has an agent mapped the control file of this session into a process?
pub fn has_mapped(pid: u32, session: &SessionId) -> bool {
    let regions = maps::read(pid).unwrap_or_default();
    // By name as well: file systems that have no name in common number their files alike.
    let directory = |region: &Region| region.path.parent().and_then(Path::file_name) == Some(&session.name);
    let control = |region: &Region| {
        region.file.1 == session.control && region.name().starts_with("control") && directory(region)
    };
    // Controllers have mapped it too, but no agent.
    regions.iter().any(control) && regions.iter().any(is_mapped)
}

//! The agent's three images, and the search for one of them in a process.
//!
//! One image is loaded with a program, one is loaded into a process that runs already, and one is
//! placed by the recorder where no dynamic linker can load an agent (see
//! [`crate::injection::placed`]).

use crate::memory::maps::{self, Region};
use crate::memory::text::ProcessText;
use crate::proc::{self, SessionId};
use calltap_patch::{Avma, Text};
use flate2::read::ZlibDecoder;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

/// An image of the agent. It is embedded compressed, which makes calltap half a megabyte smaller.
#[derive(Debug)]
pub struct Image {
    packed: &'static [u8],
    /// The shared object, from its first use on.
    unpacked: OnceLock<Vec<u8>>,
}

/// The image that a program's dynamic linker loads before the program begins. A thread-local
/// variable holds each thread's state.
pub static PRELOADED: Image = Image::embedded(include_bytes!(concat!(env!("OUT_DIR"), "/agent.so.z")));
/// The image that `dlopen` loads into a running process. It has no thread-local variable: to
/// allocate one, a dynamic linker takes locks that other threads may hold while they wait for the
/// loading thread.
pub static ATTACHED: Image = Image::embedded(include_bytes!(concat!(env!("OUT_DIR"), "/attached.so.z")));
/// The image that needs no dynamic linker.
pub static PLACED: Image = Image::embedded(include_bytes!(concat!(env!("OUT_DIR"), "/placed.so.z")));

/// File name of the agent in the directory of a program that calltap starts.
pub const PRELOADED_FILE: &str = "agent.so";
/// File name of the agent in the directory of a process that is attached to. This agent is loaded
/// in the middle of a thread's life, and does less at its start.
pub const ATTACHED_FILE: &str = "attached.so";
/// File name of the agent for a program that a process of the session executes. The session may
/// also have [`PRELOADED_FILE`] or [`ATTACHED_FILE`], for a process that has another image.
pub const FOLLOWED_FILE: &str = "followed.so";

impl Image {
    const fn embedded(packed: &'static [u8]) -> Image {
        Image { packed, unpacked: OnceLock::new() }
    }

    /// Returns the shared object.
    pub fn bytes(&'static self) -> &'static [u8] {
        self.unpacked.get_or_init(|| {
            let mut bytes = Vec::new();
            let unpacked = ZlibDecoder::new(self.packed).read_to_end(&mut bytes);
            unpacked.expect("an image that the build script has compressed");
            bytes
        })
    }

    /// Parses the image.
    pub fn file(&'static self) -> Option<ElfFile64<'static, Endianness>> {
        ElfFile64::parse(self.bytes()).ok()
    }

    /// Returns the offset of a symbol from the load address.
    pub fn symbol(&'static self, name: &str) -> Option<u64> {
        let file = self.file()?;
        let found = file.symbols().find(|symbol| symbol.name() == Ok(name) && symbol.is_definition());
        found.map(|symbol| symbol.address())
    }

    /// The bytes of the first segment: code and data that are never written.
    fn text(&'static self) -> Option<&'static [u8]> {
        let file = self.file()?;
        let code = file.segments().next().filter(|code| code.address() == 0)?;
        code.data().ok()
    }

    /// Whether this build of the image is mapped at an address.
    fn is_mapped_at(&'static self, address: u64, text: &mut ProcessText) -> bool {
        let mut mapped = vec![0; self.text().map_or(0, <[u8]>::len)];
        text.read(Avma(address), &mut mapped).is_ok() && self.text() == Some(&mapped)
    }

    /// Returns the offset of a section from the load address.
    pub fn section(&'static self, name: &str) -> Option<u64> {
        Some(self.file()?.section_by_name(name)?.address())
    }
}

/// An agent that is loaded in a process.
#[derive(Clone, Copy, Debug)]
pub struct LoadedAgent {
    /// Load address of the agent.
    pub base: u64,
    image: &'static Image,
}

impl LoadedAgent {
    /// Finds this build of the agent in a process, of any session. The agent of another build is
    /// not used: it stays mapped and does nothing.
    pub fn find(regions: &[Region], text: &mut ProcessText) -> Option<LoadedAgent> {
        let mut which = |region: &Region| {
            [&PRELOADED, &ATTACHED, &PLACED].into_iter().find(|image| image.is_mapped_at(region.start, text))
        };
        let first = |region: &&Region| region.offset == 0 && is_mapped(region);
        let all = regions.iter().filter(first);
        all.filter_map(|region| Some(LoadedAgent { base: region.start, image: which(region)? })).next()
    }

    /// Whether the recorder placed this agent.
    pub fn is_placed(&self) -> bool {
        std::ptr::eq(self.image, &PLACED)
    }

    /// Whether the dynamic linker loaded this agent when the program started.
    pub fn is_preloaded(&self) -> bool {
        std::ptr::eq(self.image, &PRELOADED)
    }

    /// Whether the recorder must tell the agent [where the thread library keeps a thread's
    /// id](crate::injection::placed::owner_word).
    pub fn needs_owner_word(&self) -> bool {
        !self.is_preloaded()
    }

    /// Whether the agent is still mapped.
    pub fn is_in(&self, regions: &[Region]) -> bool {
        regions.iter().any(|region| region.start == self.base)
    }

    /// Returns the address of a symbol of the agent.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        Some(self.base + self.image.symbol(name)?)
    }

    /// Returns the address of a section of the agent.
    pub fn section(&self, name: &str) -> Option<u64> {
        Some(self.base + self.image.section(name)?)
    }
}

/// Symbol of the agent's word that lets its profile function of CPython touch the session's memory.
pub const PYTHON_GATE: &str = "calltap_python_gate";

/// Name of the file that stubs and veneers are mapped from, beside the agent's file.
pub const CODE: &str = "code";

/// Whether a mapping of this name holds stubs and veneers.
pub(crate) fn is_code(name: &str) -> bool {
    name.trim_end_matches(" (deleted)") == CODE
}

/// Whether a region maps an agent's file.
pub fn is_mapped(region: &Region) -> bool {
    // The file itself is deleted when its session ends.
    matches!(region.name().trim_end_matches(" (deleted)"), PRELOADED_FILE | ATTACHED_FILE | FOLLOWED_FILE)
}

/// Returns the processes in which an agent has mapped the control file of a session.
///
/// Looks at the known processes first, then at those that run `program` or that of a known one, as
/// a forked child does. Mappings of unrelated processes are not read: a process in the middle of
/// execve locks its mappings, and may stay there for long, for example on a dead file server.
pub fn who_maps(session: &SessionId, known: &[u32], program: Option<&Path>) -> Vec<u32> {
    let all = known.iter().copied().chain(proc::of_same_programs(known, program));
    all.filter(|pid| has_mapped(*pid, session)).collect()
}

/// Whether an agent has mapped the control file of this session into a process.
pub fn has_mapped(pid: u32, session: &SessionId) -> bool {
    is_joined(&maps::read(pid).unwrap_or_default(), session)
}

/// Whether an agent has mapped the control file of this session, in a process with these mappings.
pub fn is_joined(regions: &[Region], session: &SessionId) -> bool {
    // The inode number alone is ambiguous: unrelated file systems number their files alike.
    let directory = |region: &Region| region.path.parent().and_then(Path::file_name) == Some(&session.name);
    let control = |region: &Region| {
        region.file.1 == session.control && region.name().starts_with("control") && directory(region)
    };
    // A controller maps the control file too, but has no agent.
    regions.iter().any(control) && regions.iter().any(is_mapped)
}

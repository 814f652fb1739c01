//! Properties of an ELF file, and its functions with their sites.

use crate::address::Svma;
use crate::elf::image::Segment;
use crate::function::Function;
use crate::reason::NoJump;
use crate::site::JUMP;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// An ELF file as read: its headers' properties, its segments and its functions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Binary {
    /// The linker's identifier of this build, in hexadecimal.
    pub build_id: Option<String>,
    /// The dynamic loader that the program requests (PT_INTERP); none for a static program or an
    /// ordinary shared object.
    pub interpreter: Option<String>,
    /// Whether the file may be loaded at any address (ET_DYN).
    pub position_independent: bool,
    /// Whether the file is a program rather than a shared object, as far as that can be told: it is
    /// not position independent, or marked as a program by the linker, or has an interpreter and no
    /// library's name.
    pub is_program: bool,
    /// Names of the libraries that the file needs (DT_NEEDED), in order.
    pub needed: Vec<String>,
    /// Name by which other files need this one (DT_SONAME).
    pub soname: Option<String>,
    /// Entry point.
    pub entry: Svma,
    /// Segments that the loader maps, in address order.
    pub segments: Vec<Segment>,
    /// Every function, in address order, one per address.
    pub functions: Vec<Function>,
    /// Profiling functions that the file defines.
    pub profilers: Vec<Profiler>,
    /// Functions that choose other functions when the program is linked at run time (IFUNC), in
    /// address order.
    pub resolvers: Vec<Resolver>,
    /// Broken parts of the file that were skipped, each with the consequence.
    pub complaints: Vec<String>,
    /// Calls into libraries without a linker's stub. Filled in by
    /// [`add_library_calls`](crate::add_library_calls).
    #[serde(skip)]
    pub calls_without_stub: CallsWithoutStub,
}

/// Names of library functions that a program can call through their addresses, without a linker's
/// stub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallsWithoutStub {
    /// Functions that have no stub.
    pub alone: BTreeSet<String>,
    /// Functions that have a stub as well, for other calls.
    pub beside_stub: BTreeSet<String>,
}

impl Binary {
    /// Whether the file is a program in which no function has a site.
    pub fn is_bare(&self) -> bool {
        self.is_program && self.functions.iter().all(|function| !function.is_traceable())
    }

    /// Whether its functions are watched ones, and no other was searched for.
    pub fn is_watched_alone(&self) -> bool {
        !self.functions.is_empty() && self.functions.iter().all(|function| function.watch.is_some())
    }
}

/// The profiling function that compiled functions call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProfilingFunction {
    /// `__fentry__`, called before anything else.
    Fentry,
    /// `mcount`, called after the prologue.
    Mcount,
}

impl ProfilingFunction {
    /// Returns the profiling function with this symbol name.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"__fentry__" => Some(ProfilingFunction::Fentry),
            b"mcount" | b"_mcount" => Some(ProfilingFunction::Mcount),
            _ => None,
        }
    }
}

/// A profiling function that a file defines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Profiler {
    /// The profiling function's kind.
    pub function: ProfilingFunction,
    /// Linker symbol.
    pub name: String,
    /// Address of the first byte.
    pub address: Svma,
    /// Address where a jump may replace the function's code (behind an `endbr64`), and the bytes
    /// there; or why no jump may.
    pub place: Result<(Svma, [u8; JUMP as usize]), NoJump>,
}

/// A function that chooses others (IFUNC resolver).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resolver {
    /// Address of the resolver.
    pub address: Svma,
    /// Symbols for which it chooses a function, sorted.
    pub names: Vec<String>,
    /// Functions that it may choose, as far as it takes the addresses of functions of the same
    /// file, in address order.
    pub choices: Vec<Svma>,
}

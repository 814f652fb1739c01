//! What is known of an ELF file: itself, and its functions with their sites.

use crate::address::Svma;
use crate::elf::image::Segment;
use crate::function::Function;
use crate::site::JUMP;
use serde::{Deserialize, Serialize};

/// What an ELF file says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Binary {
    /// The linker's identifier of this build, in hexadecimal.
    pub build_id: Option<String>,
    /// The dynamic loader the program asks for; a static program or an ordinary shared object asks for none.
    pub interpreter: Option<String>,
    /// It may be loaded anywhere (ET_DYN).
    pub position_independent: bool,
    /// A program rather than a shared object, as far as that can be told: not position independent, or marked
    /// as a program by the linker, or with an interpreter and without a library's name.
    pub is_program: bool,
    /// The libraries it needs (DT_NEEDED), in order.
    pub needed: Vec<String>,
    /// The name others need it by (DT_SONAME).
    pub soname: Option<String>,
    /// Where execution begins.
    pub entry: Svma,
    /// What the loader maps, in address order.
    pub segments: Vec<Segment>,
    /// Every function, in address order, one per address.
    pub functions: Vec<Function>,
    /// The profiling functions that it defines.
    pub profilers: Vec<Profiler>,
    /// The functions that choose others when the program is linked at run time (IFUNC), in address order.
    pub resolvers: Vec<Resolver>,
    /// Broken parts that were skipped, and what is missed for it.
    pub complaints: Vec<String>,
    /// Functions of libraries, sorted, that the program can call without a stub, by their addresses: once its stubs were [looked for](crate::add_library_calls).
    #[serde(skip)]
    pub called_without_stub: Vec<String>,
}

impl Binary {
    /// Is it a program that was not built for tracing?
    pub fn is_bare(&self) -> bool {
        self.is_program && self.functions.iter().all(|function| function.form.is_none())
    }
}

/// Which profiling function a compiler has functions call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Hook {
    /// Before anything else.
    Fentry,
    /// After the prologue.
    Mcount,
}

impl Hook {
    /// The one with a symbol.
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"__fentry__" => Some(Hook::Fentry),
            b"mcount" | b"_mcount" => Some(Hook::Mcount),
            _ => None,
        }
    }
}

/// A profiling function that a file defines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Profiler {
    /// Which.
    pub hook: Hook,
    /// Linker symbol.
    pub name: String,
    /// Its first byte.
    pub address: Svma,
    /// Where a jump may take its place (behind an `endbr64`), and the bytes there; or why it may not.
    pub place: Result<(Svma, [u8; JUMP as usize]), String>,
}

/// A function that chooses others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resolver {
    /// Where it is.
    pub address: Svma,
    /// The symbols that it chooses for, sorted.
    pub names: Vec<String>,
    /// What it chooses from, as far as it takes the addresses of functions of the same file; in address order.
    pub choices: Vec<Svma>,
}

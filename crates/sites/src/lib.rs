//! Where a program can be traced: every function of an ELF file, and the bytes a tracer may patch in it.
//!
//! Safe code only; it reads a byte slice and never a process. All addresses here are *link-time* addresses
//! ([`Svma`], as the ELF file states them); the controller adds a module's load bias.
#![forbid(unsafe_code)]

use calltap_abi::PAGE;
use calltap_abi::isa::{Isa, X86_64};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of the jump that a site becomes.
const JUMP: u64 = X86_64::JUMP;

/// An address as the ELF file states it (stated virtual memory address), before the loader adds its bias.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Svma(pub u64);

/// How the compiler left room for tracing in a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum SiteKind {
    /// `-fpatchable-function-entry=N[,M]` (gcc, clang), `-Z patchable-function-entry` (rustc).
    Patchable,
    /// Recorded in `__mcount_loc`: `-pg -mfentry -mrecord-mcount`, NOPs with `-mnop-mcount`.
    McountLoc,
    /// A `call __fentry__` before the prologue, found by decoding (`-pg -mfentry`).
    Fentry,
    /// A `call mcount` after the prologue, found by decoding (`-pg`, rustc `-Z instrument-mcount`).
    Mcount,
    /// Sleds at its entry and where it is left, recorded in `xray_instr_map` (clang `-fxray-instrument`, rustc `-Z instrument-xray`).
    Xray,
    /// The compiler left nothing: the function's first instructions themselves, which are run elsewhere while it is traced.
    Prologue,
    /// A stub of the linker, through which the program calls a library.
    Plt,
    /// There is nothing to patch.
    None,
}

impl SiteKind {
    /// The name in listings and in trace files.
    pub fn name(self) -> &'static str {
        match self {
            SiteKind::Patchable => "patchable",
            SiteKind::McountLoc => "mcount_loc",
            SiteKind::Fentry => "fentry",
            SiteKind::Mcount => "mcount",
            SiteKind::Xray => "xray",
            SiteKind::Prologue => "prologue",
            SiteKind::Plt => "plt",
            SiteKind::None => "none",
        }
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is patched, and what must be there before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SiteForm {
    /// Before the prologue, the first five bytes of `old` become a jump to the site's stub. The rest of `old` stays,
    /// is never run while the jump is there, and the body resumes at `at + old.len()`.
    ///
    /// `old` is whole instructions, five bytes or more: NOPs (one-byte ones, or up to 15 bytes each), `call rel32`,
    /// `call *sym@GOTPCREL(%rip)`, `addr32 call rel32`, or a short jump to the end of `old`.
    Entry {
        /// First patched byte.
        at: Svma,
        /// The bytes that must be there.
        old: Vec<u8>,
    },
    /// Fewer than five NOP bytes at the entry but at least two, and at least five NOP bytes in front of the
    /// function: a 2-byte `jmp` at `entry` leads back to the 5-byte jump at `prefix`.
    Prefix {
        /// First of the 5 bytes in front of the function.
        prefix: Svma,
        /// The 5 bytes that must be at `prefix`.
        prefix_old: Vec<u8>,
        /// The 2 bytes at the entry (after any `endbr64`); the body resumes at `entry + 2`.
        entry: Svma,
        /// The 2 bytes that must be at `entry` (`66 90`, or two one-byte NOPs).
        entry_old: Vec<u8>,
    },
    /// Whole instructions of the function's own, five bytes or more, of which the first five become a jump. A copy of them elsewhere is run instead,
    /// and leads on to `at + old.len()`. Nothing in the file jumps to where the jump is but to its first byte.
    Prologue {
        /// First patched byte.
        at: Svma,
        /// The bytes that must be there. Behind a function that is shorter than the jump, also padding.
        old: Vec<u8>,
    },
    /// The same of a function that has no room for the jump, as it is shorter or something jumps behind its first instruction: a 2-byte `jmp` in the place of that leads
    /// back to the 5-byte jump in the padding in front of the function. A copy of it is run elsewhere, and leads on to `at + old.len()`.
    PaddingJump {
        /// First of the 5 bytes of padding.
        front: Svma,
        /// The bytes that must be there, up to `at`: the padding, and perhaps more of it and an `endbr64`, which stay.
        front_old: Vec<u8>,
        /// The first instruction.
        at: Svma,
        /// Its bytes: two to four.
        old: Vec<u8>,
    },
    /// A Go function's check of its stack, whole instructions, of which the first five bytes become a jump. A
    /// copy of them elsewhere is run *first*: where the check passes, the stub comes, and then the body at
    /// `at + old.len()`. Only the entry can be traced.
    Checked {
        /// First patched byte.
        at: Svma,
        /// The bytes that must be there.
        old: Vec<u8>,
    },
    /// The same of a function that has no room for any jump: a breakpoint, which stays, takes the place of its first byte. A handler of SIGTRAP in the program leads to the copy.
    Trap {
        /// The byte.
        at: Svma,
        /// The bytes that must be there: the first instruction, and those behind it up to an exit that is near.
        old: Vec<u8>,
    },
    /// A call to mcount after a prologue that set up the frame pointer: the caller's return address is at `8(%rbp)`.
    /// `old` is 5 bytes (`call rel32`, a NOP) or 6 (`call *mcount@GOTPCREL(%rip)`, `addr32 call rel32`, a NOP).
    AfterPrologue {
        /// First patched byte.
        at: Svma,
        /// The bytes that must be there.
        old: Vec<u8>,
    },
}

impl SiteForm {
    /// The first byte that is patched.
    pub fn address(&self) -> Svma {
        match self {
            SiteForm::Entry { at, .. }
            | SiteForm::Prologue { at, .. }
            | SiteForm::Checked { at, .. }
            | SiteForm::AfterPrologue { at, .. }
            | SiteForm::Trap { at, .. } => *at,
            SiteForm::Prefix { prefix, .. } => *prefix,
            SiteForm::PaddingJump { front, .. } => *front,
        }
    }
}

/// How it is seen that a function returns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Returns {
    /// While it runs, a stub's address is in the place of its return address. Why its exits are not rewritten instead; None where the compiler left room at its entry.
    Stub(Option<Reason>),
    /// Its exits give way to jumps, all of them.
    Exits {
        /// Offsets of those among the instructions that give way at its entry,
        at_entry: Vec<u8>,
        /// and those elsewhere.
        elsewhere: Vec<Exit>,
        /// Why the end of a call is not seen that leaves by a tail call, a jump to another function; None if there is no such exit.
        unseen: Option<Reason>,
    },
}

impl Default for Returns {
    fn default() -> Returns {
        Returns::Stub(None)
    }
}

/// Where a function is left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exit {
    /// First byte that gives way.
    pub at: Svma,
    /// Whole instructions, and perhaps padding: five bytes or more.
    pub old: Vec<u8>,
    /// Offsets of the instructions that leave.
    pub leaves: Vec<u8>,
    /// The compiler left it room: it is a `ret` with padding behind it, or a short jump to the end of `old`, behind which the function is left.
    pub is_sled: bool,
}

/// One function of a binary, traceable or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Function {
    /// Linker symbol, or `module+0x...` when the binary has none for it.
    pub name: String,
    /// Further linker symbols of the same address (aliases, identical-code folding), and of [resolvers](Resolver) that may choose it, sorted.
    pub aliases: Vec<String>,
    /// Entry address.
    pub address: Svma,
    /// Bytes, 0 when unknown.
    pub size: u64,
    /// A function, or a part of one.
    pub role: Role,
    /// What the compiler left at it.
    pub kind: SiteKind,
    /// What to patch, when it can be traced.
    pub form: Option<SiteForm>,
    /// How its return is seen.
    pub returns: Returns,
    /// Why it cannot be traced; None when it can.
    pub reason: Option<Reason>,
    /// It is traced only where a filter names it: it was not built to be traced, and there are thousands like it.
    pub on_demand: bool,
    /// It polls a future, or drops one, as far as that was [looked for](find_polls).
    pub poll: Option<Poll>,
}

impl Function {
    /// Is it a part of another one, which the compiler moved away, and no function?
    pub fn is_part(&self) -> bool {
        matches!(self.role, Role::ColdPart(_))
    }

    pub(crate) fn set_role(&mut self, role: Role) {
        self.reason = role.reason();
        self.role = role;
    }
}

/// What is listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Role {
    /// A function.
    #[default]
    Function,
    /// Code that the compiler moved out of a function, entered by jumps only: of this one, if that is known.
    ColdPart(Option<String>),
}

impl Role {
    /// Why it cannot be traced for that.
    fn reason(&self) -> Option<Reason> {
        match self {
            Role::Function => None,
            Role::ColdPart(Some(function)) => Some(Reason::ColdPartOf { function: function.clone() }),
            Role::ColdPart(None) => Some(Reason::ColdPart),
        }
    }
}

/// How a function of a program in Rust polls a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Poll {
    /// What it is.
    pub kind: PollKind,
    /// Where the future says how far it has come.
    pub state: Option<StateByte>,
}

/// What polls a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PollKind {
    /// The body of an `async fn` or an `async` block.
    Body,
    /// `Future::poll` of a type.
    Written,
    /// What a worker of tokio calls for a task,
    Task,
    /// and what that calls for the future that was spawned, if its body has become a part of that. When it is ready, its memory is used for something else at once.
    Inlined,
    /// It does not: it is called when one of the types that are polled is dropped.
    Drop,
}

/// A byte of a future: 0 before it is polled, 1 when it is done, 2 when it has panicked, else where it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateByte {
    /// The argument that leads to it, counted from 0.
    pub argument: u8,
    /// How far behind.
    pub offset: i32,
}

mod discover;
mod error;
mod inlined;
mod load;
mod quick;
pub mod reason;
pub mod types;
pub use discover::{
    Binary, Contradiction, Discovery, Hook, Landings, Profiler, Resolver, Segment, add_library_calls,
    add_names, beginning, build_id_of, called, debug_link, ends, find_landings, find_polls, find_prologues,
    interpreter_of, is_go_alone, is_unnamed, lacks_names, needed, plt_slot, profilers, read, read_by,
};
pub use error::Error;
pub use inlined::{Inlined, inlined};
pub use load::{load, load_all, open, open_itself};
pub use quick::{
    build_id_of_file, count_functions, file_defines_profiler, file_may_define, file_may_have_sites,
    may_have_sites,
};
pub use reason::Reason;

//! What of a function is patched, and what the compiler left for it.

use crate::address::Svma;
use calltap_abi::isa::{Isa, X86_64};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of the jump that a site becomes.
pub const JUMP: u64 = X86_64::JUMP;
/// `pop %rbp`.
pub const POP: u8 = 0x5D;

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
    /// `at + old.len()`. No return address is replaced: its returns are seen if its exits give way.
    Checked {
        /// First patched byte.
        at: Svma,
        /// The bytes that must be there.
        old: Vec<u8>,
        /// Where a goroutine has its number, in words from the `g` that r14 leads to while the function runs; None where r14 does not, or where that
        /// is not known.
        goid: Option<u8>,
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

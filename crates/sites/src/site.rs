//! The site of a function: the bytes that are patched, and the room that the compiler left for
//! them.

use crate::address::Svma;
use calltap_abi::isa::{Isa, X86_64};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of the jump that a site becomes.
pub(crate) const JUMP: u64 = X86_64::JUMP;
/// `pop %rbp`.
pub const POP: u8 = 0x5D;

/// Kind of room that the compiler left for tracing in a function.
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
    /// Sleds at entry and exits, recorded in `xray_instr_map` (clang `-fxray-instrument`, rustc `-Z
    /// instrument-xray`).
    Xray,
    /// No room: the function's first instructions are overwritten, and executed out of line while
    /// it is traced.
    Prologue,
    /// A stub of the linker through which the program calls a library.
    Plt,
    /// No site.
    None,
}

impl SiteKind {
    /// Returns the name in listings and in trace files.
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

/// How the goroutine that runs a Go function is found: the place of its record's address, and
/// offsets in that record, `runtime.g`, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Goroutine {
    /// Place of the record's address while the function runs.
    pub g: GPlace,
    /// Offset of the goroutine's number.
    pub number: u8,
    /// Offset of the number of the goroutine that started it; None in versions of Go without it.
    pub started_by: Option<u8>,
}

/// Place of the address of the running goroutine's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GPlace {
    /// In r14, where Go's compiler has kept it since 1.17.
    R14,
    /// In the word below the thread pointer. Functions of Go 1.16 use r14 for anything; it is free
    /// where they begin and return, as they pass all values on the stack.
    BelowThreadPointer,
    /// In the word at the thread pointer plus the offset at this address. Otherwise as below the
    /// thread pointer.
    AtOffset(Svma),
}

/// Form of a site: the bytes that are patched, and their expected contents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SiteForm {
    /// Room in front of the prologue: the first five bytes of `old` become a jump to the site's
    /// stub. The rest of `old` stays, is never executed while the jump is there, and the body
    /// resumes at `at + old.len()`.
    ///
    /// `old` is whole instructions of five bytes or more: NOPs (of one byte, or up to 15 bytes
    /// each), `call rel32`, `call *sym@GOTPCREL(%rip)`, `addr32 call rel32`, or a short jump to the
    /// end of `old`.
    Entry {
        /// Address of the first patched byte.
        at: Svma,
        /// Bytes expected there.
        old: Vec<u8>,
    },
    /// Two to four NOP bytes at the entry, and at least five in front of the function: a 2-byte
    /// `jmp` at `entry` leads back to the 5-byte jump at `prefix`.
    Prefix {
        /// Address of the five bytes in front of the function.
        prefix: Svma,
        /// Bytes expected at `prefix`, five.
        prefix_old: Vec<u8>,
        /// Address of the two bytes at the entry (behind any `endbr64`); the body resumes at `entry
        /// + 2`.
        entry: Svma,
        /// Bytes expected at `entry`, two (`66 90`, or two one-byte NOPs).
        entry_old: Vec<u8>,
    },
    /// The function's first instructions, whole and of five bytes or more: the first five bytes
    /// become a jump. An out-of-line copy is executed instead, and leads on to `at + old.len()`.
    /// Branches in the file may lead to the first byte of the jump, but not to the others.
    Prologue {
        /// Address of the first patched byte.
        at: Svma,
        /// Bytes expected there; behind a function shorter than the jump, they include padding.
        old: Vec<u8>,
    },
    /// The first instruction of a function without room for a 5-byte jump, as it is too short or a
    /// branch lands behind that instruction. A 2-byte `jmp` replaces the instruction, and leads
    /// back to the 5-byte jump in the padding in front of the function. An out-of-line copy is
    /// executed, and leads on to `at + old.len()`.
    PaddingJump {
        /// Address of the five bytes of padding.
        front: Svma,
        /// Bytes expected from there up to `at`: the padding, and perhaps more padding and an
        /// `endbr64`, which stay.
        front_old: Vec<u8>,
        /// Address of the first instruction.
        at: Svma,
        /// Bytes of that instruction, two to four.
        old: Vec<u8>,
    },
    /// A Go function's stack check, whole instructions: its first five bytes become a jump. An
    /// out-of-line copy is executed *first*. Where the check passes, the stub follows, and then the
    /// body at `at + old.len()`. No return address is replaced: returns are seen only if the
    /// function's exits can be overwritten.
    Checked {
        /// Address of the first patched byte.
        at: Svma,
        /// Bytes expected there.
        old: Vec<u8>,
        /// None if the goroutine's record is not in a known place, or its layout is unknown.
        goroutine: Option<Goroutine>,
    },
    /// The first instructions of a Go function that does not check its stack. An out-of-line copy
    /// first compares the stack pointer with the bounds of the goroutine's stack, and leads to the
    /// stub only if that has room for a hook. No return address is replaced.
    Unchecked {
        /// Address of the first patched byte.
        at: Svma,
        /// Bytes expected there; behind a function shorter than the jump, they include padding.
        old: Vec<u8>,
        /// The goroutine's record, whose address is in r14.
        goroutine: Goroutine,
    },
    /// The first instruction of a function without room for any jump: a breakpoint, which stays,
    /// replaces its first byte. A SIGTRAP handler in the program leads to the out-of-line copy.
    Trap {
        /// Address of that byte.
        at: Svma,
        /// Bytes expected there: the first instruction, and those behind it up to a near exit.
        old: Vec<u8>,
    },
    /// A call of mcount behind a prologue that set up the frame pointer: the caller's return
    /// address is at `8(%rbp)`. `old` has 5 bytes (`call rel32`, a NOP) or 6 (`call
    /// *mcount@GOTPCREL(%rip)`, `addr32 call rel32`, a NOP).
    AfterPrologue {
        /// Address of the first patched byte.
        at: Svma,
        /// Bytes expected there.
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
            | SiteForm::Unchecked { at, .. }
            | SiteForm::AfterPrologue { at, .. }
            | SiteForm::Trap { at, .. } => *at,
            SiteForm::Prefix { prefix, .. } => *prefix,
            SiteForm::PaddingJump { front, .. } => *front,
        }
    }

    /// Whether the function runs on a goroutine's stack, which moves.
    pub fn is_of_go(&self) -> bool {
        matches!(self, SiteForm::Checked { .. } | SiteForm::Unchecked { .. })
    }

    /// How the goroutine that runs a Go function is found, if that is known.
    pub fn goroutine(&self) -> Option<Goroutine> {
        match self {
            SiteForm::Checked { goroutine, .. } => *goroutine,
            SiteForm::Unchecked { goroutine, .. } => Some(*goroutine),
            _ => None,
        }
    }
}

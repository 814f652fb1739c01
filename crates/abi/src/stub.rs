//! The stub of a site: 32 bytes that a patched site jumps to (or, after a prologue, calls).
//!
//! ```text
//!      call-through (graph)             entry only (function)        after the prologue (mcount)
//!  0:  call entry                   2:  call entry               1:  call entry
//!  5:  call body      6 bytes       7:  jmp body                 6:  ret
//! 11:  call exit                                                11:  call exit      <- the function returns here
//! 16:  ret                                                      16:  ret
//! 17:  jmp body       tail calls, and calls that are not recorded
//! 24:  address of the body, where it is out of reach of a direct call
//! ```
//!
//! The three start at different offsets because the unwind table of all stubs is one rule over the offset of the pc.

/// Bytes of a stub.
pub const SIZE: usize = 32;
/// Bytes of the stub region; it is aligned to its size in the target.
pub const REGION: usize = 32 << 20;
/// Stubs in the region.
pub const COUNT: usize = REGION / SIZE;
/// Where the entry of a call-through stub returns.
pub const AFTER_ENTRY: usize = 5;
/// Where the entry of an entry-only stub returns.
pub const AFTER_CALL: usize = 7;
/// Where the entry of a stub after a prologue returns.
pub const AFTER_MCOUNT: usize = 6;
/// Where the function's body returns.
pub const LANDING: usize = 11;
/// Where `call exit` returns: the `ret`.
pub const AFTER_EXIT: usize = 16;
/// The way into the body that leaves the return address alone.
pub const TAIL: usize = 17;
/// The body's address.
pub const BODY: usize = 24;

/// Near hops: 16 bytes close to modules that the stub region is too far from: `jmp *2(%rip)`, padding, address.
pub const HOP_SIZE: usize = 16;
/// Bytes of the hop area in the code file, behind the stubs.
pub const HOPS: usize = COUNT * HOP_SIZE;
/// Number of [`Hook`]s.
pub const HOOK_COUNT: usize = 7;

/// A hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Hook {
    /// function_graph entry.
    Entry = 0,
    /// function entry.
    Call = 1,
    /// Both.
    EntryFrom = 2,
    /// Return.
    Exit = 3,
    /// function_graph entry after a prologue.
    McountEntry = 4,
    /// function entry after a prologue.
    McountCall = 5,
    /// Both, after a prologue.
    McountEntryFrom = 6,
}

/// The mirror of stack slot S, where the true return address is while a traced call runs, is at S with this bit flipped.
pub const MIRROR_BIT: u32 = 44;
/// Mirror memory is mapped in pieces of this many bytes (log2).
pub const MIRROR_GRANULE: u32 = 23;

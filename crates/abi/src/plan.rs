//! Mappings that the recorder asks the agent to make. The recorder writes the program's text
//! itself.
//!
//! A plan lies in the plan area: [`PlanHeader`], then `maps` times [`Map`].

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Header of a plan.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PlanHeader {
    /// Number of [`Map`]s.
    pub maps: AtomicU32,
    /// 1 if no seccomp filter forbids mremap. If the agent cannot open the code file, as its
    /// process has changed its user or root, it duplicates the mapping of the veneers that it made
    /// when it joined.
    pub may_duplicate: AtomicU32,
}

/// A piece of the code file (veneers) to be mapped at an address, which never replaces an existing
/// mapping. Or a breakpoint that stays, with its target as the offset.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Map {
    /// Page-aligned address.
    pub address: AtomicU64,
    /// Offset in the code file.
    pub offset: AtomicU64,
    /// Bytes.
    pub length: AtomicU64,
    /// Result: 0, or an errno.
    pub errno: AtomicU64,
}

/// State of a process's question about its modules ([`crate::ProcessEntry::phase`]). Only the named
/// side changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// No question. Agent: to Asked.
    Idle = 0,
    /// "My modules have changed." Recorder: to Planned, or to Idle when it detaches. Agent, after
    /// waiting in vain: to Idle.
    Asked = 1,
    /// The plan lists mappings. Agent: to Mapped.
    Planned = 2,
    /// The mappings are made, or have an errno. Recorder: to Writing. Agent, after waiting in vain:
    /// to Idle.
    Mapped = 3,
    /// The recorder writes to the text. Recorder: to Idle, or first to Trapping. Agent, if the
    /// recorder is gone: to Idle.
    Writing = 4,
    /// The plan lists breakpoints to be handled. Agent: to Mapped; after waiting in vain, to Idle.
    Trapping = 5,
}

/// Whether the recorder can make the processors that run the process serialise
/// ([`crate::ProcessEntry::sync`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Sync {
    /// Not yet known.
    Pending = 0,
    /// The recorder can serialise the processors that run the process.
    Works = 1,
    /// The kernel refused.
    Refused = 2,
}

/// Reasons why the agent could not do everything ([`crate::ProcessEntry::trouble`]), a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Trouble {
    /// A shadow stack could not be mapped: calls on its stack are counted as lost.
    NoShadowStack = 2,
    /// The recorder did not answer in time.
    NoAnswer = 4,
}

const _: () = assert!(size_of::<PlanHeader>() == 8);
const _: () = assert!(size_of::<Map>() == 32);

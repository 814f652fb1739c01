//! What the recorder asks the agent to map. It writes to the program's text itself.
//!
//! A plan lies in the plan area: [`PlanHeader`], then `maps` times [`Map`].

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Start of a plan.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PlanHeader {
    /// Number of [`Map`]s.
    pub maps: AtomicU32,
    /// 1: no seccomp filter forbids mremap. Where the agent cannot open the code file, as its process has changed its user or its
    /// root, it duplicates the mapping of the veneers that it made when it joined.
    pub may_duplicate: AtomicU32,
}

/// Map a piece of the code file (veneers) at an address; existing mappings are never replaced. Or a breakpoint that stays, and (as its offset) what it leads to.
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

/// Where a process stands with a question about its modules ([`crate::ProcessEntry::phase`]); only the side named moves it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// No question. Agent: to Asked.
    Idle = 0,
    /// "My modules have changed." (Recorder: to Planned, or to Idle, if it leaves. Agent, if it waits in vain: to Idle.)
    Asked = 1,
    /// The plan says what to map. Agent: to Mapped.
    Planned = 2,
    /// It is mapped, or says why not. Recorder: to Writing. Agent, if it waits in vain: to Idle.
    Mapped = 3,
    /// The recorder writes to the text. Recorder: to Idle, or first to Trapping. Agent, if the recorder is gone: to Idle.
    Writing = 4,
    /// The plan says which breakpoints are to be handled. Agent: to Mapped. Agent, if it waits in vain: to Idle.
    Trapping = 5,
}

/// Can the recorder make the processors that run the process serialise ([`crate::ProcessEntry::sync`])?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Sync {
    /// Not yet known.
    Pending = 0,
    /// Yes.
    Works = 1,
    /// The kernel refused.
    Refused = 2,
}

/// Why the agent could not do all ([`crate::ProcessEntry::trouble`]); bits.
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

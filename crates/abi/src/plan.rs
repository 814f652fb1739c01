//! What the recorder asks the agent to do to the program's text: all old bytes are verified before any is written.
//!
//! A plan lies in the plan area: [`PlanHeader`], then `maps` times [`Map`], then `writes` times [`Write`].

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Start of a plan.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PlanHeader {
    /// Number of [`Map`]s.
    pub maps: AtomicU32,
    /// Number of [`Write`]s, ascending by address.
    pub writes: AtomicU32,
}

/// Map a piece of the code file (hops) at an address; existing mappings are never replaced.
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

/// Replace bytes of text.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Write {
    /// First byte.
    pub address: AtomicU64,
    /// The bytes that must be there (the first `length`).
    pub old: AtomicU64,
    /// The bytes to write.
    pub new: AtomicU64,
    /// 1 to 8.
    pub length: AtomicU32,
    /// A [`Status`].
    pub status: AtomicU32,
    /// With [`Status::Surprise`]: the bytes found.
    pub actual: AtomicU64,
}

/// What became of a [`Write`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Status {
    /// Not yet carried out.
    Pending = 0,
    /// Written.
    Written = 1,
    /// Other bytes were there; nothing was written.
    Surprise = 2,
    /// The write failed.
    Failed = 3,
}

/// Why the agent could not do all ([`crate::ProcessEntry::trouble`]); bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Trouble {
    /// The loader's debug hook could not be used: libraries loaded later are not traced.
    NoLoaderHook = 1,
    /// Some mirror memory could not be mapped: calls on those stacks are counted as lost.
    NoMirror = 2,
    /// The recorder did not answer in time.
    NoAnswer = 4,
}

const _: () = assert!(size_of::<PlanHeader>() == 8);
const _: () = assert!(size_of::<Map>() == 32);
const _: () = assert!(size_of::<Write>() == 40);

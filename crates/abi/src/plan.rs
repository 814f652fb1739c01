//! What the recorder asks the agent to do to the program's text: all old bytes are verified before any is written.
//!
//! A plan lies in the plan area: [`PlanHeader`], then `maps` times [`Map`], then `writes` times [`Write`].

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

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
    /// The bytes that must be there (the first `length`; zeros behind). Where `new` is there already, nothing is written.
    pub old: [AtomicU64; 2],
    /// The bytes to write.
    pub new: [AtomicU64; 2],
    /// 1 to [`BYTES_MAX`].
    pub length: AtomicU32,
    /// A [`Status`].
    pub status: AtomicU32,
    /// What the dynamic linker added to the addresses of the module: it must be one that was loaded just now.
    pub bias: AtomicU64,
    /// With [`Status::Surprise`]: the bytes found.
    pub actual: [AtomicU64; 2],
}

/// The longest write: the five bytes in front of a function, an `endbr64`, and two bytes at its entry are 11.
pub const BYTES_MAX: usize = 16;

/// The bytes of a field of [`Write`].
pub fn load(words: &[AtomicU64; 2]) -> [u8; BYTES_MAX] {
    let [low, high] = words;
    (u128::from(high.load(Relaxed)) << 64 | u128::from(low.load(Relaxed))).to_le_bytes()
}

/// Sets a field of [`Write`] to up to [`BYTES_MAX`] bytes, zeros behind.
pub fn store(words: &[AtomicU64; 2], bytes: &[u8]) {
    let value = bytes.iter().take(BYTES_MAX).rev().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
    words[0].store(value as u64, Relaxed);
    words[1].store((value >> 64) as u64, Relaxed);
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
    /// Its module was there before, or is none of the dynamic linker's: code that may be running is not written.
    NotNew = 4,
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
const _: () = assert!(size_of::<Write>() == 72);

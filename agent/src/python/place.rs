//! Places in an interpreter's memory: all that the agent reads and writes of its structures.
//!
//! Uses `unsafe` because a structure is known by its address only, and its layout by the offsets of
//! the interpreter's version.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The address of a live structure of the interpreter, as of an object, a frame or a thread state,
/// or of a field of one.
///
/// The methods are safe by this invariant: a place is that of the structure that the caller takes
/// it for, or of one to which such a structure leads, and callers pass the offsets of its fields in
/// the interpreter's version. So an aligned field of the size that a method names lies at the
/// offset, and a field that is followed has the address of a further structure, or 0. The structure
/// lives while the thread holds the interpreter's lock and runs the hook or callback, so a place is
/// never kept longer: [`Place::address`] is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    /// Returns the place with an address.
    ///
    /// # Safety
    ///
    /// The interpreter has passed the address to a hook or callback as that of a live structure, or
    /// returned it as such from a function; or it is that of a variable of the interpreter; or it
    /// was read from a live structure. The thread holds the interpreter's lock, and the structure
    /// lives while the place is used.
    pub unsafe fn new(address: u64) -> Place {
        Place(address)
    }

    /// Returns the address: for comparisons, for functions of the interpreter, and to be kept.
    pub fn address(self) -> u64 {
        self.0
    }

    /// Returns the place behind this one by an offset, in the same structure.
    pub fn at(self, offset: u64) -> Place {
        Place(self.0.wrapping_add(offset))
    }

    /// Returns the structure to which a pointer leads; `None` if the pointer is null.
    pub fn follow(self, offset: u64) -> Option<Place> {
        let address = self.word(offset);
        (address != 0).then_some(Place(address))
    }

    /// Returns the structure to which a pointer leads that is never null.
    pub fn target(self, offset: u64) -> Place {
        Place(self.word(offset))
    }

    /// Reads a field of 8 bytes.
    pub fn word(self, offset: u64) -> u64 {
        // SAFETY: by the invariant, an aligned field of 8 bytes lies there, and lives.
        unsafe { &*(self.at(offset).0 as *const AtomicU64) }.load(Relaxed)
    }

    /// Reads a field of 4 bytes.
    pub fn half(self, offset: u64) -> u32 {
        // SAFETY: as for `word`, with 4 bytes.
        unsafe { &*(self.at(offset).0 as *const AtomicU32) }.load(Relaxed)
    }

    /// Reads a field of 2 bytes.
    pub fn quarter(self, offset: u64) -> u16 {
        // SAFETY: as for `word`, with 2 bytes.
        unsafe { &*(self.at(offset).0 as *const AtomicU16) }.load(Relaxed)
    }

    /// Reads a byte.
    pub fn byte(self, offset: u64) -> u8 {
        // SAFETY: as for `word`, with one byte.
        unsafe { &*(self.at(offset).0 as *const AtomicU8) }.load(Relaxed)
    }

    /// Writes a field of 8 bytes.
    pub fn store_word(self, offset: u64, value: u64) {
        // SAFETY: as for `word`. Only a thread that holds the interpreter's lock writes there.
        unsafe { &*(self.at(offset).0 as *const AtomicU64) }.store(value, Relaxed);
    }

    /// Writes a byte.
    #[cfg(not(feature = "placed"))]
    pub fn store_byte(self, offset: u64, value: u8) {
        // SAFETY: as for `store_word`, with one byte.
        unsafe { &*(self.at(offset).0 as *const AtomicU8) }.store(value, Relaxed);
    }
}

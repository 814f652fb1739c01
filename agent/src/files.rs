//! The session's files, which lie beside the agent: opens them, and remembers where they are
//! mapped.

use crate::sys;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// Opens a file in the directory of the agent, for reading or for both; `name` ends in a NUL byte.
/// The code file is opened for reading: its mapping then cannot be made writable.
pub fn open_beside(own: &[u8], name: &[u8], access: usize) -> Option<sys::Fd> {
    let directory = own.iter().rposition(|&byte| byte == b'/')? + 1;
    let mut path = [0u8; 512];
    path.get_mut(..directory)?.copy_from_slice(own.get(..directory)?);
    path.get_mut(directory..directory + name.len())?.copy_from_slice(name);
    sys::open(path.get(..directory + name.len())?, access).ok()
}

/// Address and length of each mapping of the session's files, for unmapping.
pub static MAPPINGS: [[AtomicUsize; 2]; 3] = [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; 3];
/// Index of the mapping of the code file's veneers, which is duplicated near modules.
pub const VENEERS: usize = 2;

/// Remembers a mapping.
pub fn remember(index: usize, address: usize, length: usize) {
    if let Some([at, bytes]) = MAPPINGS.get(index) {
        at.store(address, Relaxed);
        bytes.store(length, Relaxed);
    }
}

/// Flags of reserved address space.
pub const RESERVED: usize = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;

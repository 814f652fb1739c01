//! The session's files, which lie beside the agent: opening them, and where they are mapped.

use crate::sys;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// Opens a file in the directory of the agent; `name` ends in a NUL byte.
pub fn open_beside(own: &[u8], name: &[u8]) -> Option<sys::Fd> {
    let directory = own.iter().rposition(|&byte| byte == b'/')? + 1;
    let mut path = [0u8; 512];
    path.get_mut(..directory)?.copy_from_slice(own.get(..directory)?);
    path.get_mut(directory..directory + name.len())?.copy_from_slice(name);
    sys::open(path.get(..directory + name.len())?, sys::O_RDWR).ok()
}

/// Where the session's files are mapped, to unmap them: address, length.
pub static MAPPINGS: [[AtomicUsize; 2]; 3] = [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; 3];
/// Which of them shows the veneers of the code file: a mapping to duplicate where the file cannot be opened.
pub const VENEERS: usize = 2;

/// Remembers one of them.
pub fn remember(index: usize, address: usize, length: usize) {
    if let Some([at, bytes]) = MAPPINGS.get(index) {
        at.store(address, Relaxed);
        bytes.store(length, Relaxed);
    }
}

/// Flags of address space that is reserved.
pub const RESERVED: usize = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;

//! The program's own text: the only part of this crate that changes code.
//!
//! It writes through `/proc/self/mem`, so that text stays mapped read-only at every moment; no page
//! is ever both writable and executable. The file is opened for each batch: after a fork, an open
//! one would write to the parent.
//!
//! Uses `unsafe` because membarrier has no safe wrapper; the call changes no memory.
#![allow(unsafe_code)]

use crate::error::Error;
use calltap_patch::{Avma, Text};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, and its registration.
const SYNC_CORE: i32 = 1 << 5;
const REGISTER_SYNC_CORE: i32 = 1 << 6;

/// The memory of this process.
pub(crate) struct LocalText(File);

fn membarrier(command: i32) -> io::Result<()> {
    // SAFETY: a memory barrier; no pointers.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl LocalText {
    pub(crate) fn open() -> Result<LocalText, Error> {
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").map_err(Error::Text)?;
        membarrier(REGISTER_SYNC_CORE).map_err(Error::Membarrier)?;
        Ok(LocalText(memory))
    }
}

impl Text for LocalText {
    /// An error kind, as errors of the system are not Clone.
    type Error = io::ErrorKind;

    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), io::ErrorKind> {
        self.0.read_exact_at(into, at.0).map_err(|error| error.kind())
    }

    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), io::ErrorKind> {
        self.0.write_all_at(bytes, at.0).map_err(|error| error.kind())
    }

    fn sync(&mut self) -> Result<(), io::ErrorKind> {
        membarrier(SYNC_CORE).map_err(|error| error.kind())
    }
}

/// Whether this is the only thread, which remains so until it starts another.
pub(crate) fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

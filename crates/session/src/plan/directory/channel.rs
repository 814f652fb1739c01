//! Requests to the controller of a session, through files of its directory.

use super::place::OpenDirectory;
use calltap_abi::Control;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// An exclusive channel to the controller of a session.
#[derive(Debug)]
pub struct RequestChannel {
    pub(super) place: OpenDirectory,
    pub(super) lock: File,
    /// Locked by one requester at a time.
    pub(super) turn: File,
}

impl RequestChannel {
    /// Whether the session has a controller.
    pub fn has_controller(&self) -> bool {
        match flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _ = flock(&self.lock, FlockOperation::Unlock);
                false
            }
            Err(_) => true,
        }
    }

    /// Returns the heartbeat of the controller's recorder; 0 if it cannot be read.
    pub fn heartbeat(&self) -> u64 {
        let mut word = [0; 8];
        let control = self.place.file("control");
        let read =
            control.and_then(|file| file.read_exact_at(&mut word, offset_of!(Control, heartbeat) as u64));
        read.map_or(0, |()| u64::from_le_bytes(word))
    }

    /// Writes a small file.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.place.write(name, text.as_bytes())
    }

    /// Reads a small file.
    pub fn read(&self, name: &str) -> io::Result<String> {
        self.place.read(name)
    }

    /// Removes a small file.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.place.via.join(name));
    }
}

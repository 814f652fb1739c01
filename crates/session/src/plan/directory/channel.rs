//! Requests to the controller of a session, through files of its directory.

use super::Directory;
use super::place::OpenDirectory;
use crate::error::Error;
use calltap_abi::Control;
use calltap_process::Reason;
use calltap_process::target::Target;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// An exclusive channel to the controller of a session.
#[derive(Debug)]
pub(crate) struct RequestChannel {
    place: OpenDirectory,
    lock: File,
    /// Locked by one requester at a time.
    turn: File,
}

impl RequestChannel {
    /// Prepares a request to the controller of a process's session. None if there is no controller.
    /// Waits for another calltap that has a request.
    pub(crate) fn open(target: &Target, limit: Duration) -> Result<Option<RequestChannel>, Error> {
        let Some(place) = Directory::place_of(target) else { return Ok(None) };
        let Ok(lock) = place.file("lock") else { return Ok(None) };
        let turn = place.create("turn").or_else(|_| place.file("turn"));
        let turn = turn.map_err(|source| place.error("turn", source))?;
        let channel = RequestChannel { place, lock, turn };
        let start = Instant::now();
        while channel.has_controller() {
            if flock(&channel.turn, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Some(channel));
            }
            if start.elapsed() > limit {
                return Err(target.refuse(Reason::OtherSilent).into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(None)
    }

    /// Whether the session has a controller.
    pub(crate) fn has_controller(&self) -> bool {
        match flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _ = flock(&self.lock, FlockOperation::Unlock);
                false
            }
            Err(_) => true,
        }
    }

    /// Returns the heartbeat of the controller's recorder; 0 if it cannot be read.
    pub(crate) fn heartbeat(&self) -> u64 {
        let mut word = [0; 8];
        let control = self.place.file("control");
        let read =
            control.and_then(|file| file.read_exact_at(&mut word, offset_of!(Control, heartbeat) as u64));
        read.map_or(0, |()| u64::from_le_bytes(word))
    }

    /// Writes a small file.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.place.write(name, text.as_bytes())
    }

    /// Reads a small file.
    pub(crate) fn read(&self, name: &str) -> io::Result<String> {
        self.place.read(name)
    }

    /// Removes a small file.
    pub(crate) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.place.via.join(name));
    }
}

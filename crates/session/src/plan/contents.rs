//! The contents of a file to search, read only if needed, and a runner of interruptible searches.

use calltap_sites::{Error, build_id_of, build_id_of_file, load};
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, SystemTime};
use std::{panic, thread};

/// Two changes within this time may look like one, as some file systems have coarse times.
const COARSE: Duration = Duration::from_secs(2);
/// Interval of checks whether a search is interrupted.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Version of a file, known without reading the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Version {
    file: [u64; 3],
    changed: (i64, i64),
}

impl Version {
    /// Returns the version of a file.
    pub(crate) fn of(meta: &Metadata) -> Version {
        Version { file: [meta.dev(), meta.ino(), meta.len()], changed: (meta.ctime(), meta.ctime_nsec()) }
    }

    /// Whether the last change is so long ago that another one would show.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.changed.0.saturating_add(COARSE.as_secs() as i64) < now.as_secs() as i64
    }
}

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The search was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is not one that can be searched.
    #[error(transparent)]
    Sites(#[from] Error),
}

/// A file whose bytes are read when they are first used.
pub(crate) struct Contents<'f> {
    file: Option<&'f File>,
    /// Version of the file. None if it is unknown, or differed when the bytes were read.
    pub version: Option<Version>,
    bytes: OnceCell<Arc<Vec<u8>>>,
}

impl<'f> Contents<'f> {
    /// Wraps an open file.
    pub(crate) fn of(file: &'f File) -> Contents<'f> {
        let version = file.metadata().ok().map(|meta| Version::of(&meta));
        Contents { file: Some(file), version, bytes: OnceCell::new() }
    }

    /// Wraps the bytes of a file that was read as by [`load`].
    pub(crate) fn read(bytes: impl Into<Arc<Vec<u8>>>, version: Option<Version>) -> Contents<'f> {
        Contents { file: None, version, bytes: OnceCell::from(bytes.into()) }
    }

    /// Whether the bytes were read.
    #[cfg(test)]
    pub(crate) fn is_read(&self) -> bool {
        self.bytes.get().is_some()
    }

    /// Returns the bytes of the file, read by [`load`].
    pub(crate) fn bytes(&self) -> io::Result<Arc<Vec<u8>>> {
        if let (None, Some(file)) = (self.bytes.get(), self.file) {
            let _ = self.bytes.set(Arc::new(load(file)?));
        }
        Ok(self.bytes.get().cloned().unwrap_or_default())
    }

    /// Returns length and checksum of the bytes.
    pub(crate) fn sum(&self) -> io::Result<(u64, u32)> {
        let bytes = self.bytes()?;
        Ok((bytes.len() as u64, crc32fast::hash(&bytes)))
    }

    /// Returns the build-id.
    pub(crate) fn build_id(&self) -> Option<String> {
        match (self.bytes.get(), self.file) {
            (Some(bytes), _) => build_id_of(bytes),
            (None, Some(file)) => build_id_of_file(file),
            (None, None) => None,
        }
    }
}

/// Returns the result of `work`. On interruption it returns at once, and `work` runs on in its
/// thread without effect.
pub(crate) fn run_until<T: Send + 'static>(
    interrupted: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if interrupted.load(Acquire) {
        return Err(Failure::Interrupted);
    }
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || drop(sender.send(work())));
    loop {
        match receiver.recv_timeout(LOOK_INTERVAL) {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Timeout) if interrupted.load(Acquire) => return Err(Failure::Interrupted),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let why = worker.join().err().unwrap_or_else(|| Box::new("a worker without a result"));
                panic::resume_unwind(why);
            }
        }
    }
}

//! Errors of writing or reading a trace: one line each, always with the file's name.

use crate::meta::ThreadId;
use std::path::{Path, PathBuf};

/// An error of a trace file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The trace.
        path: PathBuf,
        /// `create`, `open`, `read`, `write`.
        action: &'static str,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{}: not a calltap trace", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("{}: not a calltap trace: the file is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The path is a directory, a pipe, or a device.
    #[error("{}: not a calltap trace: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The trace was written by a calltap that is newer than this one.
    #[error("{}: trace format {found} is newer than this calltap reads ({known})", path.display())]
    Newer {
        /// The trace.
        path: PathBuf,
        /// Version of its format.
        found: u16,
        /// Newest version that this crate reads.
        known: u16,
    },
    /// A record is larger than any reader accepts.
    #[error("{}: a {size} byte record is larger than a chunk may be", path.display())]
    TooLarge {
        /// The trace.
        path: PathBuf,
        /// Size of the record in bytes.
        size: usize,
    },
    /// A record cannot be written as JSON, which cannot happen with the types of this crate.
    #[error("{}: cannot write a record: {source}", path.display())]
    Json {
        /// The trace.
        path: PathBuf,
        /// The error of the encoder.
        source: serde_json::Error,
    },
    /// A chunk of events cannot be read: its events are missing, those of the other chunks are not.
    #[error("{}: {events} events of thread {} are missing: the chunk at byte {offset} is damaged: {what}", path.display(), thread.0)]
    BadChunk {
        /// The trace.
        path: PathBuf,
        /// Place of the chunk in the file.
        offset: u64,
        /// Thread of the events.
        thread: ThreadId,
        /// Number of the events.
        events: u32,
        /// The damage.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, source }
    }
}

//! Why a trace could not be written or read: one line each, always with the file's name.

use crate::meta::ThreadId;
use std::path::{Path, PathBuf};

/// What went wrong with a trace file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system said no.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The trace.
        path: PathBuf,
        /// `create`, `open`, `read`, `write`.
        action: &'static str,
        /// Why.
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
    /// A directory, a pipe, a device.
    #[error("{}: not a calltap trace: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Made by a calltap that is newer than this one.
    #[error("{}: trace format {found} is newer than this calltap reads ({known})", path.display())]
    Newer {
        /// The trace.
        path: PathBuf,
        /// Its version.
        found: u16,
        /// The newest this crate knows.
        known: u16,
    },
    /// A record that no reader would accept.
    #[error("{}: a {size} byte record is larger than a chunk may be", path.display())]
    TooLarge {
        /// The trace.
        path: PathBuf,
        /// The record's size.
        size: usize,
    },
    /// A record that is not JSON (cannot happen with the types of this crate).
    #[error("{}: cannot write a record: {source}", path.display())]
    Json {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A chunk of events that cannot be read: these events are missing, those of the other chunks are not.
    #[error("{}: {events} events of thread {} are missing: the chunk at byte {offset} is damaged: {what}", path.display(), thread.0)]
    BadChunk {
        /// The trace.
        path: PathBuf,
        /// Where the chunk starts.
        offset: u64,
        /// Whose events.
        thread: ThreadId,
        /// How many.
        events: u32,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, source }
    }
}

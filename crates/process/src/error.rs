//! Errors of operations on a process, each rendered as one line for the user.

use crate::reason::Reason;
use std::io;

/// Why an operation on a process failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be started.
    #[error("{program}: {reason}")]
    Program {
        /// The program, as the user named it.
        program: String,
        /// The reason, a clause.
        reason: String,
        /// Exit code as of a shell: 127 if the program was not found, 126 if it is not executable.
        exit_code: u8,
    },
    /// A running process could not be attached to, or detached from.
    #[error("process {pid}{}: {reason}", if name.is_empty() { String::new() } else { format!(" ({name})") })]
    Attach {
        /// Id of the process.
        pid: u32,
        /// Name of the process.
        name: String,
        /// Reason of the refusal.
        reason: Reason,
    },
    /// A system call or a thread of calltap failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that was attempted.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl Error {
    /// Returns the error for a thread of the recorder that panicked.
    pub fn thread() -> Error {
        Error::System { what: "recording", source: io::Error::other("a thread of the recorder failed") }
    }
}

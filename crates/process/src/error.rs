//! What is said when something cannot be done with a process: one line each, for the user.

use crate::reason::Reason;
use std::io;

/// Why something could not be done with a process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be started.
    #[error("{program}: {reason}")]
    Program {
        /// As the user named it.
        program: String,
        /// A clause.
        reason: String,
        /// 127 not found, 126 not executable: what a shell returns.
        exit_code: u8,
    },
    /// A running process that cannot be attached to, or let go.
    #[error("process {pid}{}: {reason}", if name.is_empty() { String::new() } else { format!(" ({name})") })]
    Attach {
        /// Its id.
        pid: u32,
        /// Its name.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// Anything else the system refused.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    /// A thread of calltap's has panicked.
    pub fn thread() -> Error {
        Error::System { what: "recording", source: io::Error::other("a thread of the recorder failed") }
    }
}

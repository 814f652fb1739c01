//! Why a recording could not be made: one line each, for the user.

use std::io;
use std::path::PathBuf;

/// Why a recording could not be made.
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
    /// Nothing to trace; the program was not run.
    #[error("{program}: no traceable function: {advice}")]
    NoSites {
        /// As the user named it.
        program: String,
        /// What to do.
        advice: String,
    },
    /// A filter that names nothing; the program was not run.
    #[error("no traceable function matches '{glob}'{hint}")]
    NoMatch {
        /// The pattern.
        glob: String,
        /// The nearest names, or empty.
        hint: String,
    },
    /// Nothing can be read of the calls of any function that was asked for; the program was not run.
    #[error("{name}: {why}")]
    Values {
        /// The first of them.
        name: String,
        /// A clause.
        why: String,
    },
    /// The session's files could not be made.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A running process that cannot be attached to, or let go.
    #[error("process {pid}{}: {reason}", if name.is_empty() { String::new() } else { format!(" ({name})") })]
    Attach {
        /// Its id.
        pid: u32,
        /// Its name.
        name: String,
        /// A clause.
        reason: String,
    },
    /// The agent did not report.
    #[error("{program}: the agent was not loaded: {reason}")]
    NoAgent {
        /// As the user named it.
        program: String,
        /// A clause.
        reason: String,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] calltap_trace::Error),
    /// The session's files belong to the traced process's user.
    #[error(
        "the session's shared memory was truncated by another process: nothing more is traced; attach again to go on"
    )]
    Truncated,
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
    /// A thread of ours has panicked.
    pub fn thread() -> Error {
        Error::System { what: "recording", source: io::Error::other("a thread of the recorder failed") }
    }
}

//! Errors of a recording, each rendered as one line for the user.

use std::io;
use std::path::PathBuf;

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on the process failed.
    #[error(transparent)]
    Process(#[from] calltap_process::Error),
    /// The program has nothing to trace, and was not run.
    #[error("{program}: no traceable function: {advice}")]
    NoSites {
        /// The program, as the user named it.
        program: String,
        /// Advice for the user.
        advice: String,
    },
    /// The selection is invalid or selects nothing.
    #[error(transparent)]
    Selection(#[from] calltap_selection::Error),
    /// Python functions were requested, and calltap does not know the interpreter's structures.
    #[error("--python: {interpreter}: {why}")]
    Python {
        /// File of the interpreter.
        interpreter: String,
        /// Reason.
        why: crate::python::Reason,
    },
    /// Python functions were requested in a session that cannot have them.
    #[error("--python {0}")]
    PythonUnfit(crate::python::Unfit),
    /// The choice of kept calls cannot be changed in this session.
    #[error("--graph, --callers and --depth: {program}: {why}")]
    Kept {
        /// The process.
        program: String,
        /// Reason.
        why: KeptWhole,
    },
    /// The session's files could not be created.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Path of the file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The agent did not report.
    #[error("{program}: the agent was not loaded: {reason}")]
    NoAgent {
        /// The program, as the user named it.
        program: String,
        /// Reason, a clause.
        reason: String,
    },
    /// The user interrupted the command before the process was traced.
    #[error("{program}: interrupted before calltap had attached: the process is unchanged")]
    Interrupted {
        /// The process.
        program: String,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] calltap_trace::Error),
    /// A file of the session was truncated: it belongs to the traced process's user.
    #[error(transparent)]
    Truncated(#[from] calltap_collect::shm::Truncated),
}

/// Why the choice of kept calls cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeptWhole {
    /// The rings overwrite the oldest events.
    #[error(
        "its recorder may overwrite the callers of a call (--overwrite); choose a part of the snapshot when it is read, as in 'calltap report --graph'"
    )]
    Overwritten,
    /// The recorder keeps slow calls, or the last seconds before a trigger.
    #[error(
        "its recorder keeps only the calls of --slow or --snapshot-on; choose a part of the trace when it is read"
    )]
    Ruled,
    /// The control directory decides.
    #[error("its control directory is mounted: write to set_graph_function there")]
    Mounted,
}

impl Error {
    /// Returns the error for a thread of calltap that panicked.
    pub fn thread() -> Error {
        calltap_process::Error::thread().into()
    }

    /// Returns the error for a system call that failed.
    pub(crate) fn system(what: &'static str, source: io::Error) -> Error {
        calltap_process::Error::System { what, source }.into()
    }
}

//! Why a recording could not be made: one line each, for the user.

use std::io;
use std::path::PathBuf;

/// Why a recording could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something could not be done with the process.
    #[error(transparent)]
    Process(#[from] calltap_process::Error),
    /// Nothing to trace; the program was not run.
    #[error("{program}: no traceable function: {advice}")]
    NoSites {
        /// As the user named it.
        program: String,
        /// What to do.
        advice: String,
    },
    /// The selection is none, or selects nothing.
    #[error(transparent)]
    Selection(#[from] calltap_selection::Error),
    /// Python functions were asked for, and the interpreter is none whose structures are known.
    #[error("--python: {interpreter}: {why}")]
    Python {
        /// Its file.
        interpreter: String,
        /// Why not.
        why: crate::python::Reason,
    },
    /// They were asked for in a session that cannot have them.
    #[error("--python {0}")]
    PythonUnfit(crate::python::Unfit),
    /// What is kept of calls stays as it began.
    #[error("--graph, --callers and --depth: {program}: {why}")]
    Kept {
        /// The process.
        program: String,
        /// Why.
        why: KeptWhole,
    },
    /// The session's files could not be made.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The agent did not report.
    #[error("{program}: the agent was not loaded: {reason}")]
    NoAgent {
        /// As the user named it.
        program: String,
        /// A clause.
        reason: String,
    },
    /// The user has interrupted it before anything was done to the process.
    #[error(
        "{program}: interrupted while it was being found out what can be traced: the process is as it was"
    )]
    Interrupted {
        /// The process.
        program: String,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] calltap_trace::Error),
    /// The session's files belong to the traced process's user.
    #[error(transparent)]
    Truncated(#[from] calltap_collect::shm::Truncated),
}

/// Why all calls of a session are kept, or none but those that a rule of its own names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeptWhole {
    /// Its rings overwrite the oldest events.
    #[error(
        "calls whose beginnings are overwritten lie in nothing; take a part of the snapshot when it is read, as in 'calltap report --graph'"
    )]
    Overwritten,
    /// It keeps slow calls, or the last seconds before something happens.
    #[error("its recorder keeps what --slow or --snapshot-on says; take a part of the trace when it is read")]
    Ruled,
    /// Its control directory decides.
    #[error("its control directory has set_graph_function for that")]
    Mounted,
}

impl Error {
    /// A thread of calltap's has panicked.
    pub fn thread() -> Error {
        calltap_process::Error::thread().into()
    }

    /// The system refused what was attempted.
    pub fn system(what: &'static str, source: io::Error) -> Error {
        calltap_process::Error::System { what, source }.into()
    }
}

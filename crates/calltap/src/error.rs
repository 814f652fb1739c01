//! Errors of this library.

use std::io;

/// An error of this library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call came from inside a callback, or from a signal handler that interrupted this
    /// library: it would wait for itself.
    #[error("called from inside a callback, which would have to wait for itself")]
    InCallback,
    /// All bits of the mask are in use.
    #[error("{} ops are registered already", crate::trampoline::MAX_OPS)]
    TooMany,
    /// The program's memory cannot be written.
    #[error("/proc/self/mem: {0}")]
    Text(#[source] io::Error),
    /// The kernel cannot serialize other processors after a change of code.
    #[error("membarrier(SYNC_CORE): {0}")]
    Membarrier(#[source] io::Error),
    /// This processor, or its system, cannot save vector registers.
    #[error("no XSAVE on this processor")]
    NoXsave,
    /// No function that can be traced has a name that the filter matches; see
    /// [`Ops::may_match_nothing`](crate::Ops::may_match_nothing).
    #[error("no function that can be traced matches {0}")]
    NothingMatches(String),
    /// Returns cannot be watched in this process.
    #[error("returns cannot be watched: {0}")]
    Returns(#[source] io::Error),
    /// The process was forked by a callback while another thread was changing the program.
    #[error("forked from inside a callback while the program was being changed")]
    Forked,
}

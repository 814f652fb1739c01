//! Why a selection is none, or selects nothing: a line each, for the user.

/// What is wrong with a selection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A kind of tracer that there is not.
    #[error("no tracer named '{0}' (there are function, function_graph, profile and nop)")]
    NoTracer(String),
    /// More tracers than a site can lead to.
    #[error("at most {0} tracers")]
    TooMany(usize),
    /// What is to be read of calls is not understood.
    #[error("{0}")]
    Value(String),
    /// A filter that names nothing; the program was not run.
    #[error("no traceable function matches '{glob}'{hint}")]
    NoMatch {
        /// The pattern.
        glob: String,
        /// The nearest names, or empty.
        hint: String,
    },
    /// Calls into libraries were asked for; the program was not run.
    #[error(
        "--libcalls: the program has no linker's stubs to call libraries through: it is static, or was compiled with -fno-plt, as programs in Rust are; -F 'LIBRARY:GLOB' traces a library's own functions"
    )]
    NoLibraryCalls,
    /// Python functions were asked for.
    #[error("--python: the program is no CPython interpreter, and has loaded none")]
    NoInterpreter,
    /// Nothing can be read of the calls of any function that was asked for; the program was not run.
    #[error("{name}: {why}")]
    Values {
        /// The first of them.
        name: String,
        /// The reason.
        why: calltap_values::Reason,
    },
}

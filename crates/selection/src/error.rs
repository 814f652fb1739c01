//! Errors for selections that are invalid, or select no function: a line each, for the user.

/// The reason why a selection is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// An unknown kind of tracer.
    #[error("no tracer named '{0}' (there are function, function_graph, profile and nop)")]
    NoTracer(String),
    /// More tracers than a site can have.
    #[error("at most {0} tracers")]
    TooMany(usize),
    /// A value to read, or a condition, that cannot be parsed.
    #[error("{0}")]
    Value(#[from] calltap_values::Syntax),
    /// An argument of a Python function that is no name.
    #[error(
        "-A '{rule}': '{name}' is no parameter's name: arguments of Python functions are read by their names alone, as in '-A {function}@name,n'"
    )]
    PythonArgument {
        /// The rule.
        rule: String,
        /// The argument.
        name: String,
        /// The function of the rule.
        function: String,
    },
    /// A pattern of Python functions with a character that has another meaning elsewhere.
    #[error(
        "-A '{rule}': only * and ? stand for other characters in names of Python functions, not {character:?}"
    )]
    PythonPattern {
        /// The rule.
        rule: String,
        /// The character.
        character: char,
    },
    /// A filter that matches no function; the program was not run.
    #[error("no traceable function matches '{glob}'{hint}")]
    NoMatch {
        /// The pattern.
        glob: String,
        /// The nearest names, or empty.
        hint: String,
    },
    /// The durations of a function's calls are needed, and only their entries can be recorded; the
    /// program was not run.
    #[error(
        "the calls of {name} have no known durations, as their ends cannot be recorded: {why}; name one of its callers"
    )]
    NoEnds {
        /// Name of the function.
        name: String,
        /// The reason.
        why: calltap_sites::Reason,
    },
    /// `!` and the notrace sets take away all functions that the filters have; the program was not
    /// run.
    #[error(
        "-N, or ! in -F, takes away all functions that are selected, and nothing would be traced: leave some, or name others with -F"
    )]
    AllExcluded,
    /// Calls into libraries were requested, but the program makes none; the program was not run.
    #[error(
        "--libcalls: the program calls no functions of libraries, as programs that are linked statically; without --libcalls its own functions are traced"
    )]
    NoLibraryCalls,
    /// Python functions were requested, but there is no interpreter.
    #[error(
        "--python: the program is no CPython interpreter, and has loaded none; if it starts one, as a script does: --follow"
    )]
    NoInterpreter,
    /// No value can be read in any of the requested functions; the program was not run.
    #[error("{name}: {why}")]
    Values {
        /// Name of the first of these functions.
        name: String,
        /// The reason.
        why: calltap_values::Reason,
    },
}

//! Errors of making a view.

/// A failure to read the trace or to write the view.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace could not be read further.
    #[error(transparent)]
    Trace(#[from] calltap_trace::Error),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Write(#[from] std::io::Error),
    /// No recorded function matches a requested name.
    #[error("no recorded function matches '{wanted}'{}", suggestion(.near))]
    NoSuchFunction {
        /// The requested name.
        wanted: String,
        /// Recorded functions with similar names.
        near: Vec<String>,
    },
    /// A condition that cannot be tried.
    #[error("'{condition}' cannot be tried: {why}")]
    Condition {
        /// The user's text.
        condition: String,
        /// The reason.
        why: String,
    },
}

fn suggestion(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; similar: {}", near.join(", ")) }
}

/// A word of the user that is none of a list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{name}' is not a {what}; {what}s are {}", all.join(", "))]
pub struct NotOneOf {
    /// A noun for the words of the list.
    what: &'static str,
    /// The word.
    name: String,
    /// The list.
    all: Vec<&'static str>,
}

impl NotOneOf {
    pub(crate) fn new(what: &'static str, name: &str, all: &[&'static str]) -> NotOneOf {
        NotOneOf { what, name: name.to_owned(), all: all.to_vec() }
    }
}

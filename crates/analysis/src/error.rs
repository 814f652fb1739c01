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

//! What can go wrong while a view is made.

/// Reading the trace or writing the view failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace could not be read on.
    #[error(transparent)]
    Trace(#[from] calltap_trace::Error),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Write(#[from] std::io::Error),
    /// A function was asked for that no recorded function matches.
    #[error("no recorded function matches '{wanted}'{}", suggestion(.near))]
    NoSuchFunction {
        /// What was asked for.
        wanted: String,
        /// Recorded functions with similar names.
        near: Vec<String>,
    },
    /// A condition that cannot be tried.
    #[error("'{condition}' cannot be tried: {why}")]
    Condition {
        /// As it was given.
        condition: String,
        /// Why not.
        why: String,
    },
}

fn suggestion(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; similar: {}", near.join(", ")) }
}

//! The selection that the command line names.

use crate::arguments::Arguments;
use anyhow::Result;
use calltap_selection::{Selection, tracer};

/// The words of the command line.
pub fn words(given: &Arguments) -> Result<Selection> {
    let mut tracers = Vec::new();
    for text in given.texts("tracer") {
        // An empty word clears what was set: what is left is the default.
        tracers.push(tracer(if text.is_empty() { "function_graph" } else { &text }, &tracers)?);
    }
    let (filter, notrace) = (given.names("filter"), given.names("notrace"));
    let [arguments, results, conditions] = ["arguments", "results", "if"].map(|flag| given.texts(flag));
    let (futures, int3) = (given.is_set("async"), given.is_set("allow-int3"));
    let words =
        Selection { tracers, filter, notrace, arguments, results, conditions, ..Selection::default() };
    Ok(Selection { futures, int3, ..words })
}

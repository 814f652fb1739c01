//! Telling the user what is on when functions are switched on at a session's start.

use crate::options::Options;
use crate::plan::planner::{LargestLibrary, Planner};

/// Tells what is on, once. Called whenever a process may have loaded more.
pub(crate) fn tell(options: &Options, planner: &mut Planner<'_>) {
    if let Some(library) = where_code_is(options, planner) {
        planner.code_is_in = Some(library);
    }
    if !planner.is_new() {
        return;
    }
    let selector = &options.selection.selector;
    (options.started)(&planner.started(&selector.own_words(), &selector.names()));
}

/// Where the code is of a program that has next to none of its own. A filter that names functions says that the user knows what there is.
fn where_code_is(options: &Options, planner: &Planner<'_>) -> Option<LargestLibrary> {
    let words = &options.selection.words;
    let is_named = words.tracers.iter().any(|tracer| !tracer.filter.is_empty()) || !words.filter.is_empty();
    if is_named || options.follow || words.futures { None } else { planner.largest_library() }
}

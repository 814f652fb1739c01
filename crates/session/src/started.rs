//! Reports to the user which functions are enabled at the start of a session.

use crate::options::Options;
use crate::plan::planner::{LargestLibrary, Planner};

/// Reports the enabled functions, once. Called whenever a process may have loaded more modules.
pub(crate) fn tell(options: &Options, planner: &mut Planner<'_>) {
    if let Some(library) = where_code_is(options, planner) {
        planner.start.code_is_in = Some(library);
    }
    if !planner.is_new() {
        return;
    }
    let selector = &options.selection.selector;
    let mut started = planner.started(&selector.own_words(), &selector.names());
    let words = &options.selection.words;
    let excludes = !words.notrace.is_empty() || words.tracers.iter().any(|tracer| !tracer.notrace.is_empty());
    started.all_excluded = started.modules.is_empty() && excludes;
    (options.started)(&started);
}

/// Returns the largest library of a program that contains almost no code. None if a filter names
/// functions: the user then knows what there is.
fn where_code_is(options: &Options, planner: &Planner<'_>) -> Option<LargestLibrary> {
    let words = &options.selection.words;
    let is_named = words.tracers.iter().any(|tracer| !tracer.filter.is_empty()) || !words.filter.is_empty();
    if is_named || options.follow || words.futures { None } else { planner.largest_library() }
}

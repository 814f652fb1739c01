//! Reports to the user which functions are enabled at the start of a session.

use crate::options::PlanOptions;
use crate::plan::planner::{Planner, Started};
use calltap_selection::{ParsedSelection, Selection};

/// Reports the enabled functions, once. Called whenever a process may have loaded more modules.
pub(crate) fn tell(plan: &PlanOptions, report: fn(&Started), planner: &mut Planner<'_>) {
    let ParsedSelection { selector, words, .. } = &plan.selection;
    let is_open = !names_functions(words);
    if let Some(library) = planner.largest_library().filter(|_| is_open && !plan.follow) {
        planner.start.code_is_in = Some(library);
    }
    if !planner.is_new() {
        return;
    }
    let mut started = planner.started(&selector.own_words(), &selector.names());
    let excludes = !words.notrace.is_empty() || words.tracers.iter().any(|tracer| !tracer.notrace.is_empty());
    started.all_excluded = started.modules.is_empty() && excludes;
    started.interpreter = if is_open && !words.traces_python() { planner.interpreter() } else { None };
    started.python = words.python_globs().to_vec();
    report(&started);
}

/// Whether a filter names functions: the user then knows what there is.
fn names_functions(words: &Selection) -> bool {
    let mut tracers = words.tracers.iter();
    tracers.any(|tracer| !tracer.filter.is_empty()) || !words.filter.is_empty() || words.futures
}

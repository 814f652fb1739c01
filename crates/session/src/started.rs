//! What the user is told when functions are switched on at a session's start.

use crate::options::Options;
use crate::plan::planner::Planner;

/// What is on, and where else the user's words name functions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Started {
    /// Functions that are on, by file name of their module; most first.
    pub modules: Vec<(String, usize)>,
    /// Files of which nothing was chosen.
    pub elsewhere: Vec<Elsewhere>,
}

/// A word names functions of a file that are not on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// The word of a filter.
    pub word: String,
    /// File name of the module.
    pub module: String,
    /// How many functions of it the word names.
    pub count: usize,
}

/// Where the code of a program is that has next to none of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargestLibrary {
    /// File name of the library,
    pub module: String,
    /// and without `.so` and version.
    pub stem: String,
    /// File name of the program.
    pub program: String,
}

/// Tells what is on, once. Called whenever a process may have loaded more.
pub(crate) fn tell(options: &Options, planner: &mut Planner<'_>) {
    if let Some(library) = where_code_is(options, planner) {
        planner.code_is_in = Some(library);
    }
    if !planner.is_new() {
        return;
    }
    let words = options.selection.selector.own_words();
    (options.started)(&planner.started(&words));
}

/// Where the code is of a program that has next to none of its own. Who names functions knows what there is.
fn where_code_is(options: &Options, planner: &Planner<'_>) -> Option<LargestLibrary> {
    let words = &options.selection.words;
    let is_named = words.tracers.iter().any(|tracer| !tracer.filter.is_empty()) || !words.filter.is_empty();
    if is_named || options.follow || words.futures { None } else { planner.largest_library() }
}

//! What the user has selected, in words: tracers, filters, and values to read.

use crate::error::Error;
use crate::ftraced::Ftraced;
use calltap_names::{GlobSet, Word};
use calltap_trace::TracerKind;
use calltap_values::Rules;
use serde::{Deserialize, Serialize};

/// The names of the kinds, as users write them.
pub(crate) const KINDS: [(&str, Option<TracerKind>); 4] = [
    ("function", Some(TracerKind::Function)),
    ("function_graph", Some(TracerKind::FunctionGraph)),
    ("profile", Some(TracerKind::Profile)),
    ("nop", None),
];

/// CPython's function that runs Python functions.
pub const EVALUATOR: &str = "_PyEval_EvalFrameDefault";

/// CPython's function by which a thread gives the interpreter's lock away, as it does before it waits. A thread that calls no Python function from C comes by there.
pub const SAVE_THREAD: &str = "PyEval_SaveThread";

/// The functions of the interpreter by which Python functions are traced.
const ADDED: [&str; 2] = [EVALUATOR, SAVE_THREAD];

/// Is it one of them?
fn is_added(word: &str) -> bool {
    ADDED.contains(&word)
}

/// Functions of the Go runtime that tell why and how long goroutines wait: the one that parks a goroutine, and those that say what for.
const GO_WAITS: [&str; 13] = [
    "runtime.gopark",
    "runtime.chanrecv",
    "runtime.chansend",
    "runtime.selectgo",
    "runtime.block",
    "runtime.netpollblock",
    "time.Sleep",
    "runtime.semacquire1",
    "sync.runtime_Semacquire*",
    "internal/sync.runtime_SemacquireMutex",
    "internal/poll.runtime_Semacquire",
    "sync.runtime_notifyListWait",
    "runtime.gcParkAssist",
];

/// Is it one of these?
pub(crate) fn is_go_wait(word: &str) -> bool {
    GO_WAITS.contains(&word)
}

/// Has waits of goroutines traced besides what filters name, in programs that have them.
pub fn add_go_waits(words: &mut Selection) {
    if !words.filter.is_empty() {
        words.filter.extend(GO_WAITS.map(str::to_owned));
    }
}

/// The pattern that selects no Python function. Of functions in C, only those that a filter names are traced then, as with other patterns.
const NO_PYTHON: &str = "!*";

/// The user's selection: tracers, filters, and values to read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Selection {
    /// The tracers; a tracer's number is its place. None: one of the kind function_graph.
    pub tracers: Vec<TracerSelection>,
    /// Globs, for every tracer.
    pub filter: Vec<String>,
    /// Globs, for every tracer.
    pub notrace: Vec<String>,
    /// Name of the tracer that the files of the control directory mean, if one was chosen.
    pub default: Option<String>,
    /// Arguments that are read, as `FUNCTION@ITEM,...`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Results that are read.
    #[serde(default)]
    pub results: Vec<String>,
    /// Calls are recorded only if these hold.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// What polls futures is traced, and which future it is.
    #[serde(default)]
    pub futures: bool,
    /// The program's calls into libraries are traced, at the linker's stubs.
    #[serde(default)]
    pub libcalls: bool,
    /// Functions that have no room for a jump are traced by breakpoints that stay. Once allowed, they are for as long as the session lasts.
    #[serde(default)]
    pub int3: bool,
    /// Python functions that are traced: globs, those with a `!` in front take away again. None: Python functions are not traced.
    #[serde(default)]
    pub python: Vec<String>,
    /// No events are wanted for the time being (`tracing_on` is 0).
    pub paused: bool,
    /// How the daemon does that converts calls which were recorded when they were first made. None: sites are known at load, and there is none.
    pub ftraced: Option<Ftraced>,
}

/// A tracer of a selection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracerSelection {
    /// Unique; the first that records events is `trace`, as in the control directory.
    pub name: String,
    /// None: it is not registered, and its filters wait.
    pub kind: Option<TracerKind>,
    /// Globs, those with a `!` in front take away again: the last that matches counts. None: every function.
    pub filter: Vec<String>,
    /// The same.
    pub notrace: Vec<String>,
}

impl Selection {
    /// The functions that filters name without wildcards.
    pub fn named(&self) -> GlobSet {
        let of_tracers = self.tracers.iter().flat_map(|tracer| &tracer.filter);
        GlobSet::new(self.filter.iter().chain(of_tracers)).only(Word::is_exact)
    }

    /// What is given replaces what was set before, kind by kind; an empty word clears it. True if anything was given.
    pub fn change(&mut self, mut given: Selection) -> bool {
        if !given.python.is_empty() {
            given.filter.retain(|word| !is_added(word));
        }
        let mut any = !given.tracers.is_empty() || given.int3;
        self.int3 |= given.int3;
        if !given.tracers.is_empty() {
            self.tracers = given.tracers;
        }
        for (kept, given) in [
            (&mut self.filter, given.filter),
            (&mut self.notrace, given.notrace),
            (&mut self.arguments, given.arguments),
            (&mut self.results, given.results),
            (&mut self.conditions, given.conditions),
        ] {
            if !given.is_empty() {
                *kept = given.into_iter().filter(|word| !word.is_empty()).collect();
                any = true;
            }
        }
        if !given.python.is_empty() {
            self.python = given.python.into_iter().filter(|glob| !glob.is_empty()).collect();
            if self.python.is_empty() {
                self.python.push(NO_PYTHON.to_owned());
            }
            any = true;
        }
        if !self.python.is_empty() {
            self.filter.retain(|word| !is_added(word));
            self.filter.extend(ADDED.map(str::to_owned));
        }
        any
    }

    /// Are Python functions traced?
    pub fn traces_python(&self) -> bool {
        !self.python.is_empty() && self.python != [NO_PYTHON]
    }

    /// The filter, as the user has given it.
    pub fn given_filter(&self) -> impl Iterator<Item = &String> {
        self.filter.iter().filter(|word| self.is_given(word))
    }

    /// Has the user given this word of a filter?
    pub fn is_given(&self, word: &str) -> bool {
        self.python.is_empty() || !is_added(word)
    }
}

/// A tracer of `NAME[:GLOB,...]`; its name is none that those before have.
pub fn tracer(text: &str, before: &[TracerSelection]) -> Result<TracerSelection, Error> {
    let (name, globs) = text.split_once(':').unwrap_or((text, ""));
    let Some((_, kind)) = KINDS.into_iter().find(|(known, _)| *known == name) else {
        return Err(Error::NoTracer(name.to_owned()));
    };
    let base = if kind == Some(TracerKind::Profile) { "trace_profile" } else { "trace" };
    let mut names = (1..).map(|n| if n == 1 { base.to_owned() } else { format!("{base}-{n}") });
    let name = names.find(|name| before.iter().all(|other| other.name != *name)).unwrap_or_default();
    let filter = calltap_names::split_list(globs).into_iter().filter(|glob| !glob.is_empty()).collect();
    Ok(TracerSelection { name, kind, filter, notrace: Vec::new() })
}

/// Has functions traced besides those that are chosen: also those that are traced only if a filter names them.
pub fn add(words: &mut Selection, globs: &[String]) {
    if globs.is_empty() {
        return;
    }
    let name = |filter: &mut Vec<String>| {
        if filter.is_empty() {
            filter.push("*".to_owned());
        }
        filter.extend(globs.iter().cloned());
    };
    if words.filter.is_empty() && words.tracers.iter().any(|tracer| !tracer.filter.is_empty()) {
        let graphs = words.tracers.iter_mut().filter(|tracer| tracer.kind == Some(TracerKind::FunctionGraph));
        graphs.for_each(|tracer| name(&mut tracer.filter));
    } else {
        name(&mut words.filter);
    }
}

/// Has the functions traced of which something is to be read.
pub fn add_valued(words: &mut Selection) -> Result<(), Error> {
    let rules = Rules::new(&words.arguments, &words.results, &words.conditions).map_err(Error::Value)?;
    let globs: Vec<String> = rules.globs().map(|word| word.text().to_owned()).collect();
    add(words, &globs);
    Ok(())
}

/// Has Python functions traced: by the interpreter's evaluator, also where no filter names it. Functions in C are those that a filter names.
pub fn add_python(words: &mut Selection, globs: &[String]) {
    if globs.is_empty() {
        return;
    }
    words.python = globs.to_vec();
    words.filter.extend(ADDED.map(str::to_owned));
}

/// Tracers of these kinds.
pub fn tracers(kinds: &[TracerKind]) -> Vec<TracerSelection> {
    let mut all = Vec::new();
    for (name, _) in kinds.iter().filter_map(|kind| KINDS.iter().find(|(_, known)| *known == Some(*kind))) {
        all.extend(tracer(name, &all));
    }
    all
}

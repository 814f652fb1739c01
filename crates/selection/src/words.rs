//! The user's selection, in words: tracers, filters, and values to read.

use crate::error::Error;
use crate::ftraced::Ftraced;
use calltap_names::{GlobSet, Word};
use calltap_trace::TracerKind;
use calltap_values::Rules;
use serde::{Deserialize, Serialize};

/// Names of the kinds of tracers, as users write them.
pub(crate) const KINDS: [(&str, Option<TracerKind>); 4] = [
    ("function", Some(TracerKind::Function)),
    ("function_graph", Some(TracerKind::FunctionGraph)),
    ("profile", Some(TracerKind::Profile)),
    ("nop", None),
];

/// CPython's function that runs Python functions.
pub const EVALUATOR: &str = "_PyEval_EvalFrameDefault";

/// CPython's function by which a thread releases the interpreter's lock before it waits. A thread
/// that calls no Python function from C passes through it.
pub const SAVE_THREAD: &str = "PyEval_SaveThread";

/// Functions of the interpreter by which Python functions are traced.
const ADDED: [&str; 2] = [EVALUATOR, SAVE_THREAD];

/// Whether a word names one of these functions.
fn is_added(word: &str) -> bool {
    ADDED.contains(&word)
}

/// Functions of the Go runtime that show why and how long goroutines wait: the one that parks a
/// goroutine, those that give the reason, the one that ends a wait, and those between which threads
/// run goroutines.
const GO_WAITS: [&str; 18] = [
    "runtime.gopark",
    "runtime.chanrecv",
    "runtime.chansend",
    "runtime.selectgo",
    "runtime.block",
    "runtime.netpollblock",
    "time.Sleep",
    "runtime.semacquire1",
    "sync.runtime_Semacquire*",
    "sync.(*Mutex).lockSlow",
    "internal/sync.runtime_SemacquireMutex",
    "internal/poll.runtime_Semacquire",
    "sync.runtime_notifyListWait",
    "runtime.gcParkAssist",
    calltap_values::READY,
    "runtime.execute",
    "runtime.schedule",
    "runtime.coroswitch_m",
];

/// Whether a word names one of these functions.
pub(crate) fn is_go_wait(word: &str) -> bool {
    GO_WAITS.contains(&word)
}

/// Adds the waits of goroutines to a filter, for programs that have them.
pub fn add_go_waits(words: &mut Selection) {
    if !words.filter.is_empty() {
        words.filter.extend(GO_WAITS.map(str::to_owned));
    }
}

/// Pattern that selects no Python function. Only those functions in C are then traced that a filter
/// names, as with other patterns.
const NO_PYTHON: &str = "!*";

/// The user's selection: tracers, filters, and values to read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Selection {
    /// The tracers; a tracer's number is its index. If empty, there is one of the kind
    /// function_graph.
    pub tracers: Vec<TracerSelection>,
    /// Globs of functions to trace, for every tracer.
    pub filter: Vec<String>,
    /// Globs of functions not to trace, for every tracer.
    pub notrace: Vec<String>,
    /// Name of the tracer to which the files of the control directory refer, if one was chosen.
    pub default: Option<String>,
    /// Arguments that are read, as `FUNCTION@ITEM,...`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Results that are read, as `FUNCTION@ITEM,...`.
    #[serde(default)]
    pub results: Vec<String>,
    /// Conditions: only calls for which they hold are recorded.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Whether functions that poll futures are traced, with the future that they poll; in a Python
    /// program its coroutines.
    #[serde(default)]
    pub futures: bool,
    /// Whether the program's calls into libraries are traced.
    #[serde(default)]
    pub libcalls: bool,
    /// Whether functions without room for a jump are traced by breakpoints that stay. Once allowed,
    /// this holds for the rest of the session.
    #[serde(default)]
    pub int3: bool,
    /// Globs of Python functions to trace; those with a leading `!` deselect. If empty, Python
    /// functions are not traced.
    #[serde(default)]
    pub python: Vec<String>,
    /// Rules for arguments of Python functions, as the agent gets them
    /// (`calltap_abi::python::arguments`).
    #[serde(default)]
    pub python_arguments: Vec<String>,
    /// Whether events are off for the time being (`tracing_on` is 0).
    pub paused: bool,
    /// State of the daemon that converts calls which were recorded when first made. None: sites are
    /// known at load, without a daemon.
    pub ftraced: Option<Ftraced>,
}

/// A tracer of a selection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracerSelection {
    /// Unique name. The first tracer that records events is `trace`, as in the control directory.
    pub name: String,
    /// Kind; None if the tracer is not registered, so that its filters wait.
    pub kind: Option<TracerKind>,
    /// Globs of functions to trace; those with a leading `!` deselect, and the last that matches
    /// counts. If empty, every function is traced.
    pub filter: Vec<String>,
    /// Globs of functions not to trace, in the same form.
    pub notrace: Vec<String>,
}

impl Selection {
    /// Returns the functions that filters name without wildcards.
    pub fn named(&self) -> GlobSet {
        let of_tracers = self.tracers.iter().flat_map(|tracer| &tracer.filter);
        GlobSet::new(self.filter.iter().chain(of_tracers)).only(Word::is_exact)
    }

    /// Replaces the words of each kind that is given; an empty word clears a kind. Returns whether
    /// anything was given.
    pub fn change(&mut self, mut given: Selection) -> Result<bool, Error> {
        if !given.python.is_empty() {
            given.filter.retain(|word| !is_added(word));
        }
        if !self.python.is_empty() || !given.python.is_empty() {
            split_python_arguments(&mut given)?;
        }
        let mut any = !given.tracers.is_empty() || given.int3 || !given.python_arguments.is_empty();
        self.int3 |= given.int3;
        if !given.tracers.is_empty() {
            self.tracers = given.tracers;
        }
        if !given.arguments.is_empty() || !given.python_arguments.is_empty() {
            // One option sets both.
            (self.arguments, self.python_arguments) = (Vec::new(), given.python_arguments);
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
        Ok(any)
    }

    /// Whether Python functions are traced.
    pub fn traces_python(&self) -> bool {
        !self.python.is_empty() && (self.futures || self.python != [NO_PYTHON])
    }

    /// Returns the globs that select Python functions.
    pub fn python_globs(&self) -> &[String] {
        if self.python == [NO_PYTHON] { &[] } else { &self.python }
    }

    /// Whether functions that poll futures of Rust are traced. In a Python program, its coroutines
    /// are traced instead.
    pub fn polls(&self) -> bool {
        self.futures && self.python.is_empty()
    }

    /// Returns the filter as the user has given it.
    pub fn given_filter(&self) -> impl Iterator<Item = &String> {
        self.filter.iter().filter(|word| self.is_given(word))
    }

    /// Whether the user has given this word of a filter.
    pub fn is_given(&self, word: &str) -> bool {
        self.python.is_empty() || !is_added(word)
    }
}

/// Parses a tracer, `NAME[:GLOB,...]`. Its name differs from those of the tracers before.
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

/// Adds functions to those that are traced, including functions that are traced only if a filter
/// names them.
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

/// Adds the functions in which values are read.
pub fn add_valued(words: &mut Selection) -> Result<(), Error> {
    let rules = Rules::new(&words.arguments, &words.results, &words.conditions)?;
    let globs: Vec<String> = rules.globs().map(|word| word.text().to_owned()).collect();
    add(words, &globs);
    Ok(())
}

/// Takes the rules for arguments of Python functions out of the others: those whose function has a
/// module or class, `app.handle@name`, and no object, as in `libz:f.part.0`.
pub fn take_python_arguments(words: &mut Selection) -> Result<(), Error> {
    if words.python.is_empty() { Ok(()) } else { split_python_arguments(words) }
}

fn split_python_arguments(words: &mut Selection) -> Result<(), Error> {
    let is_of_python = |rule: &String| {
        let function = rule.split('@').next().unwrap_or_default();
        function.contains('.') && !function.contains(':')
    };
    let (python, other) = std::mem::take(&mut words.arguments).into_iter().partition(is_of_python);
    words.arguments = other;
    let python: Vec<String> = python;
    let rules = python.iter().map(|rule| python_rule(rule)).collect::<Result<Vec<_>, Error>>()?;
    words.python_arguments.extend(rules);
    Ok(())
}

/// Returns a rule in the form that the agent reads.
fn python_rule(rule: &str) -> Result<String, Error> {
    let (function, items) = rule.split_once('@').unwrap_or((rule, ""));
    let names: Vec<&str> = items.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        let (rule, name, function) = (rule.to_owned(), (*name).to_owned(), function.to_owned());
        return Err(Error::PythonArgument { rule, name, function });
    }
    if let Some(c) = function.chars().find(|c| matches!(c, '[' | '\\' | '\n' | '\t' | '!')) {
        return Err(Error::PythonPattern { rule: rule.to_owned(), character: c });
    }
    Ok(format!("{function}\t{}", names.join(",")))
}

/// Adds Python functions, which are traced by the interpreter's evaluator, even if no filter names
/// it. Only those functions in C are traced that a filter names.
pub fn add_python(words: &mut Selection, globs: &[String]) {
    if globs.is_empty() {
        return;
    }
    words.python = globs.to_vec();
    words.filter.extend(ADDED.map(str::to_owned));
}

/// Adds the coroutines of a Python program to a selection of futures.
pub fn add_coroutines(words: &mut Selection) {
    if words.python.is_empty() {
        add_python(words, &[NO_PYTHON.to_owned()]);
    }
}

/// Returns tracers of these kinds.
pub fn tracers(kinds: &[TracerKind]) -> Vec<TracerSelection> {
    let mut all = Vec::new();
    for (name, _) in kinds.iter().filter_map(|kind| KINDS.iter().find(|(_, known)| *known == Some(*kind))) {
        all.extend(tracer(name, &all));
    }
    all
}

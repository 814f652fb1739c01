//! The files of a process that have traced functions.

use calltap_names::ModuleNames;
use serde::{Deserialize, Serialize};

/// A loaded executable or shared object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Module {
    /// Index in [`Meta::modules`](super::Meta::modules).
    pub id: u32,
    /// Process that loaded it; its forked children have it, too.
    pub process: u32,
    /// File path in the traced program's view.
    pub path: String,
    /// Name of the symbolic link through which the program was started from the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// GNU build-id, hexadecimal.
    pub build_id: Option<String>,
    /// Difference between run-time addresses and those of the file.
    pub bias: u64,
    /// First and one-past-last address of its mapping.
    pub range: (u64, u64),
    /// Ticks when it was unloaded.
    pub unloaded_ticks: Option<u64>,
    /// Selected functions that could not be traced.
    #[serde(default, skip_serializing_if = "Untraceable::is_empty")]
    pub untraceable: Untraceable,
}

/// Selected functions of a module that could not be traced: they have no calls in the trace, and
/// their time counts as their callers'.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Untraceable {
    /// Number of functions.
    pub count: u64,
    /// The first of them in the order of addresses, at most [`Untraceable::NAMED`].
    pub named: Vec<UntraceableFunction>,
}

/// A function that could not be traced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UntraceableFunction {
    /// Linker symbol (views demangle it).
    pub name: String,
    /// Code of the reason, as `calltap sites --json` has it.
    pub code: String,
    /// The reason, a clause.
    pub reason: String,
}

impl Untraceable {
    /// Maximum number of named functions: a large library has thousands.
    pub const NAMED: usize = 200;

    /// Whether all selected functions were traced.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Module {
    /// Returns a module that is no file mapped into a process; `path` names it.
    pub fn without_file(id: u32, process: u32, path: &str) -> Module {
        Module {
            id,
            process,
            path: path.to_owned(),
            link: None,
            build_id: None,
            bias: 0,
            range: (0, 0),
            unloaded_ticks: None,
            untraceable: Untraceable::default(),
        }
    }

    /// Returns the names by which words select it.
    pub fn names(&self) -> ModuleNames<'_> {
        ModuleNames { file: &self.path, link: self.link.as_deref() }
    }
}

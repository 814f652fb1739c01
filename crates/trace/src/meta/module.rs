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
        }
    }

    /// Returns the names by which words select it.
    pub fn names(&self) -> ModuleNames<'_> {
        ModuleNames { file: &self.path, link: self.link.as_deref() }
    }
}

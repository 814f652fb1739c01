//! Functions that can be selected, and their results, as the control directory shows them.

use calltap_trace::Profile;
use serde::{Deserialize, Serialize};

/// A function that can be traced.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Listed {
    /// Linker symbol.
    pub function: String,
    /// Other names of the function.
    pub aliases: Vec<String>,
    /// Address in the process.
    pub address: u64,
    /// Bytes; 0 if unknown.
    pub size: u64,
    /// File name of its module.
    pub module: String,
    /// Whether that module is a library, not the program itself.
    pub library: bool,
    /// Whether it was enabled at some time.
    pub known: bool,
    /// Whether its site is enabled.
    pub on: bool,
    /// Whether its site had other bytes than expected: it is never touched again.
    pub failed: bool,
}

/// Profile of a function, summed up over all threads and processes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profiled {
    /// Linker symbol.
    pub function: String,
    /// Path of its file.
    pub module: String,
    /// Name of the symbolic link through which a program was started from the file.
    pub link: Option<String>,
    /// The sums.
    pub profile: Profile,
}

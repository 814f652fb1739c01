//! What there is to select, and what came of it, as the control directory shows it.

use calltap_trace::Profile;
use serde::{Deserialize, Serialize};

/// A function that can be traced.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Listed {
    /// Linker symbol,
    pub function: String,
    /// and its other names.
    pub aliases: Vec<String>,
    /// Where it is in the process.
    pub address: u64,
    /// Bytes, 0 when unknown.
    pub size: u64,
    /// File name of its module.
    pub module: String,
    /// That is not the program itself.
    pub library: bool,
    /// It was on at some time.
    pub known: bool,
    /// It leads to a stub.
    pub on: bool,
    /// Other bytes were found there than expected: it is never touched again.
    pub failed: bool,
}

/// What was summed up of a function, all threads and processes together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profiled {
    /// Linker symbol.
    pub function: String,
    /// Path of the file it is in.
    pub module: String,
    /// The sums.
    pub profile: Profile,
}

//! Names of functions: the patterns that choose them, and linker symbols as users read them.
#![forbid(unsafe_code)]

mod demangle;
mod glob;
mod set;

pub use demangle::demangle;
pub use glob::Glob;
pub use set::GlobSet;

//! Names of functions: the patterns that choose them, and linker symbols as users read them.
#![forbid(unsafe_code)]

mod demangle;
mod glob;
mod nearest;
mod polls;
mod printable;
mod set;

pub use demangle::demangle;
pub use glob::Glob;
pub use nearest::nearest_names;
pub use polls::{Polled, dropped, first_parameter, is_type, poll, without_parameters};
pub use printable::{printable, printable_bytes};
pub use set::GlobSet;

/// Does a pattern name a function that has these linker symbols, by one of them or as users read it?
pub fn is_named<'a>(glob: &Glob, mut symbols: impl Iterator<Item = &'a str>) -> bool {
    symbols.any(|symbol| glob.matches(symbol) || glob.matches(&demangle(symbol)))
}

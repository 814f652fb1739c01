//! Names of functions: the patterns that select them, and demangled linker symbols.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod demangle;
mod dotted;
mod fit;
mod function;
mod glob;
mod module;
mod nearest;
mod path;
mod polls;
mod printable;
mod set;
mod short;
#[cfg(test)]
mod tests;
mod word;

pub use demangle::demangle;
pub use fit::fitted;
pub use function::FunctionNames;
pub use glob::Glob;
pub use module::{ModuleNames, file_name};
pub use nearest::nearest_names;
pub use polls::{Polled, dropped, first_parameter, is_type, poll, wakes, without_parameters};
pub use printable::{printable, printable_bytes};
pub use set::GlobSet;
pub use short::{ShortNames, in_message, last_parts};
pub use word::{Word, selects, split_list};

/// Whether a word names a function with these linker symbols in a module of these names.
pub fn is_named<'a>(
    word: &Word,
    symbols: impl Iterator<Item = &'a str>,
    module: Option<ModuleNames<'a>>,
) -> bool {
    word.matches(&FunctionNames::new(symbols, module))
}

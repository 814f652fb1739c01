//! The names by which functions are chosen.

use calltap_names::{FunctionNames, ModuleNames};
use calltap_sites::Function;

/// Identification of functions before their file is decoded.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    /// Linker names of one function, and the name of its file.
    By(&'a [&'a str], &'a str),
    /// The functions without a name in a file of this name, which are called `file+0x...`.
    ByPlace(&'a str),
}

/// Whether functions may be chosen.
pub type MayChoose<'a> = dyn Fn(Named<'_>) -> bool + 'a;

/// Returns the names of a function in a module.
pub(crate) fn names_of<'a>(function: &'a Function, module: ModuleNames<'a>) -> FunctionNames<'a> {
    let aliases = function.aliases.iter().map(String::as_str);
    FunctionNames::new([function.name.as_str()].into_iter().chain(aliases), Some(module))
}

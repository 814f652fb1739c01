//! The names by which a function can be selected.

use crate::demangle;
use crate::module::ModuleNames;
use crate::path::{Part, Path, paths};
use std::cell::OnceCell;

/// Suffixes of compiler-made clones, which are called in place of the function.
pub(crate) const CLONES: [&str; 4] = [".isra.", ".constprop.", ".lto_priv.", ".llvm."];
/// Suffixes of outlined pieces of a function.
pub(crate) const PIECES: [&str; 3] = [".cold", ".part.", ".warm"];

/// The names of a function: linker symbols, demangled names, and the names of its module.
#[derive(Debug)]
pub struct FunctionNames<'a> {
    symbols: Vec<&'a str>,
    /// Demangled symbols, if different, and symbols of clones without the suffix.
    readable: Vec<String>,
    module: Option<ModuleNames<'a>>,
    /// Paths of the demangled names, each with the index of the name that its spans refer to.
    paths: OnceCell<Vec<(usize, Path)>>,
}

/// The parts of a name that a word specifies: number of path parts, and for each, counted from the
/// last, which brackets and tails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Shape {
    parts: usize,
    generics: u64,
    arguments: u64,
    tails: u64,
}

impl<'a> FunctionNames<'a> {
    /// Makes the names of a function with these linker symbols in a module.
    pub fn new(
        symbols: impl IntoIterator<Item = &'a str>,
        module: Option<ModuleNames<'a>>,
    ) -> FunctionNames<'a> {
        let symbols: Vec<&str> = symbols.into_iter().collect();
        let mut readable: Vec<String> = Vec::new();
        for symbol in &symbols {
            let name = demangle(symbol);
            // A trace may have only the demangled name of a function.
            let is_read = name != *symbol || symbol.contains("::") || symbol.ends_with([')', '>']);
            let is_new = is_read && !readable.contains(&name);
            readable.extend(is_new.then_some(name));
            readable.extend(original(symbol).map(str::to_owned));
        }
        FunctionNames { symbols, readable, module, paths: OnceCell::new() }
    }

    /// Returns the names of the function's module, if known.
    pub fn module(&self) -> Option<ModuleNames<'a>> {
        self.module
    }

    /// Whether a name of the function has an argument list, as those of C++ functions have.
    pub(crate) fn has_arguments(&self) -> bool {
        self.readable.iter().any(|name| name.contains('('))
    }

    /// Iterates over the linker symbols.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = &'a str> {
        self.symbols.iter().copied()
    }

    /// Iterates over the linker symbols and demangled names.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().copied().chain(self.readable.iter().map(String::as_str))
    }

    /// Iterates over the names, reduced to a shape.
    pub(crate) fn spelled(&self, shape: Shape) -> impl Iterator<Item = String> {
        self.paths().iter().filter_map(move |(n, path)| shape.spell(&self.readable[*n], path))
    }

    /// Iterates over the ends of names that have more parts than a shape, the whole names too. Only
    /// a shape of several parts without brackets has such ends: `net::*` names a subtree.
    pub(crate) fn spelled_longer(&self, shape: Shape) -> impl Iterator<Item = String> {
        let paths = if shape.is_plain_path() { self.paths() } else { &[] };
        paths.iter().flat_map(move |(n, path)| {
            let longer = (shape.parts + 1..=path.len()).map(move |parts| Shape { parts, ..shape });
            longer.filter_map(move |shape| shape.spell(&self.readable[*n], path))
        })
    }

    /// Returns the paths of the readable names, each with the index of its name.
    fn paths(&self) -> &[(usize, Path)] {
        self.paths.get_or_init(|| {
            let texts = self.readable.iter().enumerate();
            let texts = texts.filter(|(_, text)| !PIECES.iter().any(|piece| text.contains(piece)));
            texts.flat_map(|(n, text)| paths(text).into_iter().map(move |path| (n, path))).collect()
        })
    }
}

/// Returns the symbol of which the compiler has made this clone.
fn original(symbol: &str) -> Option<&str> {
    if !symbol.contains('.') || symbol.starts_with("_Z") || symbol.starts_with("_R") {
        return None;
    }
    let is_piece = PIECES.iter().any(|piece| symbol.contains(piece));
    let at = CLONES.iter().filter_map(|clone| symbol.find(clone)).min().filter(|at| *at > 0 && !is_piece)?;
    Some(&symbol[..at])
}

impl Shape {
    /// Whether a word of this shape has several parts, and no brackets.
    fn is_plain_path(self) -> bool {
        self.parts > 1 && (self.generics | self.arguments | self.tails) == 0
    }

    /// Returns the shape of a word, and the word in that shape. `None`: the word is compared with
    /// whole names only.
    pub(crate) fn of(word: &str) -> Option<(Shape, String)> {
        let mut all = paths(word);
        let path = if all.len() == 1 { all.pop()? } else { return None };
        if path.is_empty() || path.len() > 64 || word.starts_with('<') {
            return None;
        }
        let mask = |span: fn(&Part) -> bool| {
            path.iter().rev().enumerate().filter(|(_, part)| span(part)).fold(0, |mask, (n, _)| mask | 1 << n)
        };
        let shape = Shape {
            parts: path.len(),
            generics: mask(|part| !part.generics.is_empty()),
            arguments: mask(|part| !part.arguments.is_empty()),
            tails: mask(|part| !part.tail.is_empty()),
        };
        let text = shape.spell(word, &path)?;
        Some((shape, text))
    }

    /// Returns the last parts of a name in this shape.
    pub(crate) fn spell(self, text: &str, path: &[Part]) -> Option<String> {
        let last = &path[path.len().checked_sub(self.parts)?..];
        let mut spelled = String::new();
        for (n, part) in last.iter().enumerate() {
            let bit = 1u64 << (last.len() - 1 - n);
            let spans = [
                (true, &part.base),
                (self.generics & bit != 0, &part.generics),
                (self.arguments & bit != 0, &part.arguments),
                (self.tails & bit != 0, &part.tail),
            ];
            if n > 0 {
                spelled.push_str("::");
            }
            spans
                .into_iter()
                .filter(|(is_told, _)| *is_told)
                .for_each(|(_, span)| squeeze(&text[span.clone()], &mut spelled));
        }
        Some(spelled)
    }
}

/// Appends a text without blanks that do not separate words.
fn squeeze(text: &str, to: &mut String) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let joins = c == ' ' && to.ends_with(is_word) && rest.peek().copied().is_some_and(is_word);
        if c != ' ' || joins {
            to.push(c);
        }
    }
}

//! The names by which a function can be chosen.

use crate::demangle;
use crate::path::{Part, Path, paths};
use std::cell::OnceCell;

/// Suffixes of functions that the compiler has made of one function, and that are called in its place.
const CLONES: [&str; 4] = [".isra.", ".constprop.", ".lto_priv.", ".llvm."];
/// Suffixes of what is only a piece of a function.
const PIECES: [&str; 3] = [".cold", ".part.", ".warm"];

/// The names of a function: its linker symbols, those as users read them, and the file that it is in.
#[derive(Debug)]
pub struct FunctionNames<'a> {
    symbols: Vec<&'a str>,
    /// The symbols demangled, where that changes them; a clone of the compiler's without its suffix.
    readable: Vec<String>,
    module: Option<&'a str>,
    /// Each with the text whose spans it has.
    paths: OnceCell<Vec<(usize, Path)>>,
}

/// How much of a name a word tells: so many parts, and of which of them, counted from the last, more than the identifier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Shape {
    parts: usize,
    generics: u64,
    arguments: u64,
    tails: u64,
}

impl<'a> FunctionNames<'a> {
    /// Of a function with these linker symbols, in a file of this name.
    pub fn new(symbols: impl IntoIterator<Item = &'a str>, module: Option<&'a str>) -> FunctionNames<'a> {
        let symbols: Vec<&str> = symbols.into_iter().collect();
        let mut readable: Vec<String> = Vec::new();
        for symbol in &symbols {
            let name = demangle(symbol);
            // A trace may know a function by its readable name alone.
            let is_read = name != *symbol || symbol.contains("::") || symbol.ends_with([')', '>']);
            let is_new = is_read && !readable.contains(&name);
            readable.extend(is_new.then_some(name));
            readable.extend(original(symbol).map(str::to_owned));
        }
        FunctionNames { symbols, readable, module, paths: OnceCell::new() }
    }

    /// File name of its module, if it is known.
    pub fn module(&self) -> Option<&str> {
        self.module
    }

    /// Its linker symbols, and what users read for them.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().copied().chain(self.readable.iter().map(String::as_str))
    }

    /// Its names in a shape.
    pub(crate) fn spelled(&self, shape: Shape) -> impl Iterator<Item = String> {
        let paths = self.paths.get_or_init(|| {
            let texts = self.readable.iter().enumerate();
            let texts = texts.filter(|(_, text)| !PIECES.iter().any(|piece| text.contains(piece)));
            texts.flat_map(|(n, text)| paths(text).into_iter().map(move |path| (n, path))).collect()
        });
        paths.iter().filter_map(move |(n, path)| shape.spell(&self.readable[*n], path))
    }
}

/// The symbol of which the compiler has made this one.
fn original(symbol: &str) -> Option<&str> {
    if !symbol.contains('.') || symbol.starts_with("_Z") || symbol.starts_with("_R") {
        return None;
    }
    let is_piece = PIECES.iter().any(|piece| symbol.contains(piece));
    let at = CLONES.iter().filter_map(|clone| symbol.find(clone)).min().filter(|at| *at > 0 && !is_piece)?;
    Some(&symbol[..at])
}

impl Shape {
    /// The shape of a word, and the word in it. None: it is compared as a whole only.
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

    /// The last parts of a name, with what the shape has of each.
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

/// Adds a text without the blanks that separate no words.
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

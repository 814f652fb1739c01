//! The project's files, and Rust sources as tokens.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

/// Directories with sources.
pub const SOURCES: [&str; 4] = ["agent", "crates", "fuzz", "xtask"];

/// Returns the directory of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Returns the files below these directories of the workspace with these extensions.
pub fn files(places: &[&str], kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    places.iter().for_each(|place| add(&root().join(place), kinds, &mut found));
    found.sort();
    found
}

fn add(below: &Path, kinds: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_own = !name.to_string_lossy().starts_with('.') && name != "target";
        // Links lead out of the project, or to files that are found anyway.
        if is_own && path.is_dir() && !path.is_symlink() {
            add(&path, kinds, found);
        } else if is_own && path.extension().is_some_and(|kind| kinds.iter().any(|own| kind == *own)) {
            found.push(path);
        }
    }
}

/// Returns the text of a file.
pub fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the tokens of a Rust source.
pub fn tokens(path: &Path) -> Vec<TokenTree> {
    let tokens: TokenStream =
        text(path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    tokens.into_iter().collect()
}

/// Returns the tokens in a group.
pub fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// Returns the identifier at a position.
pub fn ident(tokens: &[TokenTree], at: usize) -> Option<&Ident> {
    match tokens.get(at)? {
        TokenTree::Ident(ident) => Some(ident),
        _ => None,
    }
}

/// Whether this character is at a position.
pub fn is_punct(tokens: &[TokenTree], at: usize, c: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == c)
}

/// Returns the group in braces at a position.
pub fn braces(tokens: &[TokenTree], at: usize) -> Option<&Group> {
    match tokens.get(at)? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
        _ => None,
    }
}

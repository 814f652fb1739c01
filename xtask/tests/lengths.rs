//! Limits of functions, files and folders.

use crate::sources::{self, SOURCES, braces, files, ident, inside, is_punct};
use proc_macro2::TokenTree;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of lines of a function, with its signature and closing brace.
const FUNCTION: usize = 70;
/// Maximum number of lines of a file.
const FILE: usize = 500;
/// Maximum number of files of a folder, without its folders.
const FOLDER: usize = 25;
/// The words with which a longer file gives its reason in its first lines.
const REASON: &str = "More than 500 lines: ";
const KINDS: [&str; 8] = ["rs", "s", "S", "c", "cpp", "h", "js", "mjs"];

/// Collects the functions that are longer: name, line, length.
fn long_functions(tokens: &[TokenTree], found: &mut Vec<(String, usize, usize)>) {
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => long_functions(&inside(group), found),
            TokenTree::Ident(word) if word == "fn" => {
                let Some(name) = ident(tokens, at + 1) else { continue };
                let declared = (at..tokens.len()).find(|at| is_punct(tokens, *at, ';'));
                let body = (at..tokens.len()).find_map(|at| Some((at, braces(tokens, at)?)));
                let Some((end, body)) = body else { continue };
                let first = word.span().start().line;
                let length = body.span_close().end().line - first + 1;
                if declared.is_none_or(|declared| declared > end) && length > FUNCTION {
                    found.push((name.to_string(), first, length));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn functions_are_short() {
    let all = files(&SOURCES, &["rs"]);
    assert!(all.len() > 500, "only {} files", all.len());
    let mut refused = Vec::new();
    for path in all {
        let mut found = Vec::new();
        long_functions(&sources::tokens(&path), &mut found);
        let line = |(name, line, length)| format!("{}:{line}: {name} has {length} lines", path.display());
        refused.extend(found.into_iter().map(line));
    }
    assert!(refused.is_empty(), "more than {FUNCTION} lines; take parts out:\n{}", refused.join("\n"));
}

#[test]
fn files_are_short_or_say_why_not() {
    let mut refused = Vec::new();
    for path in files(&SOURCES, &KINDS) {
        let text = sources::text(&path);
        let (lines, says_why) =
            (text.lines().count(), text.lines().take(8).any(|line| line.contains(REASON)));
        if lines > FILE && !says_why {
            refused.push(format!("{}: {lines} lines", path.display()));
        }
        if lines <= FILE && says_why {
            refused.push(format!("{}: its reason is outdated", path.display()));
        }
    }
    assert!(refused.is_empty(), "split them, or write '{REASON}...' at the top:\n{}", refused.join("\n"));
}

#[test]
fn folders_are_small() {
    let mut counts = BTreeMap::<PathBuf, usize>::new();
    let kinds = [&KINDS[..], &["go", "py", "md", "png", "svg", "txt"]].concat();
    for path in files(&[&SOURCES[..], &["docs"]].concat(), &kinds) {
        *counts.entry(path.parent().expect("a folder").to_owned()).or_default() += 1;
    }
    assert!(counts.len() > 100, "only {} folders", counts.len());
    counts.retain(|_, count| *count > FOLDER);
    assert!(counts.is_empty(), "more than {FOLDER} files; a subject of some of them is a folder: {counts:?}");
}

#[test]
fn lengths_are_counted_from_the_first_line_to_the_brace() {
    let body = "    let _ = \"fn g() {\"; // }\n".repeat(FUNCTION - 1);
    let text = format!("trait T {{ fn f(); }}\nfn short() {{}}\nfn long(\n) {{\n{body}}}\n");
    let mut found = Vec::new();
    let tokens: proc_macro2::TokenStream = text.parse().expect("tokens");
    long_functions(&tokens.into_iter().collect::<Vec<_>>(), &mut found);
    assert_eq!(found, [("long".to_owned(), 3, FUNCTION + 2)]);
}

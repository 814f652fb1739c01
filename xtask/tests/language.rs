//! Sentences have concrete subjects: words that stand for no program, thread or function in particular are refused.

use std::fs;
use std::path::{Path, PathBuf};

const REFUSED: [&str; 3] = ["nobody", "somebody", "whoever"];
/// In comments: calltap and its parts have names, and a thread, a process or a function is no person.
const PRONOUNS: [&str; 12] =
    ["we", "our", "ours", "he", "his", "him", "she", "her", "anybody", "everybody", "someone", "everyone"];
const KINDS: [&str; 9] = ["rs", "md", "s", "c", "cpp", "h", "js", "mjs", "toml"];
/// Has the words itself.
const THIS: &str = "language.rs";

/// The sources and documents below a directory.
fn files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let is_own = !name.starts_with('.') && name != "target" && name != THIS;
        // Links lead out of the project, or to what is looked at anyway.
        if is_own && path.is_dir() && !path.is_symlink() {
            files(&path, found);
        } else if is_own && path.extension().is_some_and(|kind| KINDS.iter().any(|own| kind == *own)) {
            found.push(path);
        }
    }
}

#[test]
fn sentences_have_concrete_subjects() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = Vec::new();
    for place in ["agent", "crates", "docs", "fuzz", "xtask"] {
        files(&root.join(place), &mut found);
    }
    found.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)),
    );
    assert!(found.len() > 300, "only {} files", found.len());
    let mut refused = Vec::new();
    for path in found {
        let text = fs::read_to_string(&path).unwrap_or_default().to_lowercase();
        for (number, line) in text.lines().enumerate() {
            if REFUSED.iter().any(|word| line.contains(word)) {
                refused.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(refused.is_empty(), "name the program, thread or function that acts:\n{}", refused.join("\n"));
}

/// The comments of a Rust source, with the numbers of their lines. A `//` in a string may be taken for one.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(n, line)| Some((n + 1, line.split_once("//")?.1)))
}

#[test]
fn comments_name_what_acts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = Vec::new();
    for place in ["agent", "crates", "fuzz", "xtask"] {
        files(&root.join(place), &mut found);
    }
    let mut refused = Vec::new();
    for path in found.into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "rs")) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (number, comment) in comments(&text) {
            // What stands in backquotes is code.
            let prose: String = comment.split('`').step_by(2).collect();
            let mut words = prose.split(|c: char| !c.is_alphanumeric());
            if words.any(|word| PRONOUNS.contains(&&*word.to_lowercase())) {
                refused.push(format!("{}:{number}: {}", path.display(), comment.trim()));
            }
        }
    }
    assert!(refused.is_empty(), "name the program, thread or function:\n{}", refused.join("\n"));
}

/// A comment that is one sentence in parentheses says that it does not matter: then it is left out, or else it stands without them.
#[test]
fn no_comment_is_in_parentheses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut found = Vec::new();
    for place in ["agent", "crates", "fuzz", "xtask"] {
        files(&root.join(place), &mut found);
    }
    let mut refused = Vec::new();
    for path in found.into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "rs")) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            let sentence = comment.strip_prefix('(').is_some_and(|rest| rest.starts_with(char::is_uppercase));
            if sentence && comment.ends_with(".)") {
                refused.push(format!("{}:{}: {comment}", path.display(), number + 1));
            }
        }
    }
    assert!(refused.is_empty(), "comments in parentheses:\n{}", refused.join("\n"));
}

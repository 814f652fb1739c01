//! Checks of the documents: links lead to files and headings that exist, and the indexes are
//! complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the documents of the project.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let below =
        |place: PathBuf| fs::read_dir(place).expect("a directory").flatten().map(|entry| entry.path());
    let all = xtask::book::PLACES.into_iter().flat_map(|place| below(root.join(place)));
    all.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect()
}

/// Returns the text without code, where brackets are not links.
fn prose(text: &str) -> String {
    let mut in_block = false;
    let outside = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !fence && !in_block && !line.starts_with("    ")
    });
    // Every second piece between backquotes is code.
    outside.collect::<Vec<_>>().join("\n").split('`').step_by(2).collect()
}

/// Returns the targets of a text's links, except those to other machines.
fn links(text: &str) -> Vec<String> {
    let ends = prose(text);
    let mut found = Vec::new();
    for part in ends.split("](").skip(1) {
        let target = part.split([')', ' ']).next().unwrap_or_default();
        if !target.contains("://") {
            found.push(target.to_owned());
        }
    }
    found
}

/// Returns the anchors that a viewer of Markdown makes of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 20, "only {} documents", documents.len());
    let (mut dead, mut count) = (Vec::new(), 0);
    for path in &documents {
        let text = fs::read_to_string(path).expect("a document");
        for link in links(&text) {
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if file.is_empty() { path.clone() } else { path.parent().expect("a directory").join(file) };
            let has_heading = || {
                heading.is_empty()
                    || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading))
            };
            if !target.exists() || !has_heading() {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links");
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

/// Maximum number of words of `ARCHITECTURE.md`. Borders of drawings and tables do not count.
const ARCHITECTURE: usize = 1500;

#[test]
fn the_architecture_is_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the document");
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    let words = text.split_whitespace().filter(is_word).count();
    assert!(
        (500..=ARCHITECTURE).contains(&words),
        "{words} words: details stand beside the code that they explain"
    );
}

fn files(root: &Path, below: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(below)).expect("a directory").flatten() {
        let path = below.join(entry.file_name());
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => files(root, &path, found),
            false => found.push(format!("/{}", path.display())),
        }
    }
}

#[test]
fn sources_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut all = Vec::new();
    ["agent", "crates", "xtask"].iter().for_each(|place| files(root, Path::new(place), &mut all));
    let (mut dead, mut count) = (Vec::new(), 0);
    for document in
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/explanation/internals.md", "docs/reference/glossary.md"]
    {
        let text = fs::read_to_string(root.join(document)).expect("a document");
        let code = text.split('`').skip(1).step_by(2);
        for name in code.filter(|code| code.ends_with(".rs") && !code.contains(' ')) {
            count += 1;
            if !all.iter().any(|file| file.ends_with(&format!("/{name}"))) {
                dead.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(count > 30, "only {count} names");
    assert!(dead.is_empty(), "files that do not exist:\n{}", dead.join("\n"));
}

/// `docs/README.md` links to every document.
#[test]
fn the_index_has_every_document() {
    let index = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/README.md"))
        .expect("the index");
    let listed: BTreeSet<String> = links(&index).into_iter().collect();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").canonicalize().expect("docs");
    let all = documents()
        .into_iter()
        .filter_map(|path| Some(path.canonicalize().ok()?.strip_prefix(&docs).ok()?.to_owned()));
    let missing: Vec<PathBuf> = all
        .filter(|path| {
            !["README.md", "SUMMARY.md"].contains(&&*path.to_string_lossy())
                && !listed.contains(&*path.to_string_lossy())
        })
        .collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

/// `docs/SUMMARY.md` is the table of contents of the book.
#[test]
fn the_book_has_every_document_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let contents = fs::read_to_string(root.join("docs/SUMMARY.md")).expect("the contents");
    let mut listed: Vec<String> = links(&xtask::book::from_above(&contents));
    listed.sort();
    let all = documents().into_iter().filter_map(|path| Some(path.strip_prefix(root).ok()?.to_owned()));
    let mut all: Vec<String> = all.map(|path| path.to_string_lossy().into_owned()).collect();
    all.retain(|path| path != "docs/SUMMARY.md");
    all.sort();
    assert_eq!(listed, all);
}

#[test]
fn links_of_the_book_lead_to_its_pages_or_to_the_repository() {
    let there = |text: &str| xtask::book::outwards(text, Path::new("docs"));
    for inside in ["[a](safety.md#x)", "[a](#x)", "[a](https://x/y)", "![a](view.png)"] {
        assert_eq!(there(inside), inside);
    }
    assert_eq!(there("[a](../README.md#x)"), "[a](../index.md#x)");
    let source = "see [`stub`](../crates/abi/src/stub.rs), or not";
    let expected =
        "see [`stub`](https://github.com/calltap/calltap/blob/main/crates/abi/src/stub.rs), or not";
    assert_eq!(there(source), expected);
}

#[test]
fn anchors_equal_those_of_viewers() {
    let text = "# A `thing`, and another\n\n## How it's done\n```\n# no heading\n```\n";
    let anchors = anchors(text);
    for anchor in ["a-thing-and-another", "how-its-done"] {
        assert!(anchors.contains(anchor), "{anchors:?}");
    }
    assert_eq!(links("[a](b.md#c) `[x](y)` [d](https://e)\n    [code](z)\n"), ["b.md#c"]);
}

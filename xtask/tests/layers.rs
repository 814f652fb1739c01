//! The layers of `crates/session`: a file imports from its own layer and those beneath it, never from above. Between crates the compiler sees to that.

use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest; what is in no folder is above them all.
const LAYERS: [&str; 1] = ["plan"];
/// Belongs to no layer.
const SHARED: [&str; 2] = ["Error", "error"];

fn files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// The first words of all paths that begin with `crate::`, also of those in braces.
fn imported(text: &str) -> Vec<&str> {
    text.split("crate::")
        .skip(1)
        .flat_map(|path| if path.starts_with('{') { members(path) } else { vec![word(path)] })
        .collect()
}

/// The first words of the members of a braced list, which begins the text.
fn members(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 1, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && c == ',' {
            found.push(word(list[begin..at].trim_start()));
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// The identifier that begins a text.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[test]
fn no_file_imports_from_a_layer_above_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/session/src");
    let mut wrong = Vec::new();
    for (height, layer) in LAYERS.iter().enumerate() {
        let mut found = vec![root.join(format!("{layer}.rs"))];
        files(&root.join(layer), &mut found);
        assert!(found.len() > 10, "{layer}: only {} files", found.len());
        for path in found {
            let text = fs::read_to_string(&path).expect("a source file");
            for name in imported(&text) {
                let is_allowed = LAYERS[..=height].contains(&name) || SHARED.contains(&name);
                if !is_allowed {
                    wrong.push(format!("{}: crate::{name}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports from above:\n{}", wrong.join("\n"));
}

#[test]
fn imports_are_found_in_all_forms() {
    let text = "use crate::a::b;\nuse crate::{c, d::{e, f}, g};\nfn x() { crate::h::i(crate::J::K) }";
    assert_eq!(imported(text), ["a", "c", "d", "g", "h", "J"]);
}

//! The parts of the executable: every crate with its version and licence, and the texts of the
//! licences.

use crate::shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Text about the parts of the executable that are not crates.
const BESIDE_CRATES: &str = "\
# Linked statically beside them: the Rust standard library (MIT OR Apache-2.0), the GNU C library (LGPL-2.1-or-later), libgcc (GPL-3.0-or-later
# WITH GCC-exception-3.1), zstd (BSD-3-Clause). calltap's sources, which are public, link with any other version of these: cargo xtask dist.
";

/// A crate that is part of the executable.
struct Part {
    name: String,
    version: String,
    licence: String,
    source: String,
    directory: String,
}

/// Writes `SBOM.tsv` and `THIRD-PARTY-LICENCES` into a directory.
pub fn write(to: &Path) -> Result<()> {
    let parts = parts()?;
    let mut table = String::from("# crate\tversion\tlicence\tsource\n");
    for Part { name, version, licence, source, .. } in &parts {
        table += &format!("{name}\t{version}\t{licence}\t{source}\n");
    }
    fs::write(to.join("SBOM.tsv"), table + BESIDE_CRATES).context("SBOM.tsv")?;
    fs::write(to.join("THIRD-PARTY-LICENCES"), texts(&parts)?).context("THIRD-PARTY-LICENCES")
}

/// Returns all crates that the command line depends on, itself included, without those that only
/// build or test it.
fn parts() -> Result<Vec<Part>> {
    let mut command = shell::cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", super::TARGET]);
    let all: Value = serde_json::from_slice(&shell::output(&mut command)?.stdout)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&all["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&all["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let root = packages.iter().find(|(_, package)| package["name"] == "calltap-cli");
    let mut next = vec![root.context("no crate calltap-cli")?.0.clone()];
    let mut found = BTreeSet::new();
    while let Some(id) = next.pop() {
        if is_macro(&packages[&id]) || !found.insert(id.clone()) {
            continue;
        }
        let is_linked =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let linked = list(&nodes[&id]["deps"]).into_iter().filter(is_linked);
        next.extend(linked.map(|dependency| text(&dependency["pkg"])));
    }
    let part = |id: &String| {
        let package = &packages[id];
        let manifest = text(&package["manifest_path"]);
        let source = if package["source"].is_null() { "calltap" } else { "crates.io" };
        let directory = Path::new(&manifest).parent().unwrap_or(Path::new("")).display().to_string();
        Part {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: package["license"].as_str().unwrap_or("see its files").to_owned(),
            source: source.to_owned(),
            directory,
        }
    };
    let mut parts: Vec<Part> = found.iter().map(part).collect();
    parts.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(parts)
}

/// Whether a package is a procedural macro, which runs in the compiler and is not linked.
fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array();
    targets.is_some_and(|targets| {
        targets.iter().any(|target| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "proc-macro"))
        })
    })
}

/// Returns the texts of the licences of third-party crates: each text once, below the names of its
/// crates.
fn texts(parts: &[Part]) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.source != "calltap") {
        let mut has_text = false;
        for entry in fs::read_dir(&part.directory).with_context(|| part.directory.clone())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let is_licence = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"]
                .iter()
                .any(|word| name.starts_with(word));
            if is_licence && path.is_file() {
                let text = String::from_utf8_lossy(&fs::read(&path)?).trim().to_owned();
                by_text.entry(text).or_default().push(format!("{} {}", part.name, part.version));
                has_text = true;
            }
        }
        if !has_text {
            let text = format!("(the crate has no file with the text of its licence: {})", part.licence);
            by_text.entry(text).or_default().push(format!("{} {}", part.name, part.version));
        }
    }
    let mut all = String::new();
    for (text, crates) in by_text {
        all += &format!("{}\n{}\n\n{text}\n\n\n", "=".repeat(80), crates.join(", "));
    }
    Ok(all)
}

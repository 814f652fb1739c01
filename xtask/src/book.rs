//! `cargo xtask book`: the documents as a book, by mdBook.
//!
//! Documents link to files of the project beside and above `docs/`. The book is therefore built
//! from a copy of all documents in the same places, and a link to any other file leads to the
//! repository.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Address below which the repository shows a file.
const REPOSITORY: &str = "https://github.com/calltap/calltap/blob/main";
/// Extensions of the files that are copied.
const COPIED: [&str; 3] = ["md", "png", "svg"];

/// Directories of the documents.
pub const PLACES: [&str; 6] =
    ["", "docs", "docs/how-to", "docs/guides", "docs/reference", "docs/explanation"];

/// Builds the book, in the target directory.
pub fn run() -> Result<()> {
    let Some(mdbook) = mdbook() else { bail!("no mdbook here: .ci/run installs it") };
    let (root, place) = (shell::root(), shell::target().join("book"));
    let _ = fs::remove_dir_all(&place);
    for directory in PLACES {
        copy(&root, &place.join("src"), Path::new(directory))?;
    }
    let contents = fs::read_to_string(root.join("docs/SUMMARY.md")).context("docs/SUMMARY.md")?;
    fs::write(place.join("src/SUMMARY.md"), from_above(&contents))?;
    let settings = fs::read_to_string(root.join("book.toml")).context("book.toml")?;
    fs::write(place.join("book.toml"), settings.replace("src = \"docs\"", "src = \"src\""))?;
    shell::status(Command::new(mdbook).arg("build").arg(&place).arg("--dest-dir").arg(place.join("html")))?;
    println!("{}", place.join("html/index.html").display());
    Ok(())
}

/// Returns the mdBook that .ci/run has built, or the installed one.
pub fn mdbook() -> Option<PathBuf> {
    let tools = shell::target().join("tools/bin/mdbook");
    if tools.exists() { Some(tools) } else { shell::have("mdbook").then(|| "mdbook".into()) }
}

/// Copies the documents and pictures of a directory.
fn copy(root: &Path, to: &Path, directory: &Path) -> Result<()> {
    fs::create_dir_all(to.join(directory))?;
    for entry in fs::read_dir(root.join(directory))? {
        let path = entry?.path();
        let kind = path.extension().map(|kind| kind.to_string_lossy().into_owned()).unwrap_or_default();
        let name = directory.join(path.file_name().unwrap_or_default());
        if kind == "md" && !name.ends_with("SUMMARY.md") {
            fs::write(to.join(&name), outwards(&fs::read_to_string(&path)?, directory))?;
        } else if COPIED.contains(&&*kind) && kind != "md" {
            fs::copy(&path, to.join(&name))?;
        }
    }
    Ok(())
}

/// Applies a change to the target of each link of a text.
fn each_link(text: &str, change: impl Fn(&str) -> String) -> String {
    let mut parts = text.split("](");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([')', ' ']).unwrap_or(part.len());
        all += &format!("]({}{}", change(&part[..end]), &part[end..]);
    }
    all
}

/// Returns a document's text, with links to files outside of the book changed to the repository.
/// mdBook makes the index of a directory from its README.
pub fn outwards(text: &str, directory: &Path) -> String {
    each_link(text, |link| {
        let file = link.split('#').next().unwrap_or_default();
        let is_inside =
            file.is_empty() || file.contains("://") || COPIED.iter().any(|kind| file.ends_with(kind));
        let target = || normal(&directory.join(link));
        if is_inside {
            link.replace("README.md", "index.md")
        } else {
            format!("{REPOSITORY}/{}", target().display())
        }
    })
}

/// Returns the table of contents with the paths that it has one directory above.
pub fn from_above(contents: &str) -> String {
    each_link(contents, |link| normal(&Path::new("docs").join(link)).display().to_string())
}

/// Returns a path without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut all, component| {
        match component {
            Component::ParentDir => drop(all.pop()),
            other => all.push(other),
        }
        all
    })
}

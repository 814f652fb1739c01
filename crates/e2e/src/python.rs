//! Installed interpreters of Python.

use crate::compile::output_of;
use crate::skipped::skipped;
use std::path::{Path, PathBuf};

/// Returns pyenv's newest interpreter of a version such as `3.8`.
pub fn python_of_pyenv(version: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pyenv")))?;
    let directories = std::fs::read_dir(root.join("versions")).ok()?.filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = directories
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{version}.")))
        .map(|entry| entry.path().join("bin/python"))
        .collect();
    paths.sort();
    paths.pop()
}

/// Returns the interpreter of CPython 3 of a minor version, from pyenv or PATH; reports a skipped
/// test if there is none.
pub fn python(minor: u32) -> Option<PathBuf> {
    let say = format!("import sys; print(sys.executable if sys.version_info[:2] == (3, {minor}) else '')");
    let names = [format!("python3.{minor}"), "python3".to_owned()].map(PathBuf::from);
    let found = python_of_pyenv(&format!("3.{minor}")).into_iter().chain(names).find_map(|name| {
        let path = output_of(name.to_str()?, &["-c", &say])?;
        Some(PathBuf::from(path.trim())).filter(|path| !path.as_os_str().is_empty())
    });
    if found.is_none() {
        skipped(&format!("CPython 3.{minor}: none is here"));
    }
    found
}

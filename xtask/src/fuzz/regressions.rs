//! Generated programs that once failed. Each is a source file: its first line says how it is built,
//! its second what was wrong.

use super::builds::Build;
use super::{Counts, MODES, Mode, Program};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the directory of the programs.
fn place() -> PathBuf {
    shell::root().join("xtask/regressions")
}

/// Writes a program that failed.
pub(super) fn keep(program: &Program, seed: u64, mode: Mode, what: &anyhow::Error) -> Result<PathBuf> {
    let end = Path::new(program.build.source()).extension().unwrap_or_default().to_string_lossy();
    let path = place().join(format!("seed_{seed}.{end}"));
    let what = format!("{mode:?}: {what:#}").lines().next().unwrap_or_default().to_owned();
    fs::create_dir_all(place())?;
    fs::write(&path, format!("// {}\n// {what}\n{}", program.build.line(), program.text))?;
    Ok(path)
}

/// Reads a program.
fn read(path: &Path, directory: &Path) -> Result<Program> {
    let text = fs::read_to_string(path)?;
    let build = text.lines().next().and_then(|line| Build::parse(line.strip_prefix("// ")?));
    let build = build.with_context(|| format!("{}: the first line says no compiler", path.display()))?;
    Ok(Program { text, build, directory: directory.join(path.file_stem().unwrap_or_default()) })
}

/// Runs all programs in every mode, and returns their number.
pub fn run(calltap: &Path) -> Result<usize> {
    let directory = shell::target().join("regressions");
    let mut paths: Vec<PathBuf> = fs::read_dir(place())?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut failed = Vec::new();
    for path in &paths {
        let program = read(path, &directory)?;
        if !program.build.is_installed() {
            eprintln!("SKIPPED: {}: no {}", path.display(), program.build.line());
            continue;
        }
        program.build()?;
        for mode in MODES {
            if let Err(what) = program.check(mode, calltap, &mut Counts::default()) {
                failed.push(format!("{}: {mode:?}: {what:#}", path.display()));
            }
        }
    }
    if failed.is_empty() { Ok(paths.len()) } else { bail!("{}", failed.join("\n")) }
}

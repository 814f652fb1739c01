//! Commands of other programs, and the project's directories.

use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns the project's directory.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns the directory in which cargo builds.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |given| root().join(given))
}

/// Returns a command of the cargo that runs this program.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Whether a tool is in the path.
pub fn have(tool: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|directory| directory.join(tool).is_file())
}

/// Returns the calltap that `CALLTAP_BIN` names, or builds it.
pub fn calltap() -> Result<PathBuf> {
    let Some(given) = env::var_os("CALLTAP_BIN") else { return build_calltap() };
    // The path is made absolute, as calltap is run in other directories.
    std::fs::canonicalize(&given).with_context(|| format!("CALLTAP_BIN: {}", given.display()))
}

/// Builds calltap with the release profile, and returns its path.
pub fn build_calltap() -> Result<PathBuf> {
    build_calltap_in("release")
}

/// Builds calltap with a profile, and returns its path. All packages of the workspace decide about
/// the features of dependencies, as in a build of the tests: `-p calltap-cli` would have other
/// features, and cargo would build most crates once more for it.
pub fn build_calltap_in(profile: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--profile", profile, "--bin", "calltap"]);
    status(&mut build)?;
    Ok(target().join(profile).join("calltap"))
}

/// Runs a command with this program's input and output; an error if it fails.
pub fn status(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    if !status.success() {
        bail!("{}: {status}", line(command));
    }
    Ok(())
}

/// Runs a command for its output; if it fails, the error has the end of its messages.
pub fn output(command: &mut Command) -> Result<Output> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = said.lines().rev().take(15).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!("{}: {}\n{}", line(command), output.status, tail.join("\n"));
    }
    Ok(output)
}

/// Returns a command as a user types it.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quote(&OsString::from(word).to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// Returns a word as a shell reads it back.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

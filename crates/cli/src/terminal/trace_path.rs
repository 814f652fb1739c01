//! Where a command writes a trace.

use crate::command_line::arguments::{Arguments, is_standard};
use anyhow::{Result, bail};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Returns the path to which `-o` has a trace written. `-` is standard output, by a path under
/// which a recorder can open it that another calltap has started.
pub fn of(arguments: &Arguments) -> Result<PathBuf> {
    let output = arguments.path("output").unwrap_or_default();
    if output.is_dir() {
        bail!(
            "-o {}: a directory, and a trace is a file: -o {}",
            output.display(),
            output.join("calltap.data").display()
        );
    }
    if !is_standard(&output) {
        return Ok(output);
    }
    if std::io::stdout().is_terminal() {
        bail!("-o -: refusing to write a binary trace to a terminal: name a file, or pipe it into a program");
    }
    Ok(format!("/proc/{}/fd/1", std::process::id()).into())
}

/// Returns the name by which messages call the output.
pub fn name(path: &Path) -> String {
    let is_standard = path.starts_with(format!("/proc/{}/fd", std::process::id()));
    if is_standard { "standard output".to_owned() } else { path.display().to_string() }
}

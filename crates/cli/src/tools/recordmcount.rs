//! `calltap tools recordmcount`: adds the list of calls to mcount to object files, in place.

use crate::command_line::arguments::Arguments;
use anyhow::{Context, Result, bail};
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;

/// Processes every named file; a failure is told, and the other files are processed nevertheless.
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in arguments.words("operand") {
        if let Err(error) = record(Path::new(&path)) {
            tell!("calltap: {}", crate::ending::line(&error));
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Adds the list to a file, if it has calls to list.
pub fn record(path: &Path) -> Result<()> {
    let name = || path.display().to_string();
    let metadata = fs::metadata(path).with_context(name)?;
    if !metadata.is_file() {
        bail!("{}: not a regular file", name());
    }
    let object = fs::read(path).with_context(name)?;
    if let Some(object) = calltap_recordmcount::add(&object).with_context(name)? {
        replace(path, &object, &metadata).with_context(name)?;
    }
    Ok(())
}

/// Replaces a file atomically by a new one; on failure the old one remains.
///
/// Other hard links keep the old file: they may be a compiler cache's, whose file must remain as
/// the compiler wrote it.
fn replace(path: &Path, content: &[u8], old: &Metadata) -> io::Result<()> {
    // A user without write permission for the file may not replace it. A symbolic link remains one.
    File::options().write(true).open(path)?;
    let path = fs::canonicalize(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    // A killed process of the same number may have left such a file.
    let _ = fs::remove_file(&part);
    let done = write(&part, content, old).and_then(|()| fs::rename(&part, &path));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

/// Writes a new file with the mode of another and, as far as the user may set it, its owner.
fn write(path: &Path, content: &[u8], like: &Metadata) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        let _ = std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()));
    }
    file.set_permissions(like.permissions())
}

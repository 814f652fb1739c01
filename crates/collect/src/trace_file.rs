//! The name of the trace file, preliminary and final.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::*};

/// The trace file. It has a preliminary name until the program is known to be worth running, so
/// that a mistyped filter does not cost the user yesterday's trace.
pub struct TraceFile {
    part: Option<PathBuf>,
    output: PathBuf,
    /// Whether the file has its name, or could not be renamed.
    settled: AtomicU8,
}

const PARTIAL: u8 = 0;
const NAMED: u8 = 1;
const REFUSED: u8 = 2;

impl TraceFile {
    /// Creates a trace file with a preliminary name.
    pub fn new(output: &Path) -> TraceFile {
        // A device or a pipe is written to directly; a link stays a link.
        let output = fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
        let special = fs::metadata(&output).is_ok_and(|meta| !meta.is_file());
        let part = (!special).then(|| {
            let mut name = output.file_name().unwrap_or_default().to_owned();
            name.push(".part");
            output.with_file_name(name)
        });
        TraceFile { part, output, settled: AtomicU8::new(PARTIAL) }
    }

    /// Returns the present path of the file.
    pub fn path(&self) -> &Path {
        self.part.as_deref().filter(|_| self.settled.load(Acquire) != NAMED).unwrap_or(&self.output)
    }

    /// Gives the file its final name.
    pub fn keep(&self) {
        if let Some(part) = self.part.as_deref().filter(|_| self.settled.load(Acquire) == PARTIAL) {
            let named = rename(part, &self.output).is_ok();
            self.settled.store(if named { NAMED } else { REFUSED }, Release);
        }
    }

    /// Returns a note for the user, if the file could not be renamed.
    pub fn note(&self) -> Option<String> {
        let refused = self.settled.load(Acquire) == REFUSED;
        refused.then(|| format!("the trace could not be renamed: it is in {}", self.path().display()))
    }
}

/// Default name of a trace. A file of that name is kept, as the user did not ask to replace it.
const DEFAULT: &str = "calltap.data";

/// Renames a file over one that may exist, which is deleted, or kept as `.old`.
fn rename(file: &Path, name: &Path) -> io::Result<()> {
    if name.file_name().is_some_and(|last| last == DEFAULT) && name.exists() {
        let mut old = name.as_os_str().to_owned();
        old.push(".old");
        fs::rename(name, old)?;
    }
    // The names are exchanged first: when one file replaces another, ext4 waits for milliseconds
    // until the new one is on the disk.
    match renameat_with(CWD, file, CWD, name, RenameFlags::EXCHANGE) {
        Ok(()) => fs::remove_file(file),
        Err(_) => fs::rename(file, name),
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if let Some(part) = self.part.as_deref().filter(|_| self.settled.load(Acquire) == PARTIAL) {
            let _ = fs::remove_file(part);
        }
    }
}

//! The trace file's name.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::*};

/// The trace file. Until the program is known to be worth running it has another name, so that a mistyped filter does not cost
/// the user the trace of yesterday.
pub struct TraceFile {
    part: Option<PathBuf>,
    output: PathBuf,
    /// It has its name, or cannot get it.
    settled: AtomicU8,
}

const PARTIAL: u8 = 0;
const NAMED: u8 = 1;
const REFUSED: u8 = 2;

impl TraceFile {
    /// Under its preliminary name.
    pub fn new(output: &Path) -> TraceFile {
        // A device or a pipe is written to as it is; a link stays one.
        let output = fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
        let special = fs::metadata(&output).is_ok_and(|meta| !meta.is_file());
        let part = (!special).then(|| {
            let mut name = output.file_name().unwrap_or_default().to_owned();
            name.push(".part");
            output.with_file_name(name)
        });
        TraceFile { part, output, settled: AtomicU8::new(PARTIAL) }
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        self.part.as_deref().filter(|_| self.settled.load(Acquire) != NAMED).unwrap_or(&self.output)
    }

    /// Gives it its name.
    pub fn keep(&self) {
        if let Some(part) = self.part.as_deref().filter(|_| self.settled.load(Acquire) == PARTIAL) {
            let named = rename(part, &self.output).is_ok();
            self.settled.store(if named { NAMED } else { REFUSED }, Release);
        }
    }

    /// What the user should know.
    pub fn note(&self) -> Option<String> {
        let refused = self.settled.load(Acquire) == REFUSED;
        refused.then(|| format!("the trace could not be renamed: it is in {}", self.path().display()))
    }
}

/// The name of a trace that was given none. What has it is kept: the user did not say that it may go.
const DEFAULT: &str = "calltap.data";

/// Gives a file a name that another one may have, which is deleted, or kept as `.old`.
fn rename(file: &Path, name: &Path) -> io::Result<()> {
    if name.file_name().is_some_and(|last| last == DEFAULT) && name.exists() {
        let mut old = name.as_os_str().to_owned();
        old.push(".old");
        fs::rename(name, old)?;
    }
    // First they are exchanged: when one file replaces another, ext4 waits for the new one to be on the disk, which takes milliseconds.
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

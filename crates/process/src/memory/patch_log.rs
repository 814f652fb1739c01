//! The optional log of code changes, `--patch-log FILE`. One log serves the whole process, as all
//! changes of code go through one writer.

use calltap_patch::log::Entry;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: OnceLock<Mutex<BufWriter<File>>> = OnceLock::new();

/// Starts a log in a new file, for `calltap tools audit` to read.
pub fn keep_patch_log(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    // A second call keeps the first log.
    let _ = LOG.set(Mutex::new(BufWriter::new(file)));
    Ok(())
}

/// Whether a log is kept.
pub(crate) fn is_kept() -> bool {
    LOG.get().is_some()
}

/// Adds entries if a log is kept. Each is flushed, so the log shows a batch that was cut short when
/// calltap was killed.
pub fn add(entries: impl IntoIterator<Item = Entry>) {
    let Some(log) = LOG.get() else { return };
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    // Errors are ignored: a full disk must not leave code half changed.
    for entry in entries {
        let _ = writeln!(log, "{entry}");
    }
    let _ = log.flush();
}

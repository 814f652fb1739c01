//! The log of code changes, if one is kept: `--patch-log FILE`. There is one for all that this process does, as there is one hand that changes code.

use calltap_patch::log::Entry;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

static LOG: OnceLock<Mutex<BufWriter<File>>> = OnceLock::new();

/// Keeps a log from now on, in a new file. Read by `calltap audit`.
pub fn keep_patch_log(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    // A second time there is one already.
    let _ = LOG.set(Mutex::new(BufWriter::new(file)));
    Ok(())
}

/// Is one kept?
pub fn is_kept() -> bool {
    LOG.get().is_some()
}

/// Adds entries, if one is kept. Should calltap be killed, the log shows that the batch was cut short.
pub fn add(entries: impl IntoIterator<Item = Entry>) {
    let Some(log) = LOG.get() else { return };
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    // A full disk is no reason to leave code half changed.
    for entry in entries {
        let _ = writeln!(log, "{entry}");
    }
    let _ = log.flush();
}

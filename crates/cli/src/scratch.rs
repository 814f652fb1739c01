//! Directories for the time of a command.

use anyhow::{Context, Result};
use std::path::Path;
use tempfile::TempDir;

/// Makes a directory in a place, with an unforeseen name behind `prefix`. Dropping it removes it.
pub fn directory(place: &Path, prefix: &str) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(place);
    made.with_context(|| format!("cannot create a directory in {}", place.display()))
}

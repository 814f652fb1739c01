//! The page that has the tables, each behind a mark of its own.

use crate::shell;
use anyhow::{Context, Result};
use std::fs;

const PAGE: &str = "docs/reference/coverage.md";
const END: &str = "<!-- end -->";

/// Replaces the table between a mark and the next end.
pub fn write(mark: &str, text: &str) -> Result<()> {
    let page = shell::root().join(PAGE);
    let old = fs::read_to_string(&page)?;
    let (before, rest) = old.split_once(mark).with_context(|| format!("{PAGE} has no {mark}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no {END} behind {mark}"))?;
    fs::write(&page, format!("{before}{mark}\n{text}{END}{after}"))?;
    Ok(())
}

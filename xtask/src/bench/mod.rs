//! `cargo xtask bench`: comes with the benchmarks.

use anyhow::{Result, bail};

/// Measures.
pub fn run(_quick: bool, _write: bool) -> Result<()> {
    bail!("the benchmarks are not written yet")
}

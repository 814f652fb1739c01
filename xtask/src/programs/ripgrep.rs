//! ripgrep, a large Rust program, with room for tracing.

use super::directory;
use crate::shell;
use anyhow::Result;
use std::path::PathBuf;

/// Builds ripgrep, which takes minutes, and returns its path.
pub fn ripgrep() -> Result<PathBuf> {
    let place = directory().join("ripgrep");
    let path = place.join("bin/rg");
    if !path.is_file() {
        let mut install = shell::cargo();
        install
            .args(["install", "ripgrep", "--version", "14.1.1", "--locked", "--root"])
            .arg(&place)
            .env("CARGO_TARGET_DIR", place.join("build"))
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zpatchable-function-entry=5")
            .env("CARGO_PROFILE_RELEASE_STRIP", "none");
        shell::status(&mut install)?;
    }
    Ok(path)
}

//! C sources from crates: cargo fetches them, and does not build them.

use super::directory;
use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

const MANIFEST: &str = r#"[package]
name = "fetched"
version = "0.0.0"
edition = "2021"

[workspace]

[lib]
path = "lib.rs"

[dependencies]
lua-src = "=547.0.0"
libsqlite3-sys = "=0.30.1"
"#;

/// Returns the directory of a crate's sources.
pub fn fetch(name: &str) -> Result<PathBuf> {
    let place = directory().join("crates");
    fs::create_dir_all(&place)?;
    let manifest = place.join("Cargo.toml");
    if fs::read_to_string(&manifest).is_ok_and(|text| text != MANIFEST) || !manifest.is_file() {
        fs::write(&manifest, MANIFEST)?;
        fs::write(place.join("lib.rs"), "")?;
    }
    let mut metadata = shell::cargo();
    metadata.args(["metadata", "--quiet", "--format-version", "1", "--manifest-path"]).arg(&manifest);
    let text = shell::output(&mut metadata)?.stdout;
    let all: serde_json::Value = serde_json::from_slice(&text)?;
    let packages = all["packages"].as_array().context("cargo metadata lists no packages")?;
    let package =
        packages.iter().find(|package| package["name"] == name).context("cargo metadata does not list it")?;
    let manifest = PathBuf::from(package["manifest_path"].as_str().context("cargo metadata gives no path")?);
    Ok(manifest.parent().context("a manifest lies in a directory")?.to_path_buf())
}

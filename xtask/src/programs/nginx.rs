//! nginx, a server with several processes, with room for tracing.

use super::{debian, directory};
use crate::shell;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

const FLAGS: &str = "--with-cc-opt=-O2 -g -fpatchable-function-entry=5";

/// Builds nginx from Debian's source package, without Debian's patches and modules, and returns its
/// path.
pub fn nginx() -> Result<PathBuf> {
    let place = directory().join("src/nginx");
    let upstream = place.join("upstream");
    let path = upstream.join("objs/nginx");
    if !path.is_file() {
        if !shell::have("make") {
            bail!("no make here, which builds nginx");
        }
        debian::source("nginx", &place)?;
        let prefix = format!("--prefix={}", place.join("run").display());
        shell::output(
            Command::new("sh")
                .args(["./configure", FLAGS, &prefix, "--without-http_rewrite_module"])
                .current_dir(&upstream),
        )?;
        shell::output(Command::new("make").arg("-j2").current_dir(&upstream))?;
    }
    Ok(path)
}

//! `cargo xtask package`: packages the crates as for a registry, and checks that calltap builds
//! from them in a directory without the project.

use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that are not published.
const OWN: [&str; 4] = ["xtask", "calltap-e2e", "calltap-fuzz", "calltap-libfuzzer"];

/// Packages all crates, unpacks them elsewhere, and checks the command line there.
pub fn run() -> Result<()> {
    let crates = crates()?;
    let elsewhere = tempfile::tempdir().context("a directory for the unpacked crates")?;
    let patches = unpack(&crates, elsewhere.path())?;
    for name in ["calltap-cli", "calltap-c"] {
        check(name, elsewhere.path(), &patches)?;
    }
    println!("{} crates, of which calltap and the library build without the project", crates.len());
    Ok(())
}

/// Makes the packages, and returns their paths.
fn crates() -> Result<Vec<PathBuf>> {
    let place = shell::target().join("package");
    let _ = fs::remove_dir_all(&place);
    let mut package = shell::cargo();
    package.args(["package", "--quiet", "--workspace", "--allow-dirty", "--no-verify"]);
    for name in OWN {
        package.args(["--exclude", name]);
    }
    shell::output(&mut package)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&place).with_context(|| place.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "crate") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Unpacks all packages, and returns a cargo configuration that replaces the registry's crates by
/// them.
fn unpack(crates: &[PathBuf], to: &Path) -> Result<PathBuf> {
    let mut patches = String::from("[patch.crates-io]\n");
    for path in crates {
        shell::output(Command::new("tar").arg("-xzf").arg(path).arg("-C").arg(to))?;
        let directory = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = directory.strip_suffix(concat!("-", env!("CARGO_PKG_VERSION"))).unwrap_or(&directory);
        patches += &format!("{name} = {{ path = {:?} }}\n", to.join(&directory).display().to_string());
    }
    let file = to.join("patches.toml");
    fs::write(&file, patches)?;
    Ok(file)
}

/// Checks one of the unpacked crates; its dependencies were compiled for the project already.
fn check(name: &str, within: &Path, patches: &Path) -> Result<()> {
    let directory = within.join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
    let mut check = shell::cargo();
    check.current_dir(&directory).args(["check", "--release", "--quiet", "--config"]).arg(patches);
    shell::output(check.arg("--target-dir").arg(shell::target()).env_remove("CARGO_TARGET_DIR"))
        .map(drop)
        .with_context(|| format!("{name}, packaged"))
}

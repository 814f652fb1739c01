//! `cargo xtask programs`: fetches real programs, and builds them with each variant of room for
//! tracing.
//!
//! Sources come from Debian's source packages where apt can fetch them (the sqlite3 shell and the
//! lua interpreter unchanged), else from crates (with small drivers, under `xtask/programs/`).
//! Existing files are used again.

mod compile;
mod crates;
mod debian;
mod nginx;
mod ripgrep;
mod sources;

pub use compile::{Build, Compiler, Variant, build, build_all, compile, smallest_lua};
pub use debian::source;
pub use nginx::nginx;
pub use ripgrep::ripgrep;
pub use sources::{Origin, Program};

use crate::shell;
use anyhow::{Result, bail};
use std::path::PathBuf;

/// Returns the directory of the programs.
pub fn directory() -> PathBuf {
    shell::target().join("programs")
}

/// Runs `cargo xtask programs [NAME...]`.
pub fn command(names: &[&str]) -> Result<()> {
    let mut wanted = Vec::new();
    let (mut rust, mut server) = (false, false);
    for name in if names.is_empty() { &["lua", "sqlite3"] } else { names } {
        match *name {
            "lua" => wanted.push(Program::Lua),
            "sqlite3" => wanted.push(Program::Sqlite),
            "ripgrep" => rust = true,
            "nginx" => server = true,
            other => bail!("no program '{other}' (there are: lua, sqlite3, ripgrep, nginx)"),
        }
    }
    let variants = [Variant::Bare, Variant::Nop, Variant::Pg, Variant::Fentry];
    let mut builds = Vec::new();
    for program in wanted {
        builds.extend(variants.map(|variant| (program, Build { compiler: Compiler::Gcc, variant })));
        if shell::have(Compiler::Clang.tools()[0]) {
            builds.push((program, Build { compiler: Compiler::Clang, variant: Variant::Nop }));
        } else {
            println!("{}: no {} here, so no build with it", program.name(), Compiler::Clang.tools()[0]);
        }
    }
    for path in build_all(&builds, Origin::Any)? {
        println!("{}", path.display());
    }
    if rust {
        println!("{}", ripgrep()?.display());
    }
    if server {
        println!("{}", nginx()?.display());
    }
    Ok(())
}

//! Call counts of real programs equal callgrind's, in every build.

use anyhow::{Result, ensure};
use calltap_e2e::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::oracle::{Case, have_valgrind};
use xtask::programs::{self, Build, Compiler, Program, Variant};
use xtask::shell;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/oracle").join(name)
}

/// Returns the builds for which this machine has compilers.
fn builds() -> Vec<Build> {
    let mut builds = [Variant::Nop, Variant::Pg, Variant::Fentry, Variant::Bare].map(Build::gcc).to_vec();
    if shell::have(Compiler::Clang.tools()[0]) {
        builds.push(Build { compiler: Compiler::Clang, variant: Variant::Nop });
    } else {
        skipped(&format!("builds of {}: not here", Compiler::Clang.tools()[0]));
    }
    builds
}

/// Compares one build of sqlite: callgrind takes a minute for each. lua is compared in all builds.
fn sqlite(variant: Variant) -> Result<()> {
    if !have_valgrind() {
        return Ok(());
    }
    // A failing statement is part of the workload; the shell would exit with an error there.
    let input = std::fs::read_to_string(source("workload.sql"))?.replace("SELECT nothing FROM rich;\n", "");
    let program = programs::build(Program::Sqlite, Build::gcc(variant))?;
    Case { program, arguments: &[], input: &input, functions: 400, calls: 200_000 }.check()
}

#[test]
fn sqlite_unmodified() -> Result<()> {
    sqlite(Variant::Bare)
}

#[test]
fn sqlite_with_room() -> Result<()> {
    sqlite(Variant::Nop)
}

#[test]
fn lua() -> Result<()> {
    if !have_valgrind() {
        return Ok(());
    }
    let script = source("bench.lua").display().to_string();
    for build in builds() {
        let program = programs::build(Program::Lua, build)?;
        Case { program, arguments: &[&script], input: "", functions: 250, calls: 500_000 }.check()?;
    }
    Ok(())
}

#[test]
fn cpp_exceptions_in_threads() -> Result<()> {
    if !have_valgrind() {
        return Ok(());
    }
    for build in builds() {
        if !shell::have(build.compiler.tools()[1]) {
            skipped(&format!("exceptions of {}: not here", build.compiler.tools()[1]));
            continue;
        }
        // Callgrind would count a jump to a function's cold part and back as two calls.
        let split: &[&str] = if build.compiler == Compiler::Gcc {
            &["-O2", "-fno-reorder-blocks-and-partition"]
        } else {
            &["-O2"]
        };
        let program = programs::compile(&source("throws.cpp"), build, split)?;
        Case { program, arguments: &[], input: "", functions: 15, calls: 50_000 }.check()?;
    }
    Ok(())
}

#[test]
fn rust_panics_in_threads() -> Result<()> {
    if !have_valgrind() {
        return Ok(());
    }
    let room = "-Zpatchable-function-entry=5";
    // Unmodified, the standard library is traced as well, and the scheduler decides how often its
    // locks are contended, unless there is one thread at a time.
    for (name, flags, arguments) in [
        ("0", &["-Copt-level=0", room][..], &[][..]),
        ("2", &["-Copt-level=2", room], &[]),
        ("bare", &["-Copt-level=3"], &["one-by-one"]),
    ] {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = place.join(format!("panics-{name}"));
        let mut rustc = Command::new("rustc");
        rustc.env("RUSTC_BOOTSTRAP", "1").arg("--edition=2021").args(flags);
        rustc.arg("-o").arg(&program).arg(source("panics.rs"));
        let output = rustc.output()?;
        ensure!(output.status.success(), "{rustc:?}: {}", String::from_utf8_lossy(&output.stderr));
        Case { program, arguments, input: "", functions: 15, calls: 50_000 }.check()?;
    }
    Ok(())
}

//! `cargo xtask demo`: records a real program and shows the trace, on a machine with only Rust and
//! gcc.

use crate::programs::{Build, Origin, Program, Variant, build_all};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds, records and shows.
pub fn run() -> Result<()> {
    if !shell::have("gcc") {
        bail!("no gcc here: the demo compiles lua with it");
    }
    say(
        "Building calltap, without optimization: cargo build --profile light. With this command itself that takes some three and a half minutes of processor time, and 760 MB",
    );
    let calltap = short(&shell::build_calltap_in("light")?);
    say("Building lua 5.4 with room for tracing: gcc -O2 -fpatchable-function-entry=5");
    let lua = build_all(&[(Program::Lua, Build::gcc(Variant::Nop))], Origin::Crates)?.remove(0);
    let place = shell::target().join("demo");
    fs::create_dir_all(&place).with_context(|| format!("creating {}", place.display()))?;
    fs::copy(&lua, place.join("lua")).context("putting lua into target/demo/")?;
    let (lua, file) =
        (short(&place.join("lua")), |name: &str| short(&place.join(name)).display().to_string());
    let data = file("lua.data");
    let script = "examples/words.lua";
    let (svg, perfetto) = (file("flame.svg"), file("trace.perfetto"));

    say(
        "Recording every call of lua while it runs a script. The script prints as always; lines that begin with 'calltap:' are calltap's",
    );
    show(Command::new(&calltap).args(["record", "-o", &data, "--"]).arg(&lua).arg(script))?;
    say("Where the time went, by function");
    show(Command::new(&calltap).args(["report", "-n", "15", "-i", &data]))?;
    say("What happened, call by call (the first 30 lines)");
    show(Command::new(&calltap).args(["replay", "-n", "30", "-i", &data]))?;
    say("A flame graph, and a trace for Perfetto's timeline");
    show(Command::new(&calltap).args(["export", "--to", "flamegraph", "-o", &svg, "-i", &data]))?;
    show(Command::new(&calltap).args(["export", "--to", "perfetto", "-o", &perfetto, "-i", &data]))?;

    println!();
    let width = [&data, &svg, &perfetto].map(String::len).into_iter().max().unwrap_or_default();
    println!("  {data:width$}  the recording: calltap report, replay, graph, export and info read it");
    println!("  {svg:width$}  a flame graph: open it in a browser");
    println!("  {perfetto:width$}  a timeline: open it at https://ui.perfetto.dev");
    println!();
    println!("Your own program, as it is (better still: compiled with -fpatchable-function-entry=5):");
    println!("  {} record -- ./program", calltap.display());
    println!("and with all optimization, for daily use:");
    println!("  cargo install --path crates/cli");
    Ok(())
}

fn say(text: &str) {
    println!("\n== {text}");
}

/// Prints a command and runs it in the project's directory.
fn show(command: &mut Command) -> Result<()> {
    println!("$ {}", shell::line(command));
    shell::status(command.current_dir(shell::root()))
}

/// Returns a path as a user types it in the project's directory.
fn short(path: &Path) -> PathBuf {
    path.strip_prefix(shell::root()).unwrap_or(path).to_path_buf()
}

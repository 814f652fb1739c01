//! `cargo xtask ci`: everything that has to pass before a change lands, step by step, with the time that each takes.

use crate::shell;
use anyhow::Result;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is run in the project's directory, cheap steps first. Where programs are generated at random, the seed is fixed: what fails here fails again.
const STEPS: [&str; 13] = [
    "cargo fmt --all --check",
    "cargo fmt --manifest-path agent/Cargo.toml --check",
    "cargo fmt --manifest-path fuzz/Cargo.toml --check",
    "cargo clippy --manifest-path agent/Cargo.toml --quiet --release -- -D warnings",
    "cargo clippy --manifest-path agent/Cargo.toml --quiet --release --features placed -- -D warnings",
    "cargo clippy --quiet --workspace --all-targets --release -- -D warnings",
    "env RUSTDOCFLAGS=-Dwarnings cargo doc --quiet --workspace --lib --no-deps --release --document-private-items",
    "cargo check --quiet --release --manifest-path fuzz/Cargo.toml",
    "cargo xtask fuzz --seconds 30",
    "cargo xtask fuzz-programs --seconds 60 --seed 1",
    "cargo xtask landing --seconds 20 --seed 1",
    "cargo xtask chaos --seconds 60 --seed 1",
    // In the background a shell ignores SIGINT and SIGQUIT, and its children inherit that: the tests send both.
    "env --default-signal=INT,QUIT,HUP,PIPE cargo xtask test",
];

/// Runs all steps up to the first that fails.
pub fn run() -> Result<()> {
    let mut times = Vec::new();
    let mut done = Ok(());
    for step in STEPS {
        println!("ci: {step}");
        let start = Instant::now();
        done = shell::status(&mut command(step));
        times.push((start.elapsed(), step));
        if done.is_err() {
            break;
        }
    }
    println!();
    for (time, step) in &times {
        println!("{:>7.1} s  {step}", time.as_secs_f64());
    }
    let all: Duration = times.iter().map(|(time, _)| *time).sum();
    println!("{:>7.1} s  together", all.as_secs_f64());
    done
}

fn command(step: &str) -> Command {
    let (program, arguments) = step.split_once(' ').unwrap_or((step, ""));
    let mut command = if program == "cargo" { shell::cargo() } else { Command::new(program) };
    command.current_dir(shell::root()).args(arguments.split(' '));
    // The fuzz targets are a workspace of their own; what they build stays beside what we build.
    if step.ends_with("fuzz/Cargo.toml") {
        command.arg("--target-dir").arg(shell::target().join("libfuzzer"));
    }
    command
}

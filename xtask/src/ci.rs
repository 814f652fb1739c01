//! `cargo xtask ci`: everything that has to pass before a change lands, step by step, with the time that each takes.

use crate::shell;
use anyhow::{Result, bail};
use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

/// A step, named as its command is typed in the project's directory.
type Step = &'static [&'static str];

/// Cheap ones first. Where a program is generated at random, the seed is fixed: what fails here fails again.
const STEPS: [Step; 11] = [
    &["cargo", "fmt", "--all", "--check"],
    &["cargo", "fmt", "--manifest-path", "agent/Cargo.toml", "--check"],
    &[
        "cargo",
        "clippy",
        "--manifest-path",
        "agent/Cargo.toml",
        "--quiet",
        "--release",
        "--",
        "-D",
        "warnings",
    ],
    &[
        "cargo",
        "clippy",
        "--manifest-path",
        "agent/Cargo.toml",
        "--quiet",
        "--release",
        "--features",
        "placed",
        "--",
        "-D",
        "warnings",
    ],
    &["cargo", "clippy", "--quiet", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"],
    &[
        "env",
        "RUSTDOCFLAGS=-D warnings",
        "cargo",
        "doc",
        "--quiet",
        "--workspace",
        "--lib",
        "--no-deps",
        "--release",
        "--document-private-items",
    ],
    &["cargo", "check", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml"],
    &["cargo", "xtask", "fuzz", "--seconds", "30"],
    &["cargo", "xtask", "fuzz-programs", "--seconds", "60", "--seed", "1"],
    &["cargo", "xtask", "landing", "--seconds", "20", "--seed", "1"],
    &["cargo", "xtask", "chaos", "--seconds", "60", "--seed", "1"],
];

/// In the background a shell ignores SIGINT and SIGQUIT, and its children inherit that: the tests send both.
const TESTS: Step = &["env", "--default-signal=INT,QUIT,HUP,PIPE", "cargo", "xtask", "test"];

/// Runs all steps; an error at the first that fails, or after the tests.
pub fn run() -> Result<()> {
    let mut times = Vec::new();
    let mut failed = None;
    for step in STEPS.iter().chain([&TESTS]) {
        let start = Instant::now();
        println!("ci: {}", step.join(" "));
        let done = shell::status(&mut command(step));
        times.push((start.elapsed(), step));
        if let Err(error) = done {
            failed = Some(error);
            break;
        }
    }
    println!();
    for (time, step) in &times {
        println!("{:>7.1} s  {}", time.as_secs_f64(), step.join(" "));
    }
    let all: Duration = times.iter().map(|(time, _)| *time).sum();
    println!("{:>7.1} s  together", all.as_secs_f64());
    match failed {
        Some(error) => bail!("{error:#}"),
        None => Ok(()),
    }
}

fn command(step: Step) -> Command {
    let (program, arguments) = step.split_first().expect("a step has a program");
    let mut command = match *program {
        "cargo" => shell::cargo(),
        program => {
            let mut command = Command::new(program);
            command.current_dir(shell::root());
            command
        }
    };
    command.args(arguments);
    // The fuzz targets are a workspace of their own; what they build stays beside what we build.
    if arguments.contains(&"fuzz/Cargo.toml") {
        command.arg("--target-dir").arg(shell::target().join("libfuzzer"));
    }
    // What cargo has set for us is not meant for other workspaces.
    for (name, _) in env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST"))
        {
            command.env_remove(name);
        }
    }
    command
}

//! `cargo xtask ci`: all checks that must pass before a change lands, step by step, with the time
//! of each.

use crate::{book, shell};
use anyhow::{Result, anyhow};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Checks the crates that read, analyse and show traces for another machine: a trace of x86-64 can
/// be read there.
const OTHER_MACHINE: &str = "cargo check --quiet --target aarch64-unknown-linux-gnu -p calltap-names -p calltap-abi -p calltap-sites -p calltap-patch -p calltap-values \
     -p calltap-trace -p calltap-selection -p calltap-analysis -p calltap-export -p calltap-dataset -p calltap-import -p calltap-ringbuffer -p calltap-tracefs \
     -p calltap-recordmcount";

/// The steps, run in the project's directory, cheap ones first. Where programs are generated, the
/// seed is fixed, so that a failure repeats.
const STEPS: [&str; 15] = [
    "cargo fmt --all --check",
    "cargo fmt --manifest-path agent/Cargo.toml --check",
    "cargo clippy --manifest-path agent/Cargo.toml --quiet --release -- -D warnings",
    "cargo clippy --manifest-path agent/Cargo.toml --quiet --release --features attached -- -D warnings",
    "cargo clippy --manifest-path agent/Cargo.toml --quiet --release --features placed -- -D warnings",
    "cargo clippy --quiet --workspace --all-targets --release --features calltap-libfuzzer/check -- -D warnings",
    "env RUSTDOCFLAGS=-Dwarnings cargo doc --quiet --workspace --lib --no-deps --release --document-private-items",
    "cargo xtask book",
    OTHER_MACHINE,
    "cargo xtask package",
    "cargo xtask fuzz --seconds 3",
    "cargo xtask fuzz-programs --seconds 40 --seed 1",
    "cargo xtask landing --seconds 20 --seed 1",
    "cargo xtask chaos --seconds 60 --seed 1",
    // A shell's background job ignores SIGINT and SIGQUIT, and children inherit that: the tests
    // send both.
    "env --default-signal=INT,QUIT,HUP,PIPE cargo xtask test",
];

/// Runs the steps up to the first that fails.
pub fn run() -> Result<()> {
    let mut times = Vec::new();
    let mut done = Ok(());
    for step in STEPS {
        if let Some(lacking) = lacking(step) {
            println!("ci: SKIPPED: {step}: {lacking}");
            if std::env::var_os("CALLTAP_NO_SKIP").is_some_and(|value| value == "1") {
                done = Err(anyhow!("{lacking}, and CALLTAP_NO_SKIP=1 does not allow to skip a step"));
                break;
            }
            continue;
        }
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

/// Returns the tool that a step needs and that is not installed.
fn lacking(step: &str) -> Option<&'static str> {
    match step {
        "cargo xtask book" => book::mdbook().is_none().then_some("no mdbook"),
        OTHER_MACHINE if !shell::have("aarch64-linux-gnu-gcc") => {
            Some("no aarch64-linux-gnu-gcc, which builds zstd")
        }
        OTHER_MACHINE => {
            let target = Command::new("rustc")
                .args(["--print", "target-libdir", "--target", "aarch64-unknown-linux-gnu"])
                .output();
            let place = target.map(|run| String::from_utf8_lossy(&run.stdout).trim().to_owned());
            let is_there = place.is_ok_and(|place| !place.is_empty() && Path::new(&place).exists());
            (!is_there).then_some("no standard library: rustup target add aarch64-unknown-linux-gnu")
        }
        _ => None,
    }
}

fn command(step: &str) -> Command {
    let (program, arguments) = step.split_once(' ').unwrap_or((step, ""));
    let mut command = if program == "cargo" { shell::cargo() } else { Command::new(program) };
    command.current_dir(shell::root()).args(arguments.split_whitespace());
    command
}

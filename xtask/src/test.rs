//! `cargo xtask test`: runs every test of the workspace, and lists the tests that were skipped on
//! this machine.

use crate::{shell, watched};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, thread};

/// Messages of the tests.
#[derive(Default)]
struct Messages {
    skipped: Vec<String>,
    took: Vec<String>,
}

/// Builds calltap, runs the tests, counts the skipped ones, and prints how long each test binary
/// took.
pub fn run(long: bool) -> Result<()> {
    let calltap = shell::build_calltap()?;
    let messages = Mutex::new(Messages::default());
    let mut rounds = vec![Vec::new()];
    if long {
        // Doc tests are left out: `ignore` has another meaning there.
        rounds.push(vec!["--lib", "--bins", "--tests", "--", "--ignored"]);
    }
    let mut failed = Vec::new();
    for arguments in rounds {
        let mut command = shell::cargo();
        command.args(["test", "--workspace", "--release", "--no-fail-fast"]);
        command.arg("--config").arg(watched::runner()?).args(arguments);
        command.env("CALLTAP_BIN", &calltap);
        if std::io::stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        if !follow(&mut command, &messages)? {
            failed.push(shell::line(&command));
        }
    }
    let Messages { mut skipped, took } = messages.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\ntest binaries that took longest:");
    longest(took).iter().for_each(|line| println!("  {line}"));
    let count = skipped.len();
    skipped.sort();
    skipped.dedup();
    println!("\n{count} SKIPPED{}", if count == 0 { "" } else { ":" });
    for line in skipped {
        println!("  {line}");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    if count > 0 && env::var_os("CALLTAP_NO_SKIP").is_some_and(|value| value == "1") {
        bail!("{count} skipped, and CALLTAP_NO_SKIP=1 does not allow that");
    }
    Ok(())
}

/// Runs cargo, and collects the messages of the tests. False if it fails. A process that a test
/// leaves behind holds the pipes of [`watched`], not these.
fn follow(command: &mut Command, messages: &Mutex<Messages>) -> Result<bool> {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start cargo")?;
    let (out, err) = (child.stdout.take().context("piped")?, child.stderr.take().context("piped")?);
    thread::scope(|scope| {
        scope.spawn(|| pass(out, &mut std::io::stdout(), messages));
        scope.spawn(|| pass(err, &mut std::io::stderr(), messages));
    });
    Ok(child.wait()?.success())
}

/// Returns those of the lines `seconds s: name` with a second or more, the longest first.
fn longest(took: Vec<String>) -> Vec<String> {
    let seconds =
        |line: &str| line.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0);
    let mut long: Vec<String> = took.into_iter().filter(|line| seconds(line) >= 1.0).collect();
    long.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    long
}

/// Passes lines on, and collects those about skipped tests and about times.
fn pass(from: impl Read, to: &mut impl Write, messages: &Mutex<Messages>) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let _ = to.write_all(&line).and_then(|()| to.write_all(b"\n")).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        // The test harness may have begun the line: `test name ... SKIPPED: why`.
        if let Some((_, why)) = text.split_once("SKIPPED: ") {
            messages.skipped.push(why.trim().to_owned());
        } else if let Some(took) = text.strip_prefix(watched::TOOK) {
            messages.took.push(took.to_owned());
        }
    }
}

//! `cargo xtask test`: runs every test of the workspace, and lists the tests that were skipped on
//! this machine.

use crate::{shell, watched};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, thread};

/// Line behind which the test harness prints the output of failed tests.
const FAILURES: &str = "failures:";
/// Beginning of the line that ends this output.
const RESULT: &str = "test result:";
/// Beginning of the output of a test that failed.
const OUTPUT: &str = "---- ";
/// Number of lines of a failed test's output that are printed once more at the end.
const MAX_LINES: usize = 12;
/// Length in characters to which these lines are cut.
const MAX_LINE_LEN: usize = 800;

/// Messages of the tests.
#[derive(Default)]
struct Messages {
    skipped: Vec<String>,
    took: Vec<String>,
    /// Lines about the tests that failed.
    failures: Vec<String>,
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
    let Messages { mut skipped, took, failures } =
        messages.into_inner().unwrap_or_else(PoisonError::into_inner);
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
        // The output of the binaries that ran later hides them, and a log of CI may be shortened.
        println!("\nfailed tests:");
        failures.iter().for_each(|line| println!("  {line}"));
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

/// Passes lines on, and collects those about skipped tests, times and failures.
fn pass(from: impl Read, to: &mut impl Write, messages: &Mutex<Messages>) {
    let mut failures = Failures::default();
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
        messages.failures.extend(failures.line(&text));
    }
}

/// Finds the output of failed tests in the output of the test harness.
#[derive(Default)]
struct Failures {
    is_inside: bool,
    /// Number of lines of the present test that are still wanted.
    wanted: usize,
}

impl Failures {
    /// Returns the part of a line that is to be printed once more.
    fn line(&mut self, line: &str) -> Option<String> {
        if line == FAILURES || line.starts_with(RESULT) {
            (self.is_inside, self.wanted) = (line == FAILURES, 0);
        } else if self.is_inside && line.starts_with(OUTPUT) {
            self.wanted = MAX_LINES;
        }
        let is_wanted = self.wanted > 0 && !line.trim().is_empty();
        self.wanted -= usize::from(is_wanted);
        is_wanted.then(|| line.chars().take(MAX_LINE_LEN).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_failed_tests_is_kept_up_to_its_limit() {
        let long = "x".repeat(2 * MAX_LINE_LEN);
        let many = (0..2 * MAX_LINES).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let text = format!(
            "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\n{long}\n\n---- b stdout ----\n{many}\n\n\
             failures:\n    a\n    b\n\ntest result: FAILED. 0 passed\n\n---- c stdout ----\nc"
        );
        let mut failures = Failures::default();
        let kept: Vec<String> = text.lines().filter_map(|line| failures.line(line)).collect();
        assert_eq!(kept[..2], ["---- a stdout ----".to_owned(), "x".repeat(MAX_LINE_LEN)]);
        assert_eq!(kept[2], "---- b stdout ----");
        assert_eq!(kept.len(), 2 + MAX_LINES);
        assert_eq!(kept.last().map(String::as_str), Some((MAX_LINES - 2).to_string().as_str()));
    }
}

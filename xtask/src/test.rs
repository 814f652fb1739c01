//! `cargo xtask test`: every test of the workspace, and what could not be tested here.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::Stdio;
use std::sync::Mutex;
use std::{env, thread};

/// Builds calltap, runs the tests, counts the skipped.
pub fn run(long: bool) -> Result<()> {
    let calltap = shell::build_calltap()?;
    let skipped = Mutex::new(Vec::new());
    let mut rounds = vec![&["test", "--workspace", "--release", "--no-fail-fast"][..]];
    if long {
        // Not the doc tests: `ignore` there means another thing.
        let all = [
            "test",
            "--workspace",
            "--release",
            "--no-fail-fast",
            "--lib",
            "--bins",
            "--tests",
            "--",
            "--ignored",
        ];
        rounds.push(Box::leak(Box::new(all)));
    }
    let mut failed = Vec::new();
    for arguments in rounds {
        let mut command = shell::cargo();
        command.args(arguments).env("CALLTAP_BIN", &calltap);
        if std::io::stderr().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start cargo")?;
        let (out, err) = (child.stdout.take().context("piped")?, child.stderr.take().context("piped")?);
        thread::scope(|scope| {
            scope.spawn(|| pass(out, &mut std::io::stdout(), &skipped));
            scope.spawn(|| pass(err, &mut std::io::stderr(), &skipped));
        });
        if !child.wait()?.success() {
            failed.push(shell::line(&command));
        }
    }
    let mut skipped = skipped.into_inner().unwrap_or_default();
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

/// Passes lines on, and notes those that say something was skipped.
fn pass(from: impl Read, to: &mut impl Write, skipped: &Mutex<Vec<String>>) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let _ = to.write_all(&line).and_then(|()| to.write_all(b"\n")).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        // The test harness may have begun the line: `test name ... SKIPPED: why`.
        if let (Some((_, why)), Ok(mut all)) = (text.split_once("SKIPPED: "), skipped.lock()) {
            all.push(why.trim().to_owned());
        }
    }
}

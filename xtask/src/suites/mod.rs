//! `cargo xtask suites`: programs as distributions ship them run their own tests, alone and with
//! all their functions traced. Test by test, the outcome must be the same.
//!
//! Both runs use the same paths, and every test begins in an empty directory, so that outputs can
//! be compared unchanged. A test whose output differs in a second run alone shows nothing: it is
//! counted, and left out.

pub mod everyday;
mod list;

use crate::{programs, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The tests of a program.
struct Suite {
    name: &'static str,
    /// Files that must exist, with advice for a missing one.
    needs: &'static [(&'static str, &'static str)],
    /// Returns the commands that are traced, with their programs.
    commands: fn() -> Vec<(String, PathBuf)>,
    /// Flags of the recording.
    flags: &'static str,
    /// Returns the tests; the upstream sources are put into the directory.
    tests: fn(&Path) -> Result<Vec<Test>>,
    /// Whether a line is compared; the exit status always is.
    compared: fn(&str) -> bool,
}

/// A shell script. It finds the commands in `$BIN`, its files in `$SOURCE`, and calltap as
/// `$CALLTAP`.
struct Test {
    name: String,
    script: String,
}

/// Time limit in seconds, longer than any test takes when traced on a loaded machine.
const TIME_LIMIT_S: &str = "600";

/// Runs these suites, or all.
pub fn run(only: &[&str]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|name| list::ALL.iter().all(|suite| suite.name != **name)) {
        let known: Vec<&str> = list::ALL.iter().map(|suite| suite.name).collect();
        bail!("no suite '{unknown}' (there are: {})", known.join(", "));
    }
    let calltap = shell::calltap()?;
    let place = shell::target().join("suites");
    let mut rows =
        "| program | tests | same outcome | differ alone, too | different |\n|---|--:|--:|--:|---|\n"
            .to_owned();
    let mut failed = Vec::new();
    for suite in list::ALL.iter().filter(|suite| only.is_empty() || only.contains(&suite.name)) {
        let missing = suite.needs.iter().find(|(path, _)| !Path::new(path).exists());
        if let Some((path, advice)) = missing {
            eprintln!("SKIPPED: {}: no {path}: {advice}", suite.name);
            continue;
        }
        let result = compare(suite, &calltap, &place).with_context(|| suite.name.to_owned())?;
        let different =
            if result.different.is_empty() { "none".to_owned() } else { result.different.join(", ") };
        rows += &format!(
            "| {} | {} | {} | {} | {different} |\n",
            suite.name, result.tests, result.same, result.unsteady
        );
        failed.extend(result.different.iter().map(|test| format!("{}: {test}", suite.name)));
    }
    print!("{rows}");
    if failed.is_empty() { Ok(()) } else { bail!("other outcomes where traced: {}", failed.join(", ")) }
}

/// The result of a suite.
struct Outcome {
    tests: usize,
    same: usize,
    unsteady: usize,
    different: Vec<String>,
}

fn compare(suite: &Suite, calltap: &Path, place: &Path) -> Result<Outcome> {
    let place = place.join(suite.name);
    fs::create_dir_all(&place)?;
    let tests = (suite.tests)(&place.join("source"))?;
    let record = format!("{} record -q --max-wait 20s {} -o /dev/null --", calltap.display(), suite.flags);
    for (directory, under) in [("alone", ""), ("traced", &*record)] {
        wrap(suite, &place.join(directory), under)?;
    }
    let mut result = Outcome { tests: tests.len(), same: 0, unsteady: 0, different: Vec::new() };
    for test in tests {
        let run = |how: &str| once(suite, &test, &place, how, calltap);
        let (alone, traced) = (run("alone")?, run("traced")?);
        if alone == traced {
            result.same += 1;
        } else if run("alone")? != alone {
            result.unsteady += 1;
        } else {
            eprintln!("{}: {}: {}", suite.name, test.name, difference(&alone, &traced));
            result.different.push(test.name);
        }
    }
    Ok(result)
}

/// Writes the suite's commands, each running its program under `under`.
fn wrap(suite: &Suite, directory: &Path, under: &str) -> Result<()> {
    (suite.commands)().iter().try_for_each(|(name, program)| wrap_one(directory, name, program, under))
}

/// Writes a command that runs a program under another.
fn wrap_one(directory: &Path, name: &str, program: &Path, under: &str) -> Result<()> {
    fs::create_dir_all(directory)?;
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\nexec {under} {} \"$@\"\n", program.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Runs a test, and returns the compared lines of its output and its exit status.
fn once(suite: &Suite, test: &Test, place: &Path, how: &str, calltap: &Path) -> Result<String> {
    let (work, bin) = (place.join("work"), place.join("bin"));
    for old in [&work, &bin] {
        let is_link = old.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if is_link {
            fs::remove_file(old)?;
        } else if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    fs::create_dir_all(&work)?;
    symlink(place.join(how), &bin)?;
    let mut command = Command::new("timeout");
    command.args(["-k", "10", TIME_LIMIT_S, "setsid", "-w", "sh", "-c", &test.script]).current_dir(&work);
    command
        .env("BIN", &bin)
        .env("SOURCE", place.join("source"))
        .env("LC_ALL", "C.UTF-8")
        .env("TMPDIR", &work);
    if how == "traced" {
        command.env("CALLTAP", calltap);
    }
    // The output goes into a file: a process that a test leaves running would keep a pipe open.
    let said = place.join(format!("{how}.log"));
    let log = fs::File::create(&said)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let status = command.status().with_context(|| shell::line(&command))?;
    let said = String::from_utf8_lossy(&fs::read(&said)?).into_owned();
    let lines =
        said.lines().filter(|line| (suite.compared)(line)).fold(String::new(), |all, line| all + line + "\n");
    Ok(format!("{lines}{status}\n"))
}

/// Returns the first line that differs.
pub fn difference(alone: &str, traced: &str) -> String {
    let mut pairs =
        alone.lines().map(Some).chain(std::iter::repeat(None)).zip(traced.lines().map(Some).chain([None]));
    let found = pairs.find(|(alone, traced)| alone != traced);
    found.map_or_else(String::new, |(alone, traced)| {
        format!("'{}', alone '{}'", traced.unwrap_or("nothing"), alone.unwrap_or("nothing"))
    })
}

/// Returns the upstream sources of a Debian package.
fn upstream(package: &str, into: &Path) -> Result<PathBuf> {
    let place = into.join("upstream");
    if !into.join("ready").exists() {
        programs::source(package, into)?;
        fs::write(into.join("ready"), "")?;
    }
    Ok(place)
}

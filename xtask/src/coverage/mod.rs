//! How much of programs that nobody has built for tracing can be traced: function by function, in programs and libraries as distributions ship them.

mod calls;

use crate::{programs, shell};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's packages, and the files in them that are looked at.
const PACKAGES: [(&str, &[&str]); 10] = [
    ("bash", &["bin/bash"]),
    ("python3.11-minimal", &["usr/bin/python3.11"]),
    ("libc6", &["lib/x86_64-linux-gnu/libc.so.6"]),
    ("libstdc++6", &["usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"]),
    ("redis-tools", &["usr/bin/redis-check-rdb", "usr/bin/redis-benchmark"]),
    ("nginx", &["usr/sbin/nginx"]),
    ("postgresql-15", &["usr/lib/postgresql/15/bin/postgres"]),
    ("libsqlite3-0", &["usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6"]),
    ("ripgrep", &["usr/bin/rg"]),
    ("golang-1.19-go", &["usr/lib/go-1.19/bin/go"]),
];

/// Where the table stands.
const PAGE: &str = "docs/coverage.md";
const MARKS: [&str; 2] = ["<!-- cargo xtask coverage --write -->", "<!-- end -->"];

/// Looks at these files, or at the usual ones; with `write`, into the page.
pub fn run(files: &[&str], write: bool) -> Result<()> {
    let calltap = shell::build_calltap()?;
    let mut rows = Vec::new();
    if files.is_empty() {
        for (package, paths) in PACKAGES {
            match unpacked(package) {
                Ok(place) => {
                    rows.extend(paths.iter().map(|path| (format!("{package}: {path}"), place.join(path))))
                }
                Err(error) => eprintln!("SKIPPED: {package}: {error:#}"),
            }
        }
        match programs::smallest_lua()? {
            Some(path) => rows.push(("lua, static, musl, -Os".to_owned(), path)),
            None => eprintln!("SKIPPED: no musl-gcc here"),
        }
    } else {
        rows.extend(files.iter().map(|file| ((*file).to_owned(), PathBuf::from(file))));
    }
    let mut text =
        "| file | functions | traceable | of the calls | not traceable, and why |\n|---|--:|--:|--:|---|\n"
            .to_owned();
    for (name, path) in rows {
        writeln!(text, "| {name} | {}", row(&calltap, &path)?)?;
    }
    print!("{text}");
    if write {
        let page = shell::root().join(PAGE);
        let old = fs::read_to_string(&page)?;
        let (before, rest) = old.split_once(MARKS[0]).context("no mark in the page")?;
        let (_, after) = rest.split_once(MARKS[1]).context("no end in the page")?;
        fs::write(page, format!("{before}{}\n{text}{}{after}", MARKS[0], MARKS[1]))?;
    }
    Ok(())
}

/// What `calltap sites` says of a file, summed up.
fn row(calltap: &Path, path: &Path) -> Result<String> {
    let listed = shell::output(Command::new(calltap).args(["sites", "--format", "json"]).arg(path))?;
    let functions: Vec<Value> = serde_json::from_slice(&listed.stdout)?;
    let whole = |function: &&Value| {
        !function["reason"].as_str().is_some_and(|reason| reason.starts_with("cold part"))
    };
    let functions: Vec<&Value> = functions.iter().filter(whole).collect();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for function in functions.iter().filter(|function| function["traceable"] == false) {
        *reasons.entry(kind_of(function["reason"].as_str().unwrap_or_default())).or_default() += 1;
    }
    let traceable = functions.len() - reasons.values().sum::<usize>();
    ensure!(!functions.is_empty(), "{}: no functions", path.display());
    let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let reasons: Vec<String> =
        reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let share = traceable as f64 / functions.len() as f64 * 100.0;
    let calls = match calls::share(calltap, path) {
        Some(Ok(share)) => share,
        Some(Err(error)) => {
            eprintln!("SKIPPED: calls of {}: {error:#}", path.display());
            String::new()
        }
        None => String::new(),
    };
    Ok(format!("{} | {share:.2} % | {calls} | {} |", functions.len(), reasons.join("; ")))
}

/// A reason without the numbers in it, nor what could be done about it.
fn kind_of(reason: &str) -> String {
    let reason = reason.split(';').next().unwrap_or_default();
    let words = reason
        .split(' ')
        .filter(|word| !word.contains(|c: char| c.is_ascii_digit()) && !word.starts_with("(at"));
    words.collect::<Vec<_>>().join(" ")
}

/// A package's files.
fn unpacked(package: &str) -> Result<PathBuf> {
    let place = programs::directory().join("packages").join(package);
    if !place.exists() {
        let download = programs::directory().join("packages").join(format!("{package}.part"));
        fs::create_dir_all(&download)?;
        shell::status(Command::new("apt-get").args(["download", "-qq", package]).current_dir(&download))?;
        let archive = fs::read_dir(&download)?.flatten().next().context("no package was downloaded")?.path();
        shell::status(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&place))?;
        fs::remove_dir_all(&download)?;
    }
    Ok(place)
}

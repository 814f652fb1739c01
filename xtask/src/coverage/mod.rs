//! `cargo xtask coverage`: the share of functions that can be traced in programs and libraries as
//! distributions ship them, which were not built for tracing.

mod calls;
mod globs;
mod listed;
mod page;
mod used;

use crate::{programs, shell};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's packages, with the files in them that are examined.
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

const MARK: &str = "<!-- cargo xtask coverage --write -->";

/// Runs these programs of the suite `everyday`, or all, with all functions of all their files
/// traced; with `write`, puts the tables into the page.
pub fn run_used(only: &[&str], write: bool) -> Result<()> {
    used::run(&shell::calltap()?, only, write)
}

/// Examines these files, or the usual ones; with `write`, puts the table into the page.
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
        "| file | functions | traceable | exits rewritten | calls | traceable | exits rewritten | not traceable, and why | return stub, and why |\n\
         |---|--:|--:|--:|--:|--:|--:|---|---|\n"
            .to_owned();
    for (name, path) in rows {
        writeln!(text, "| {name} | {}", row(&calltap, &path)?)?;
    }
    print!("{text}");
    if write {
        page::write(MARK, &text)?;
    }
    Ok(())
}

/// Returns the row of a file, from `calltap sites`.
fn row(calltap: &Path, path: &Path) -> Result<String> {
    let listed = shell::output(Command::new(calltap).args(["sites", "--format", "json"]).arg(path))?;
    let functions: Vec<Value> = serde_json::from_slice(&listed.stdout)?;
    let whole = |function: &&Value| {
        !function["reason_code"].as_str().is_some_and(|code| code.starts_with("cold-part"))
    };
    let functions: Vec<&Value> = functions.iter().filter(whole).collect();
    ensure!(!functions.is_empty(), "{}: no functions", path.display());
    let (can, cannot): (Vec<&Value>, Vec<&Value>) =
        functions.iter().partition(|function| function["traceable"] == true);
    let (exits, stubs): (Vec<&Value>, Vec<&Value>) =
        can.iter().partition(|function| function["exits"].is_u64());
    let share = |part: usize, all: usize| format!("{:.2} %", part as f64 / all as f64 * 100.0);
    let calls = match calls::count(calltap, path) {
        Some(Ok(calls)) => {
            let [all, can, exits] = [calls.all, calls.traceable, calls.exits].map(|n| n as usize);
            format!("{all} | {} | {}", share(can, all), share(exits, all))
        }
        Some(Err(error)) => {
            eprintln!("SKIPPED: calls of {}: {error:#}", path.display());
            "| |".to_owned()
        }
        None => "| |".to_owned(),
    };
    let count = functions.len();
    Ok(format!(
        "{count} | {} | {} | {calls} | {} | {} |",
        share(can.len(), count),
        share(exits.len(), count),
        reasons(&cannot, "reason"),
        reasons(&stubs, "exits_reason")
    ))
}

/// Returns the reasons of functions, the most frequent first.
fn reasons(functions: &[&Value], key: &str) -> String {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    let reasons = functions.iter().map(|function| function[key].as_str().unwrap_or_default());
    // For functions of Go no exits are searched, so they have no reason.
    for reason in reasons.filter(|reason| !reason.is_empty()) {
        *counted.entry(kind_of(reason)).or_default() += 1;
    }
    let mut counted: Vec<(String, usize)> = counted.into_iter().collect();
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counted: Vec<String> = counted.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    counted.join("; ")
}

/// Returns a reason without addresses and numbers, and without advice.
fn kind_of(reason: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in reason.split(';').next().unwrap_or_default().split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        match bare {
            _ if bare.starts_with("0x") => drop(words.pop_if(|last| last.trim_start_matches('(') == "at")),
            _ if !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit()) => words.push("N"),
            _ => words.push(word),
        }
    }
    words.join(" ")
}

/// Returns the directory of a package's files.
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

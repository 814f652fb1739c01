//! The share of *calls* that go to functions which can be traced, as counted by callgrind in a
//! short run.

use crate::shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The runs: a file's name, the command for it ({} is the file), and the end of the path of the
/// object whose calls are counted.
const RUNS: [(&str, &[&str], &str); 7] = [
    ("bash", &["{}", "--norc", "-c", SHELL], "/bash"),
    ("python3.11", &["{}", "-S", "-c", PYTHON], "/python3.11"),
    ("libc.so.6", &["/bin/bash", "--norc", "-c", SHELL], "/libc.so.6"),
    ("postgres", &["{}", "--describe-config"], "/postgres"),
    ("libsqlite3.so.0.8.6", &["sqlite3", ":memory:", SQL], "/libsqlite3.so.0.8.6"),
    ("rg", &["{}", "-j1", "-n", "str(c|n)[a-z]+", "/usr/include"], "/rg"),
    ("lua-musl", &["{}", "-e", LUA], "/lua-musl"),
];

const SHELL: &str = "for i in 1 2 3 4 5 6 7 8 9; do x=$((i * 7)); f() { local a=$1; echo \"<${a//4/four}>\"; }; [[ $x =~ 4 ]] && f $x; done; (exit 3); :";
const PYTHON: &str = "import json, re; d = {str(n): [n, {'x': n * 1.5}] for n in range(300)}; s = json.dumps(d, indent=1); \
    assert json.loads(s) == d; print(len(re.findall(r'\\d+\\.\\d', s)), sorted(s.split())[:3])";
const SQL: &str = "create table t(a, b); with recursive c(n) as (select 1 union all select n + 1 from c where n < 2000) \
    insert into t select n, n * 7 % 13 from c; create index i on t(b); select b, count(*), sum(a) from t group by b having b > 3;";
const LUA: &str = "local t = {} for i = 1, 2000 do t[i] = tostring(i * 7 % 13) end table.sort(t) print(#table.concat(t, ','):gsub('1', 'one'))";

/// Numbers of calls into a file.
#[derive(Default)]
pub struct Calls {
    /// Calls of all functions.
    pub all: u64,
    /// Calls of functions that can be traced.
    pub traceable: u64,
    /// Calls of functions whose exits are rewritten.
    pub exits: u64,
}

/// Counts the calls into a file; `None` if there is no run for it.
pub fn count(calltap: &Path, file: &Path) -> Option<Result<Calls>> {
    let name = file.file_name()?.to_str()?;
    let (_, words, object) = RUNS.into_iter().find(|(known, ..)| *known == name)?;
    if !shell::have("valgrind") || words[0] != "{}" && !shell::have(words[0]) && !Path::new(words[0]).exists()
    {
        eprintln!("SKIPPED: calls of {name}: no valgrind here, or no {}", words[0]);
        return None;
    }
    Some(measure(calltap, file, words, object))
}

fn measure(calltap: &Path, file: &Path, words: &[&str], object: &str) -> Result<Calls> {
    let profile = shell::target().join("coverage.callgrind");
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--quiet",
        "--dump-instr=yes",
        "--compress-pos=no",
        "--compress-strings=no",
    ]);
    valgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    let file = file.to_string_lossy();
    valgrind.args(words.iter().map(|word| if *word == "{}" { &file[..] } else { word }));
    shell::output(&mut valgrind)?;
    let profile = fs::read_to_string(&profile)?;
    let (path, calls) = calls_into(&profile, object).context("no calls were counted")?;
    let listed = shell::output(Command::new(calltap).args(["sites", "--format", "json"]).arg(&path))?;
    let functions: Vec<Value> = serde_json::from_slice(&listed.stdout)?;
    let number = |function: &Value, key: &str| function[key].as_u64().unwrap_or_default();
    let functions: BTreeMap<u64, &Value> =
        functions.iter().map(|function| (number(function, "address"), function)).collect();
    let mut counted = Calls::default();
    for (at, calls) in calls {
        // The linker's stubs are in no function.
        let Some((start, function)) = functions.range(..=at).next_back() else { continue };
        let is_entry = at == *start;
        if is_entry || at < start + number(function, "size") {
            counted.all += calls;
            counted.traceable += if is_entry && function["traceable"] == true { calls } else { 0 };
            counted.exits += if is_entry && function["exits"].is_u64() { calls } else { 0 };
        }
    }
    Ok(counted)
}

/// Returns the path of the object with this end, and the number of calls by address.
fn calls_into(profile: &str, object: &str) -> Option<(PathBuf, BTreeMap<u64, u64>)> {
    let (mut path, mut calls) = (None, BTreeMap::new());
    let (mut caller, mut callee) = ("", None);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            caller = name;
        } else if let Some(name) = line.strip_prefix("cob=") {
            callee = Some(name);
        } else if let Some(rest) = line.strip_prefix("calls=") {
            let into = callee.take().unwrap_or(caller);
            if into.ends_with(object) {
                let mut words = rest.split(' ');
                let count: u64 = words.next()?.parse().ok()?;
                let at = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
                *calls.entry(at).or_default() += count;
                path = Some(PathBuf::from(into));
            }
        }
    }
    Some((path?, calls))
}

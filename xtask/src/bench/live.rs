//! Switching functions of a running program: the benchmark of `crates/session`, which is its own program.

use super::Bench;
use crate::shell;
use anyhow::Result;

/// The table.
pub fn table(_: &Bench) -> Result<String> {
    let mut bench = shell::cargo();
    bench.args(["bench", "--quiet", "--package", "calltap-process", "--bench", "switch"]);
    let rows = String::from_utf8(shell::output(&mut bench)?.stdout)?;
    Ok(format!(
        "### Switching functions of a running program\n\n\
         One thread calls the functions meanwhile. Expected of 100,000: 15 ms the first time, which makes their pages private, and 5 ms later; of one: 200 us. \
         A thread that calls them must not be delayed by more than 50 us at p99.9, beside a run without switching.\n\n{}\n",
        rows.trim()
    ))
}

//! Switching functions of a running program: runs the benchmark `switch` of `crates/process`.

use super::Bench;
use crate::shell;
use anyhow::Result;

/// Returns the table.
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

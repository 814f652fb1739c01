//! The time for which attaching and detaching stop a program that was not built for tracing, beside
//! the time that stopping all its threads takes by itself.

use super::{Bench, median};
use crate::shell;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const THREADS: [(&str, &str); 3] = [("1", "1"), ("100", "100"), ("1,000", "1000")];

/// The program that is stopped. It ends when its input does.
struct Stopped(Child);

impl Stopped {
    fn start(program: &Path, threads: &str) -> Result<Stopped> {
        let mut child =
            Command::new(program).arg(threads).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        Ok(Stopped(child))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The measurements, in milliseconds.
#[derive(Default)]
struct Measurements {
    limit: Vec<f64>,
    attach: Vec<f64>,
    detach: Vec<f64>,
}

fn built(bench: &Bench, name: &str) -> Result<PathBuf> {
    let program = bench.place.join(name);
    let source = shell::root().join("benches").join(format!("{name}.c"));
    shell::status(Command::new("gcc").args(["-O2", "-o"]).args([&program, &source]).arg("-lpthread"))?;
    Ok(program)
}

/// Returns the time in front of a word of `calltap: stopped for 3.03 ms to attach, 3.58 ms to
/// detach (2 threads)`.
fn time_before(said: &str, what: &str) -> Option<f64> {
    let before = said.split_once(what)?.0;
    let (number, unit) = before.trim_end().rsplit_once(' ')?;
    let number: f64 = number.rsplit(' ').next()?.parse().ok()?;
    match unit {
        "us" => Some(number / 1e3),
        "ms" => Some(number),
        "s" => Some(number * 1e3),
        _ => None,
    }
}

fn measure(bench: &Bench, program: &Path, limit: &Path, threads: &str) -> Result<Measurements> {
    let stopped = Stopped::start(program, threads)?;
    let pid = stopped.0.id().to_string();
    let mut row = Measurements::default();
    // An additional first round fills the cache with the program's functions.
    for round in 0..=bench.rounds {
        let mut alone = Command::new(limit);
        let said = shell::output(alone.arg(&pid))?.stdout;
        let alone: f64 = String::from_utf8_lossy(&said).trim().parse()?;
        let mut record = Command::new(&bench.calltap);
        record.args(["record", "-F", "f_*", "--duration", "0.3", "-o", "/dev/null", "-p", &pid]);
        let said = shell::output(&mut record)?.stderr;
        let said = String::from_utf8_lossy(&said);
        let ms = |what: &str| time_before(&said, what).with_context(|| said.clone().into_owned());
        if round > 0 {
            row.limit.push(alone / 1e3);
            row.attach.push(ms(" to attach")?);
            row.detach.push(ms(" to detach")?);
        }
    }
    Ok(row)
}

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let (program, limit) = (built(bench, "stops")?, built(bench, "stop_all")?);
    let mut text = String::from(
        "### Stops\n\n\
         A program of 30,000 functions that was not built to be traced: how long `record -p -F 'f_*'` stops it, \
         beside a program that stops all threads, reads their registers, and lets them go. Milliseconds.\n\n\
         | threads | ptrace alone | to attach | to detach |\n|---|--:|--:|--:|\n",
    );
    for (name, threads) in THREADS {
        let row = measure(bench, &program, &limit, threads)?;
        let [limit, attach, detach] = [row.limit, row.attach, row.detach].map(median);
        writeln!(text, "| {name} | {limit:.1} | {attach:.1} | {detach:.1} |")?;
    }
    Ok(text)
}

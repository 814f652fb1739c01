//! Runs a command and measures its cost: processor time of its whole process tree, and elapsed
//! time.

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The cost of a command, in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    /// Processor time, user and system, of the command and all processes that it waited for.
    pub cpu: f64,
    /// Elapsed time.
    pub wall: f64,
}

/// Runs a command to its end. Only one may run at a time: its usage is the growth of that of all
/// children.
pub fn run(command: &mut Command) -> Result<Cost> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let before = children()?;
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let output = child.wait_with_output()?;
    let wall = start.elapsed().as_nanos() as f64;
    let cpu = children()? - before;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(Cost { cpu, wall })
}

/// Runs a command to its end, and returns its maximum resident size in kilobytes.
pub fn peak(command: &mut Command) -> Result<f64> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let (status, mut peak) = (format!("/proc/{}/status", child.id()), 0.0);
    loop {
        // The kernel keeps the maximum while the process exists.
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(peak);
        match child.try_wait()? {
            None => thread::sleep(Duration::from_millis(2)),
            Some(status) if status.success() => return Ok(peak),
            Some(status) => bail!("{command:?}: {status}"),
        }
    }
}

fn children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 * 1e3)
}

/// Returns the median; 0 of no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Returns the smallest value.
pub fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

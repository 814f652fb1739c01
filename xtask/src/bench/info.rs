//! Figures of a trace, from `calltap info`.

use super::Bench;
use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Figures of a trace.
#[derive(Clone, Copy, Default)]
pub struct Info {
    /// Number of calls entered.
    pub calls: f64,
    /// Number of records in the trace.
    pub events: f64,
    /// Number of lost calls and returns.
    pub lost: f64,
    /// Processor time of the program, in nanoseconds.
    pub program: f64,
    /// Processor time of the recorder, in nanoseconds.
    pub recorder: f64,
    /// Size of the file in bytes.
    pub bytes: f64,
}

/// Reads the figures of a trace.
pub fn info(bench: &Bench, data: &Path) -> Result<Info> {
    let output =
        shell::output(Command::new(&bench.calltap).args(["info", "--format", "json", "-i"]).arg(data))?;
    let all: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let number = |path: &str| {
        all.pointer(path).and_then(serde_json::Value::as_f64).with_context(|| format!("info has no {path}"))
    };
    Ok(Info {
        calls: number("/calls/entered")?,
        events: number("/events")?,
        lost: number("/calls/lost")? + number("/calls/exits_lost")?,
        program: number("/end/cpu_ns")?,
        recorder: number("/end/recorder_cpu_ns")?,
        bytes: fs::metadata(data)?.len() as f64,
    })
}

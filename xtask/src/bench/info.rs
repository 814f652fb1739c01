//! What calltap says about a trace.

use super::Bench;
use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// From `calltap info`.
#[derive(Clone, Copy, Default)]
pub struct Info {
    /// Calls entered.
    pub calls: f64,
    /// Records in the trace.
    pub events: f64,
    /// Calls lost, and returns.
    pub lost: f64,
    /// Processor time of the program, ns.
    pub program: f64,
    /// And of the recorder.
    pub recorder: f64,
    /// Bytes of the file.
    pub bytes: f64,
}

/// Reads it.
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

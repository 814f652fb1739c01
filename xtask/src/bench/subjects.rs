//! The tracers that are measured, and their commands.

use super::Bench;
use super::info::{Info, info};
use super::measure::{self, Cost};
use super::workloads::Workload;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A way to run a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The bare program.
    Bare,
    /// Built with NOPs, not recorded.
    Off,
    /// Built with NOPs, recorded with only `main` switched on: the agent is present, the NOPs stay.
    OnlyMain,
    /// Built with calls of a profiling function that only returns, not recorded.
    Returns,
    /// Built with calls of a profiling function, recorded with only `main` switched on: the calls
    /// have become NOPs.
    Converted,
    /// calltap with these flags; the first word is the name in tables.
    Calltap(&'static str, &'static [&'static str]),
    /// uftrace with all functions traced, and buffers that lose nothing.
    Uftrace,
}

/// The result of a run.
pub struct Run {
    /// Cost of the command.
    pub cost: Cost,
    /// Figures of the trace; of uftrace's, only the bytes.
    pub info: Info,
}

impl Subject {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Bare => "bare",
            Subject::Off => "NOPs, off",
            Subject::OnlyMain => "NOPs, only main on",
            Subject::Returns => "mcount returns",
            Subject::Converted => "mcount as NOPs",
            Subject::Calltap(name, _) => name,
            Subject::Uftrace => "uftrace",
        }
    }

    /// Runs a workload once.
    pub fn run(self, bench: &Bench, workload: &Workload) -> Result<Run> {
        let data = self.data(bench);
        let mut command = match self {
            Subject::Bare => Command::new(&workload.bare),
            Subject::Off => Command::new(&workload.nop),
            Subject::Returns => Command::new(&workload.returns),
            Subject::Converted => calltap(bench, &data, &["-F", "main"], &workload.returns),
            Subject::OnlyMain => calltap(bench, &data, &["-F", "main"], &workload.nop),
            Subject::Calltap(_, flags) => calltap(bench, &data, flags, &workload.nop),
            Subject::Uftrace => {
                let _ = fs::remove_dir_all(&data);
                let mut command = Command::new("uftrace");
                command.args([
                    "record",
                    "--no-pager",
                    "-b",
                    "64m",
                    "--no-libcall",
                    "--max-stack=65535",
                    "-D",
                    "65534",
                    "-d",
                ]);
                command.arg(&data).arg(&workload.pg);
                command
            }
        };
        workload.finish(&mut command)?;
        let cost = measure::run(command.current_dir(&bench.place))?;
        let info = match self {
            Subject::Bare | Subject::Off | Subject::Returns => Info::default(),
            Subject::Uftrace => Info { bytes: records(&data)?, ..Info::default() },
            _ => info(bench, &data)?,
        };
        Ok(Run { cost, info })
    }

    /// Returns the path of the trace.
    pub fn data(self, bench: &Bench) -> PathBuf {
        bench.place.join(if self == Subject::Uftrace { "uftrace.data" } else { "calltap.data" })
    }
}

fn calltap(bench: &Bench, data: &Path, flags: &[&str], program: &Path) -> Command {
    let mut command = Command::new(&bench.calltap);
    command.args(["record", "--quiet", "-o"]).arg(data).args(flags).arg("--").arg(program);
    command
}

/// Returns the number of calls in the build with mcount, which may differ from that of other
/// builds.
pub fn pg_calls(bench: &Bench, workload: &Workload) -> Result<f64> {
    let data = bench.place.join("calltap.data");
    let mut command = calltap(bench, &data, &["--tracer", "function"], &workload.pg);
    workload.finish(&mut command)?;
    measure::run(command.current_dir(&bench.place))?;
    Ok(info(bench, &data)?.calls)
}

/// Returns the size of uftrace's records in bytes.
fn records(data: &Path) -> Result<f64> {
    let mut bytes = 0;
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".dat") && !name.starts_with("perf") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes as f64)
}

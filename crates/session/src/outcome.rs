//! Outcomes of sessions and recordings.

use crate::plan::planner::LargestLibrary;
use calltap_collect::collector::Totals;
use calltap_process::ptrace::stop_times::Stops;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The result of a session.
#[derive(Debug)]
pub struct SessionOutcome {
    /// Exit status of the program, if calltap has started it.
    pub status: Option<ExitStatus>,
    /// How long attach and detach stopped the process; None of a started program.
    pub stops: Option<[Stops; 2]>,
    /// Functions that the overhead limit disabled, with their events per second.
    pub disabled_by_limit: Vec<(String, f64)>,
    /// Totals of the trace.
    pub totals: Totals,
    /// Number of functions that were enabled.
    pub sites: u32,
    /// Number of Python functions that were recorded.
    pub python: usize,
    /// The largest library of a program that contains almost no code.
    pub code_is_in: Option<LargestLibrary>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
    /// The consumer's error, if it had one.
    pub failed: Option<calltap_trace::Error>,
    /// Whether the process has ended by itself.
    pub ended: bool,
    /// Whether detach left nothing in the process.
    pub whole: bool,
    /// Processor time of the process meanwhile.
    pub cpu: Duration,
}

impl SessionOutcome {
    /// Returns the outcome of a started program in which nothing was traced.
    pub(crate) fn ended(status: ExitStatus) -> SessionOutcome {
        SessionOutcome {
            status: Some(status),
            stops: None,
            disabled_by_limit: Vec::new(),
            totals: Totals::default(),
            sites: 0,
            python: 0,
            code_is_in: None,
            notes: Vec::new(),
            failed: None,
            ended: true,
            whole: true,
            cpu: Duration::ZERO,
        }
    }
}

/// Outcome of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// Outcome of the session.
    pub session: SessionOutcome,
    /// Events that were left out on purpose.
    pub dropped: u64,
    /// The trace file: the requested one, unless it could not get that name.
    pub file: PathBuf,
    /// Bytes of the trace file, or of all snapshots.
    pub file_size: u64,
    /// Files of a flight recorder.
    pub snapshots: Option<Vec<PathBuf>>,
}

//! What to record, how, and what came of it.

use crate::plan::planner::PatchMode;
use crate::plan::planner::{LargestLibrary, Started};
use calltap_abi::Clock;
use calltap_collect::collector::Totals;
use calltap_collect::kept::keeping::Subtree;
use calltap_collect::slow::Slow;
use calltap_process::ptrace::stops::Stops;
use calltap_sched::Functions;
use calltap_selection::ParsedSelection;
use calltap_sites::Discovery;
use calltap_trace::SlowRule;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Mutex, Weak};
use std::time::Duration;

/// What to record.
pub enum Subject {
    /// A program, with its arguments: from its first instruction to its end.
    Program(Vec<OsString>),
    /// A running process: for some time, or until it ends or calltap is told to end (SIGINT, SIGTERM).
    Process {
        /// Its id.
        pid: u32,
        /// For how long.
        duration: Option<Duration>,
        /// What tracing may cost, as a share of what the process spends by itself.
        max_overhead: Option<f64>,
    },
}

/// What to record, and how.
pub struct Options {
    /// What.
    pub subject: Subject,
    /// The trace file.
    pub output: PathBuf,
    /// The tracers and their filters.
    pub selection: ParsedSelection,
    /// Where times come from.
    pub clock: Clock,
    /// Bytes of ring memory for all threads together, at most; None: as many threads need.
    pub buffer_size: Option<u64>,
    /// Keep the newest events instead of waiting for the recorder (flight recorder).
    pub overwrite: bool,
    /// How long a full buffer may hold up the program.
    pub wait: Duration,
    /// How code that may be running is changed.
    pub patch_mode: PatchMode,
    /// When calls of the profiling function are found that no list names.
    pub discovery: Discovery,
    /// Only what lies beneath slow calls is written.
    pub slow: Option<Slow>,
    /// Only calls of some functions and what they call are written.
    pub subtree: Option<Subtree>,
    /// Nothing is written before something happens.
    pub flight: Option<Flight>,
    /// Also what its processes become by execve, until none is left.
    pub follow: bool,
    /// Also when its threads run and when they wait, as far as the kernel tells.
    pub sched: bool,
    /// Also who wakes them,
    pub wakings: bool,
    /// and their system calls.
    pub system_calls: bool,
    /// Also page faults, signals, and moves to other processors.
    pub incidents: bool,
    /// Also functions of the kernel, which another reads.
    pub kernel: Option<Weak<Mutex<Functions>>>,
    /// Version that goes into the trace.
    pub version: &'static str,
    /// Tells the user a sentence while it goes on.
    pub tell: fn(&str),
    /// Tells the user what was switched on at the start.
    pub started: fn(&Started),
    /// Tells the user once a second what is recorded of a process that runs without calltap.
    pub recording: fn(&Recording),
}

/// What a recording amounts to so far.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// Since everything was switched on.
    pub elapsed: Duration,
    /// Calls that the recorder has read.
    pub calls: u64,
}

impl Options {
    /// To record this, all of it, by the processor's clock; the user is told nothing.
    pub fn new(subject: Subject, selection: ParsedSelection) -> Options {
        Options {
            subject,
            output: PathBuf::new(),
            selection,
            clock: Clock::Tsc,
            buffer_size: None,
            overwrite: false,
            wait: Duration::ZERO,
            patch_mode: PatchMode::default(),
            discovery: Discovery::default(),
            slow: None,
            subtree: None,
            flight: None,
            follow: false,
            sched: false,
            wakings: false,
            system_calls: false,
            incidents: false,
            kernel: None,
            version: env!("CARGO_PKG_VERSION"),
            tell: |_| {},
            started: |_| {},
            recording: |_| {},
        }
    }
}

/// What came of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// How the program ended, if it did.
    pub status: Option<ExitStatus>,
    /// What attaching and detaching took.
    pub stops: Option<[Stops; 2]>,
    /// Functions that were switched off because they cost too much, with their events per second.
    pub disabled: Vec<(String, f64)>,
    /// Sums.
    pub totals: Totals,
    /// Events that were left out on purpose.
    pub dropped: u64,
    /// Functions that were switched on.
    pub sites: u32,
    /// Bytes of the trace file, or of all snapshots.
    pub file_size: u64,
    /// The files of a flight recorder.
    pub snapshots: Option<Vec<PathBuf>>,
    /// Things the user should know, one sentence each.
    pub notes: Vec<String>,
    /// Where the code is of a program that has next to none of its own.
    pub code_is_in: Option<LargestLibrary>,
    /// Nothing was left behind in a process that was attached to.
    pub whole: bool,
    /// Why the trace is not complete (full disk), if so.
    pub failed: Option<calltap_trace::Error>,
}

/// When a snapshot is taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// A call takes longer.
    Slow(SlowRule),
    /// A function is called.
    Called {
        /// Which: a glob.
        function: String,
        /// So often; None: always.
        count: Option<i64>,
    },
    /// calltap is sent SIGUSR1.
    Signal,
    /// The program ends by a signal.
    Crash,
    /// It ends.
    Exit,
}

/// A flight recorder.
#[derive(Clone, Debug)]
pub struct Flight {
    /// When snapshots are taken.
    pub on: Vec<Trigger>,
    /// What is older is forgotten.
    pub last: Duration,
    /// Bytes of compressed events, at most.
    pub memory: u64,
    /// Files, at most.
    pub files: u32,
}

impl Flight {
    /// Is SIGUSR1 for calltap?
    pub fn takes_signal(&self) -> bool {
        self.on.contains(&Trigger::Signal)
    }
}

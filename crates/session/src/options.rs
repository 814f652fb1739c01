//! Options of a recording.

use crate::plan::planner::{PatchMode, Started};
use calltap_abi::Clock;
use calltap_collect::kept::keeping::Subtree;
use calltap_collect::slow::Slow;
use calltap_sched::Functions;
use calltap_selection::ParsedSelection;
use calltap_sites::Discovery;
use calltap_trace::SlowRule;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, Weak};
use std::time::Duration;

/// The subject of a recording.
pub enum Subject {
    /// A program, with its arguments: from its first instruction to its end.
    Program(Vec<OsString>),
    /// A running process: for some time, or until it ends or calltap gets SIGINT or SIGTERM.
    Process {
        /// Process id.
        pid: u32,
        /// Duration, if it is limited.
        duration: Option<Duration>,
        /// Overhead limit of tracing, relative to the process's own time or a tenth of a processor.
        max_overhead: Option<f64>,
    },
}

impl Subject {
    /// Returns the overhead limit and the duration; a program has neither.
    pub(crate) fn limits(&self) -> (Option<f64>, Option<Duration>) {
        match self {
            Subject::Program(_) => (None, None),
            Subject::Process { duration, max_overhead, .. } => (*max_overhead, *duration),
        }
    }
}

/// Subject and options of a recording.
pub struct Options {
    /// The subject.
    pub subject: Subject,
    /// Path of the trace file.
    pub output: PathBuf,
    /// Clock of the trace.
    pub clock: Clock,
    /// The functions to trace, and how their code is changed.
    pub plan: PlanOptions,
    /// The ring memory.
    pub rings: RingOptions,
    /// The calls that are written.
    pub kept: KeptCalls,
    /// The kernel's events that are recorded beside the calls.
    pub kernel: KernelOptions,
    /// Reports to the user.
    pub reports: Reports,
}

impl Options {
    /// Returns options to record all calls of a subject with the processor's clock, without
    /// reports to the user.
    pub fn new(subject: Subject, plan: PlanOptions) -> Options {
        Options {
            subject,
            output: PathBuf::new(),
            clock: Clock::Tsc,
            plan,
            rings: RingOptions::default(),
            kept: KeptCalls::default(),
            kernel: KernelOptions::default(),
            reports: Reports::default(),
        }
    }
}

/// The functions that are traced, and how their code is changed.
pub struct PlanOptions {
    /// The tracers and their filters.
    pub selection: ParsedSelection,
    /// How code that may be running is changed.
    pub patch_mode: PatchMode,
    /// When calls of the profiling function that no table lists are found.
    pub discovery: Discovery,
    /// Whether to record programs that processes execute as well, until no process is left.
    pub follow: bool,
}

impl PlanOptions {
    /// Returns options to trace a selection in one program.
    pub fn new(selection: ParsedSelection, patch_mode: PatchMode) -> PlanOptions {
        PlanOptions { selection, patch_mode, discovery: Discovery::default(), follow: false }
    }
}

/// The size of the ring memory, and what happens when it is full.
#[derive(Clone, Copy, Default)]
pub struct RingOptions {
    /// Maximum bytes of ring memory for all threads together; None: as many as the threads need.
    pub buffer_size: Option<u64>,
    /// Whether to overwrite the oldest events instead of waiting for the recorder (flight
    /// recorder).
    pub overwrite: bool,
    /// How long a full ring may block a thread of a program that calltap starts.
    pub wait: Duration,
}

/// The calls that are written; by default all.
#[derive(Default)]
pub struct KeptCalls {
    /// The rule of slow calls, if only those and their callees are written.
    pub slow: Option<Slow>,
    /// The functions, if only their calls and callees are written.
    pub subtree: Option<Subtree>,
    /// The flight recorder, if nothing is written before a trigger.
    pub flight: Option<Flight>,
}

/// The kernel's events that are recorded, as far as the kernel reports them; by default none.
#[derive(Default)]
pub struct KernelOptions {
    /// Whether to record when threads run and wait.
    pub sched: bool,
    /// Whether to record which threads wake them.
    pub wakings: bool,
    /// Whether to record their system calls.
    pub system_calls: bool,
    /// Whether to record page faults, signals, and moves to other processors.
    pub incidents: bool,
    /// The reader of kernel functions, if these are recorded.
    pub functions: Option<Weak<Mutex<Functions>>>,
}

/// Reports to the user; by default none.
#[derive(Clone, Copy)]
pub struct Reports {
    /// Reports a sentence during the recording.
    pub tell: fn(&str),
    /// Reports what was enabled at the start.
    pub started: fn(&Started),
    /// Reports the progress of the recording of a running process, once a second.
    pub recording: fn(&Recording),
}

impl Default for Reports {
    fn default() -> Reports {
        Reports { tell: |_| {}, started: |_| {}, recording: |_| {} }
    }
}

/// Progress of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// Time since everything was enabled.
    pub elapsed: Duration,
    /// Calls that the recorder has read.
    pub calls: u64,
}

/// An event that triggers a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// A call takes longer than its rule allows.
    Slow(SlowRule),
    /// A function is called.
    Called {
        /// Glob of the function's name.
        function: String,
        /// Number of calls that trigger; None: all.
        count: Option<i64>,
    },
    /// calltap gets SIGUSR1.
    Signal,
    /// The program ends by a signal.
    Crash,
    /// The program ends.
    Exit,
}

/// Settings of a flight recorder.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Triggers of snapshots.
    pub on: Vec<Trigger>,
    /// Age beyond which events are dropped.
    pub last: Duration,
    /// Maximum bytes of compressed events.
    pub memory: u64,
    /// Maximum number of files.
    pub files: u32,
}

impl Flight {
    /// Whether SIGUSR1 is meant for calltap.
    pub(crate) fn takes_signal(&self) -> bool {
        self.on.contains(&Trigger::Signal)
    }
}

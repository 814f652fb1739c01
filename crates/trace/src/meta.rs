//! The contents of a trace besides events: the session, its processes, threads, modules, sites,
//! clock and losses.
//!
//! Each [`Record`] is one JSON object in a metadata chunk, so that a reader of any version can skip
//! records that it does not know; [`Meta`] is their sum.

mod module;
mod thread;
mod values;

pub use module::{Module, Untraceable, UntraceableFunction};
pub use thread::{GoStart, Thread};
pub use values::{Captured, Future, FutureValues, Value, ValueForm};

use crate::clock::{ClockKind, ClockPair};
use crate::ending::Ending;
use crate::kernel_records::{Address, KernelEvents, Scheduling, is_zero};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A function in a trace: index into [`Meta::sites`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct SiteId(pub u32);

/// A thread in a trace: index into [`Meta::threads`]. It differs from the kernel's thread id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ThreadId(pub u32);

/// The kind of a tracer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracerKind {
    /// Records entry and caller.
    Function,
    /// Records entry, return and duration.
    FunctionGraph,
    /// Sums up calls and their time in the program: [`Profile`].
    Profile,
}

/// A tracer of the session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracerInfo {
    /// Bit of the tracer in [`Site::tracers`].
    pub id: u32,
    /// Unique name of the tracer.
    pub name: String,
    /// Kind of the tracer.
    pub kind: TracerKind,
    /// Filter globs; empty means every function.
    pub filter: Vec<String>,
    /// Notrace globs.
    pub notrace: Vec<String>,
}

/// How, when and where the trace was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Version of calltap that wrote it.
    pub calltap: String,
    /// The command line of the traced program.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// Kernel release and machine.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Nanoseconds since the epoch (CLOCK_REALTIME) at the start; 0 where not known.
    pub start_realtime_ns: u64,
    /// CLOCK_MONOTONIC at the same moment.
    pub start_monotonic_ns: u64,
    /// Unit of ticks.
    pub clock: ClockKind,
    /// The reason why the clock is not the requested one, if it is not.
    pub clock_note: Option<String>,
    /// The tracers.
    pub tracers: Vec<TracerInfo>,
    /// Conditions on values: a call for which one of its function does not hold was not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
}

impl Session {
    /// Creates a session of which only the clock is known.
    pub fn of(clock: ClockKind) -> Session {
        Session {
            calltap: String::new(),
            command: Vec::new(),
            host: String::new(),
            kernel: String::new(),
            cpu: String::new(),
            start_realtime_ns: 0,
            start_monotonic_ns: 0,
            clock,
            clock_note: None,
            tracers: Vec::new(),
            conditions: Vec::new(),
        }
    }
}

/// A process of the trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Index in [`Meta::processes`].
    pub id: u32,
    /// Process id as the recorder saw it.
    pub pid: u32,
    /// Process from which this one was forked, or that executed its program, when that is traced
    /// too.
    pub parent: Option<u32>,
    /// Whether it was forked and runs on in its parent's program: calls that were open at that
    /// moment are open in it, too, and have no entries in its trace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forked: bool,
    /// Whether those calls are known: they are [`EventKind::Resumed`](crate::EventKind::Resumed) in
    /// front of the first event of its first thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// Whether it is the process of an earlier record, which has executed another program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executed: bool,
    /// Command name.
    pub comm: String,
}

impl Process {
    /// Returns a process that is known to come from no other.
    pub fn new(id: u32, pid: u32, comm: impl Into<String>) -> Process {
        let comm = comm.into();
        Process { id, pid, parent: None, forked: false, resumed: false, executed: false, comm }
    }
}

/// A function that was enabled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Site {
    /// Index in [`Meta::sites`].
    pub id: SiteId,
    /// Index in [`Meta::modules`].
    pub module: u32,
    /// Link-time entry address.
    pub address: u64,
    /// Size in bytes, 0 when unknown.
    pub size: u64,
    /// Linker symbol (views demangle it).
    pub name: String,
    /// Further symbols of the same address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Site kind, as `calltap sites` names it.
    pub kind: String,
    /// Bit mask of tracers ([`TracerInfo::id`]).
    pub tracers: u32,
    /// The values that are read of its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<Arc<Captured>>,
}

impl Site {
    /// Returns all its linker symbols.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().chain([&self.name]).map(String::as_str)
    }
}

/// The totals of a thread; written when it ends and when the recording ends. `entered = entries +
/// lost_entries + dropped_entries`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Loss {
    /// Thread of the totals.
    pub thread: ThreadId,
    /// Entries recorded.
    pub entries: u64,
    /// Exits recorded.
    pub exits: u64,
    /// Entries that happened and were not recorded.
    pub lost_entries: u64,
    /// Exits that happened and were not recorded.
    pub lost_exits: u64,
    /// Entries that were left out on purpose.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_entries: u64,
    /// Exits that were left out on purpose.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_exits: u64,
}

/// A rule for slow calls: only those and what they call were kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlowRule {
    /// Functions, as a glob.
    pub function: String,
    /// Nanoseconds above which their calls were kept.
    pub ns: u64,
}

/// Which of the recorded calls were kept on purpose, from a moment on: `--graph`, `--callers`,
/// `--depth`, `--on`, or a change of these while the recording ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// First tick at which this holds; absent: from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The calls, as part of a sentence: `of handle and what it calls, 3 levels deep`; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
}

/// Functions that the recorder could not enable with the others, as a thread may have been inside
/// the code that the jumps overwrite.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Busy {
    /// Linker symbols of the functions.
    pub functions: Vec<String>,
    /// Tick from which on they were traced; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Whether they are only watched, for calls that exceptions and longjmp leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
}

/// The moment at which the recorder began to disable the functions of a process, to detach from it.
/// What the process did later belongs to no call that was open then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Detaching {
    /// Index in [`Meta::processes`].
    pub process: u32,
    /// Tick of that moment.
    pub at: u64,
}

/// The sums of a [`TracerKind::Profile`] tracer for one function in one process, over all threads.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Profile {
    /// Index in [`Meta::processes`].
    pub process: u32,
    /// The function.
    pub site: SiteId,
    /// Number of calls.
    pub hits: u64,
    /// Number of calls whose time is known: they have returned, and not begun by a jump.
    pub timed: u64,
    /// Sum of their times, in nanoseconds.
    pub total_ns: u64,
    /// Longest of their times, in nanoseconds.
    pub max_ns: u64,
    /// Sum of the squares of their times.
    pub squares_ns2: f64,
}

impl Profile {
    /// Adds the sums of another process or site.
    pub fn add(&mut self, other: &Profile) {
        self.hits += other.hits;
        self.timed += other.timed;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.squares_ns2 += other.squares_ns2;
    }

    /// Returns the mean time in nanoseconds.
    pub fn average_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.timed)
    }

    /// Returns the sample variance of the times (n - 1), in ns squared; 0 for a single one.
    pub fn variance_ns2(&self) -> f64 {
        if self.timed < 2 {
            return 0.0;
        }
        let (n, total) = (self.timed as f64, self.total_ns as f64);
        ((self.squares_ns2 - total * total / n) / (n - 1.0)).max(0.0)
    }
}

impl Meta {
    /// Returns the process from which a process was forked, as it was then; `None` if the trace
    /// does not have it. A process that executed another program has a row for each, and is not its
    /// own parent.
    pub fn parent_of(&self, process: &Process) -> Option<&Process> {
        let above = |of: &Process| self.processes.get(of.parent? as usize).filter(|row| row.id < of.id);
        let mut parent = above(process)?;
        while parent.pid == process.pid {
            parent = above(parent)?;
        }
        Some(parent)
    }

    /// Returns the ending of calls that are open at the end.
    pub fn open_at_end(&self) -> Ending {
        match &self.end {
            Some(end) if matches!(end.status.as_str(), End::DETACHED | End::SNAPSHOT) => Ending::Detached,
            _ => Ending::Running,
        }
    }

    /// Returns the threads to which a reader adds no system calls, see
    /// [`KernelEvents::calls_in_events`].
    pub fn calls_in_events(&self) -> impl Iterator<Item = ThreadId> + '_ {
        let events = self.kernel_events.iter();
        events.flat_map(|events| &events.calls_in_events).map(|id| ThreadId(*id))
    }
}

impl End {
    /// Status of a recording that ended before the program.
    pub const DETACHED: &str = "detached";
    /// Status of a snapshot of the rings.
    pub const SNAPSHOT: &str = "snapshot";
}

/// The last record of a complete file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// `exit 0`, `signal 9 (SIGKILL)`, ...
    pub status: String,
    /// Wall time of the program, nanoseconds.
    pub wall_ns: u64,
    /// Processor time of the program, user and system, nanoseconds.
    pub cpu_ns: u64,
    /// Processor time of the recorder, nanoseconds.
    pub recorder_cpu_ns: u64,
}

/// A function that the recorder disabled while it recorded, as its events cost more than allowed
/// (`--max-overhead`).
///
/// Its later calls have no events; their time counts as their callers' own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DisabledByLimit {
    /// The function.
    pub site: SiteId,
    /// Events per second of the function when it was disabled.
    pub events_per_s: u64,
}

/// A metadata record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// First record of every file.
    Session(Session),
    /// See [`Process`].
    Process(Process),
    /// See [`Thread`].
    Thread(Thread),
    /// See [`Module`]; a second record of the same id replaces the first (unload).
    Module(Module),
    /// Sites that were enabled, many at a time.
    Sites {
        /// The sites.
        sites: Vec<Site>,
    },
    /// Rules for slow calls: only those and what they call were kept.
    Slow {
        /// The rules.
        rules: Vec<SlowRule>,
    },
    /// See [`Kept`]; each holds until the next.
    Kept(Kept),
    /// See [`Busy`]; the newest of a function counts.
    Busy(Busy),
    /// See [`Detaching`].
    Detaching(Detaching),
    /// See [`ClockPair`].
    Clock(ClockPair),
    /// See [`Loss`]; the newest of a thread counts.
    Loss(Loss),
    /// The sums of profile tracers, when the recording ended.
    Profile {
        /// The sums by process and function.
        rows: Vec<Profile>,
    },
    /// Functions disabled by the overhead limit, many at a time.
    #[serde(rename = "limited")]
    DisabledByLimit {
        /// The functions, in the order in which they were disabled.
        functions: Vec<DisabledByLimit>,
    },
    /// Further [`Session::conditions`], of a changed selection.
    Conditions {
        /// The conditions.
        conditions: Vec<String>,
    },
    /// See [`Scheduling`]; the newest counts.
    Scheduling(Scheduling),
    /// See [`KernelEvents`]; the newest counts.
    KernelEvents(KernelEvents),
    /// Names of kernel functions that were recorded separately, and are added when the recording
    /// has ended. A trace that has them has no such record.
    KernelFunctions {
        /// Globs of their names, separated by commas.
        functions: String,
    },
    /// See [`Address`].
    Addresses {
        /// The addresses.
        addresses: Vec<Address>,
    },
    /// A note for the user about this recording.
    Note {
        /// The note as a sentence.
        text: String,
    },
    /// See [`End`].
    End(End),
    /// A record of a newer version.
    #[serde(other)]
    Unknown,
}

/// A [`Record::Sites`] of some sites of a longer list, for writing.
#[derive(Serialize)]
#[serde(tag = "record", rename = "sites")]
pub(crate) struct SomeSites<'a> {
    /// The sites.
    pub(crate) sites: &'a [Site],
}

/// Everything in a trace besides events.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Meta {
    /// The session, if its record was readable.
    pub session: Option<Session>,
    /// Processes by id.
    pub processes: Vec<Process>,
    /// Threads by id.
    pub threads: Vec<Thread>,
    /// Modules by id.
    pub modules: Vec<Module>,
    /// Sites by id.
    pub sites: Vec<Site>,
    /// Clock pairs in file order.
    pub clock: Vec<ClockPair>,
    /// Totals by thread, the newest of each.
    pub loss: Vec<Loss>,
    /// Sums of profile tracers.
    pub profile: Vec<Profile>,
    /// Rules for slow calls, if only those and what they call were kept.
    pub slow: Vec<SlowRule>,
    /// Which calls were kept, in order of time; empty: all.
    pub kept: Vec<Kept>,
    /// Functions that could not be enabled with the others, in order of time.
    pub busy: Vec<Busy>,
    /// When the recorder began to detach from processes.
    pub detaching: Vec<Detaching>,
    /// Conditions of all selections; a call for which one of its function did not hold is missing.
    pub conditions: Vec<String>,
    /// Functions disabled by the overhead limit.
    pub disabled_by_limit: Vec<DisabledByLimit>,
    /// Whether context switches were recorded; absent where they were not requested.
    pub scheduling: Option<Scheduling>,
    /// Whether wakings, system calls and incidents were recorded; absent where they were not
    /// requested.
    pub kernel_events: Option<KernelEvents>,
    /// Addresses that threads have waited at. The last description of an address holds.
    pub addresses: Vec<Address>,
    /// Notes.
    pub notes: Vec<String>,
    /// End of the recording; absent in a file that was cut off.
    pub end: Option<End>,
}

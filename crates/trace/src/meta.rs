//! What a trace knows besides events: the session, its processes, threads, modules, sites, clock and losses.
//!
//! Each [`Record`] is one JSON object in a metadata chunk, so that a reader of any version can skip what it does
//! not know; [`Meta`] is their sum.

use crate::clock::{ClockKind, ClockPair};
use crate::ending::Ending;
use crate::kernel_records::{Address, KernelEvents, Scheduling};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A function in a trace: index into [`Meta::sites`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct SiteId(pub u32);

/// A thread in a trace: index into [`Meta::threads`]. Not the kernel's thread id, which may be used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ThreadId(pub u32);

/// The kind of a tracer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracerKind {
    /// Entry and caller.
    Function,
    /// Entry, return, duration.
    FunctionGraph,
    /// Calls and their time together, summed up in the program: [`Profile`].
    Profile,
}

/// One tracer of the session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracerInfo {
    /// Its bit in [`Site::tracers`].
    pub id: u32,
    /// Unique name.
    pub name: String,
    /// What it records.
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
    /// Nanoseconds since the epoch (CLOCK_REALTIME) at the start; 0 where it is not known, as in traces that were imported.
    pub start_realtime_ns: u64,
    /// CLOCK_MONOTONIC at the same moment.
    pub start_monotonic_ns: u64,
    /// What ticks are.
    pub clock: ClockKind,
    /// Why the clock is not the one asked for, if it is not.
    pub clock_note: Option<String>,
    /// The tracers.
    pub tracers: Vec<TracerInfo>,
}

impl Session {
    /// Of which nothing is known but the clock.
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
    /// The process it was forked from, or that ran its program, when that is traced too.
    pub parent: Option<u32>,
    /// It was forked and runs on in its parent's program: calls that were open there at that moment are open in it, too, and have no
    /// entries in its trace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forked: bool,
    /// Those calls are known: they are [`EventKind::Resumed`](crate::EventKind::Resumed) in front of the first event of its first thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// Command name.
    pub comm: String,
}

/// A thread of the trace, or a goroutine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Index in [`Meta::threads`].
    pub id: ThreadId,
    /// Its process.
    pub process: u32,
    /// Kernel thread id. Of a goroutine, its number as far as it has room.
    pub tid: u32,
    /// Thread name.
    pub comm: String,
    /// It is a goroutine of a Go program, which has this number, and which threads of the process run in turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goroutine: Option<u64>,
}

/// A loaded executable or shared object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Module {
    /// Index in [`Meta::modules`].
    pub id: u32,
    /// The process that loaded it (its forked children have it too).
    pub process: u32,
    /// File path in the traced program's view.
    pub path: String,
    /// GNU build-id, hexadecimal.
    pub build_id: Option<String>,
    /// What the loader added to the file's addresses.
    pub bias: u64,
    /// First and one-past-last address of its mapping.
    pub range: (u64, u64),
    /// Ticks when it was unloaded.
    pub unloaded_ticks: Option<u64>,
}

/// A function that was switched on.
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
    /// What is read of its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<Arc<Captured>>,
}

impl Site {
    /// All its linker symbols.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.aliases.iter().chain([&self.name]).map(String::as_str)
    }
}

/// What is read of a function's calls: the meaning of the bytes that come with its events.
///
/// The bytes of a side begin with two that have a bit for each value that could not be read, in their order; the others follow in the widths of their forms.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Captured {
    /// With entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Value>,
    /// With returns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Value>,
    /// They are about a future, and come before others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub future: Option<Future>,
}

/// A poll of a future.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Future {
    /// What its values are.
    pub values: FutureValues,
    /// The type, where debugging information knows it and the function's name does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How a future is known by the values of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FutureValues {
    /// A poll of an async body: its address; the state before and, as result, after it.
    State,
    /// A poll of a future by a function written by hand: the first two arguments and the result. If that is the first argument, the future is the second, as a larger result is written to where
    /// the first one says.
    Written,
    /// The same, and as second result the number by which it is known: the future waits if that is equal to (or, if not `equal`, different from) this one.
    Told {
        /// The number.
        pending: u64,
        /// How it is compared.
        equal: bool,
        /// The result is written to where the first argument says.
        elsewhere: bool,
    },
    /// A poll of an async body in a function of tokio's: address and state before it; as result what that function returns, if that is in a register.
    Inlined,
    /// A task of tokio is polled: its address,
    Task,
    /// and the state of its future before that.
    TaskState,
    /// A future is dropped: its address.
    Dropped,
}

/// One value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Value {
    /// What it is called: by debugging information, or as the user wrote it.
    pub name: String,
    /// How it is stored, and shown.
    pub form: ValueForm,
}

/// How a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueForm {
    /// A number with a sign, of so many bytes.
    Signed(u8),
    /// One without,
    Unsigned(u8),
    /// that is shown in hexadecimal.
    Hex(u8),
    /// An address, shown as a function where it is one.
    Pointer,
    /// A floating-point number.
    Float(u8),
    /// 0 or not, of one byte.
    Bool,
    /// A character of one byte.
    Char,
    /// A text: a byte with its length, of which the top bit says that there was more (alone: that its address is 0), then as many bytes.
    Text,
    /// The callers ([`crate::Callers`]), behind all other values: two bytes with their number and, in the lowest bit, whether they are
    /// all of them; then eight for each, innermost first.
    Callers,
}

/// What a thread did in all; written when it ends and when the recording ends. `entered = entries + lost_entries + dropped_entries`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Loss {
    /// Whose.
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

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Only what lies beneath such calls was kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlowRule {
    /// Functions, as a glob.
    pub function: String,
    /// Calls of them that took longer, nanoseconds.
    pub ns: u64,
}

/// What a tracer of the kind [`TracerKind::Profile`] has summed up of one function in one process, all threads together.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Profile {
    /// Index in [`Meta::processes`].
    pub process: u32,
    /// The function.
    pub site: SiteId,
    /// Calls.
    pub hits: u64,
    /// Calls of which the time is known: those that have returned, and were not entered by a jump.
    pub timed: u64,
    /// Their time together, nanoseconds.
    pub total_ns: u64,
    /// The longest of them.
    pub max_ns: u64,
    /// The sum of the squares of their times.
    pub squares_ns2: f64,
}

impl Profile {
    /// Adds what another process or site has.
    pub fn add(&mut self, other: &Profile) {
        self.hits += other.hits;
        self.timed += other.timed;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.squares_ns2 += other.squares_ns2;
    }

    /// The mean time, nanoseconds.
    pub fn average_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.timed)
    }

    /// The sample variance of the times (n - 1), nanoseconds squared; 0 for a single one.
    pub fn variance_ns2(&self) -> f64 {
        if self.timed < 2 {
            return 0.0;
        }
        let (n, total) = (self.timed as f64, self.total_ns as f64);
        ((self.squares_ns2 - total * total / n) / (n - 1.0)).max(0.0)
    }
}

impl Meta {
    /// Why calls are open that are open at the end.
    pub fn open_at_end(&self) -> Ending {
        match &self.end {
            Some(end) if matches!(end.status.as_str(), End::DETACHED | End::SNAPSHOT) => Ending::Detached,
            _ => Ending::Running,
        }
    }
}

impl End {
    /// The status of a recording that was over before the program was.
    pub const DETACHED: &str = "detached";
    /// The status of what the rings held at some moment.
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

/// A function that the recorder disabled while it recorded, as its events cost more than allowed (`--max-overhead`).
///
/// Its later calls have no events; their time counts as their callers' own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limited {
    /// The function.
    pub site: SiteId,
    /// Its events a second, when it was disabled.
    pub events_per_s: u64,
}

/// One metadata record.
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
    /// Sites switched on, many at a time.
    Sites {
        /// The sites.
        sites: Vec<Site>,
    },
    /// Only slow calls were kept, those of any of these rules.
    Slow {
        /// The rules.
        rules: Vec<SlowRule>,
    },
    /// See [`ClockPair`].
    Clock(ClockPair),
    /// See [`Loss`]; the newest of a thread counts.
    Loss(Loss),
    /// What was summed up in the program, when the recording ended.
    Profile {
        /// By process and function.
        rows: Vec<Profile>,
    },
    /// Functions disabled by the overhead limit, many at a time.
    Limited {
        /// In the order in which they were disabled.
        functions: Vec<Limited>,
    },
    /// See [`Scheduling`]; the newest counts.
    Scheduling(Scheduling),
    /// See [`KernelEvents`]; the newest counts.
    KernelEvents(KernelEvents),
    /// Functions of the kernel were recorded beside it, and are added when the recording has ended. A trace that has them has no such record.
    KernelFunctions {
        /// Globs of their names, by commas.
        functions: String,
    },
    /// See [`Address`].
    Addresses {
        /// The addresses.
        addresses: Vec<Address>,
    },
    /// Something the user should know about this recording.
    Note {
        /// One sentence.
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

/// Everything a trace says besides events.
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
    /// What was summed up in the program.
    pub profile: Vec<Profile>,
    /// Only slow calls were kept, those of any of these rules; if there are any.
    pub slow: Vec<SlowRule>,
    /// Functions disabled by the overhead limit.
    pub limited: Vec<Limited>,
    /// Whether context switches were recorded; absent where that was not asked for.
    pub scheduling: Option<Scheduling>,
    /// Whether wakings and system calls were; absent where that was not asked for.
    pub kernel_events: Option<KernelEvents>,
    /// Addresses that threads have waited at.
    pub addresses: Vec<Address>,
    /// Notes.
    pub notes: Vec<String>,
    /// How it ended; absent in a cut-off file.
    pub end: Option<End>,
}

//! The nodes of the tree: directories and files, their names and modes.

use crate::options::OPTIONS;
use calltap_ringbuffer::formats;

/// A directory or file of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    /// Id of the instance.
    pub instance: u32,
    /// The entry of the instance.
    pub entry: Entry,
}

/// A directory or file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Entry {
    /// A directory.
    Dir(Dir),
    /// A file. The number is that of an option, or of a processor plus one; 0 for other files.
    File(Kind, u16),
}

/// A directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Dir {
    /// The instance's own directory.
    Root,
    Options,
    PerCpu,
    Cpu(u16),
    Instances,
    TraceStat,
    Events,
    EventsFtrace,
    /// An event, by its index in [`calltap_ringbuffer::formats::EVENTS`].
    Event(u16),
}

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Available,
    Info,
    Failures,
    CurrentTracer,
    AvailableTracers,
    AvailableAddresses,
    TracingOn,
    Filter,
    Notrace,
    GraphFunction,
    GraphNotrace,
    MaxGraphDepth,
    Pid,
    NotracePid,
    EnabledFunctions,
    TouchedFunctions,
    FunctionTracers,
    ProfileEnabled,
    Stat,
    Trace,
    TracePipe,
    Stats,
    Snapshot,
    BufferKb,
    BufferTotalKb,
    SubbufKb,
    Percent,
    FreeBuffer,
    Clock,
    TimestampMode,
    Marker,
    RawMarker,
    SavedCmdlines,
    SavedCmdlinesSize,
    SavedTgids,
    Threshold,
    MaxLatency,
    Cpumask,
    Options,
    Option,
    ErrorLog,
    Readme,
    Empty,
    EventsEnable,
    SetEvent,
    Ftraced,
    RawPipe,
    RawSnapshot,
    HeaderPage,
    HeaderEvent,
    EventFormat,
    EventId,
    Kallsyms,
    Dump,
    StackTrace,
    StackMaxSize,
    StackTraceFilter,
    StackTracerEnabled,
}

const RO: u16 = 0o440;
const RW: u16 = 0o640;
const WO: u16 = 0o220;

/// A file of the control directory.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Name of the file.
    pub name: &'static str,
    /// Description in one sentence, for README; empty for files that it leaves out.
    pub about: &'static str,
    pub(crate) kind: Kind,
    mode: u16,
    /// Whether only the first instance has it.
    top_only: bool,
    /// Whether `calltap tracefs` reads and writes it too: its contents follow from the selection,
    /// the functions and the profile alone.
    pub(crate) by_command: bool,
}

/// A file of every instance.
const fn file(name: &'static str, kind: Kind, mode: u16) -> File {
    File { name, about: "", kind, mode, top_only: false, by_command: false }
}

/// A file of the first instance.
const fn top(name: &'static str, kind: Kind, mode: u16) -> File {
    File { top_only: true, ..file(name, kind, mode) }
}

impl File {
    const fn about(self, about: &'static str) -> File {
        File { about, ..self }
    }

    const fn by_command(self) -> File {
        File { by_command: true, ..self }
    }
}

/// All files of an instance's directory.
pub(crate) const FILES: &[File] = &[
    top("README", Kind::Readme, RO),
    top("available_events", Kind::Empty, RO),
    top("available_filter_functions", Kind::Available, RO).about("functions that can be traced").by_command(),
    top("available_filter_functions_addrs", Kind::AvailableAddresses, RO),
    file("available_tracers", Kind::AvailableTracers, RO).about("values for current_tracer").by_command(),
    file("buffer_percent", Kind::Percent, RW),
    file("buffer_size_kb", Kind::BufferKb, RW),
    file("buffer_subbuf_size_kb", Kind::SubbufKb, RW),
    file("buffer_total_size_kb", Kind::BufferTotalKb, RO),
    file("current_tracer", Kind::CurrentTracer, RW).about("the tracer that records events: function, function_graph or nop").by_command(),
    file("dump", Kind::Dump, RO),
    top("dyn_ftrace_total_info", Kind::Info, RO).about("number of traceable functions, and their memory").by_command(),
    top("enabled_functions", Kind::EnabledFunctions, RO).about("functions that are traced, and by how many tracers").by_command(),
    file("error_log", Kind::ErrorLog, RW),
    top("failures", Kind::Failures, RO).about("functions at which other bytes were found than expected; they are never touched again").by_command(),
    file("free_buffer", Kind::FreeBuffer, 0o200),
    top("ftraced_enabled", Kind::Ftraced, RW).about("the daemon that converts calls of mcount recorded at their first time: enabled or disabled; every write converts at once").by_command(),
    top("function_profile_enabled", Kind::ProfileEnabled, RW).about("1 registers trace_profile, which sums up calls and times in trace_stat/function0; 0 ends it").by_command(),
    top("function_tracers", Kind::FunctionTracers, RW).about("the registered tracers; * marks the default, whose filters the set_* files show; a name makes it that").by_command(),
    top("kallsyms", Kind::Kallsyms, RO),
    top("max_graph_depth", Kind::MaxGraphDepth, RW),
    top("printk_formats", Kind::Empty, RO),
    top("saved_cmdlines", Kind::SavedCmdlines, RO),
    top("saved_cmdlines_size", Kind::SavedCmdlinesSize, RW),
    top("saved_tgids", Kind::SavedTgids, RO),
    file("set_event", Kind::SetEvent, RW),
    file("set_ftrace_filter", Kind::Filter, RW).about("the only functions that the default tracer traces: names, globs, numbers of lines, FUNCTION:mod:LIBRARY").by_command(),
    file("set_ftrace_notrace", Kind::Notrace, RW).about("functions that the default tracer does not trace").by_command(),
    file("set_ftrace_notrace_pid", Kind::NotracePid, RW),
    file("set_ftrace_pid", Kind::Pid, RW).about("threads to trace"),
    top("set_graph_function", Kind::GraphFunction, RW).about("function_graph: trace only beneath these functions"),
    top("set_graph_notrace", Kind::GraphNotrace, RW),
    file("snapshot", Kind::Snapshot, RW),
    top("stack_max_size", Kind::StackMaxSize, RW).about("bytes of the deepest stack; write 0 to reset"),
    top("stack_trace", Kind::StackTrace, RO),
    top("stack_trace_filter", Kind::StackTraceFilter, RW).about("stack is checked at calls of these functions"),
    top("stack_tracer_enabled", Kind::StackTracerEnabled, RW).about("1: stack_trace shows the deepest stack"),
    file("timestamp_mode", Kind::TimestampMode, RO),
    top("touched_functions", Kind::TouchedFunctions, RO).about("functions that were ever traced").by_command(),
    file("trace", Kind::Trace, RW).about("the recorded events; '>' clears them"),
    file("trace_clock", Kind::Clock, RW),
    file("trace_marker", Kind::Marker, WO),
    file("trace_marker_raw", Kind::RawMarker, WO),
    file("trace_options", Kind::Options, RW),
    file("trace_pipe", Kind::TracePipe, RO).about("consuming read of the buffer"),
    file("tracing_cpumask", Kind::Cpumask, RW),
    file("tracing_max_latency", Kind::MaxLatency, RW),
    file("tracing_on", Kind::TracingOn, RW).about("0 stops recording, 1 resumes it; tracers stay").by_command(),
    top("tracing_thresh", Kind::Threshold, RW),
];

const CPU_FILES: &[File] = &[
    file("buffer_size_kb", Kind::BufferKb, RW),
    file("snapshot", Kind::Snapshot, RW),
    file("snapshot_raw", Kind::RawSnapshot, RO),
    file("stats", Kind::Stats, RO),
    file("trace", Kind::Trace, RW),
    file("trace_pipe", Kind::TracePipe, RO),
    file("trace_pipe_raw", Kind::RawPipe, RO),
];

/// The sums of the profile tracer for `calltap tracefs`, which knows no processors.
pub(crate) const SUMS: File =
    file("trace_stat/function0", Kind::Stat, RW).about("sums of trace_profile").by_command();

const DIRS: &[(&str, Dir, bool)] = &[
    ("events", Dir::Events, false),
    ("instances", Dir::Instances, true),
    ("options", Dir::Options, false),
    ("per_cpu", Dir::PerCpu, false),
    ("trace_stat", Dir::TraceStat, true),
];

/// Returns the entries of a directory, except instances.
pub(crate) fn entries(dir: Dir, is_top: bool, processors: usize) -> Vec<(String, Entry)> {
    let file = |files: &[File], arg: u16| -> Vec<(String, Entry)> {
        let there = files.iter().filter(|file| is_top || !file.top_only);
        there.map(|file| (file.name.to_owned(), Entry::File(file.kind, arg))).collect()
    };
    let processors = 0..processors as u16;
    match dir {
        Dir::Root => {
            let dirs = DIRS.iter().filter(|(_, _, top)| is_top || !top);
            let dirs = dirs.map(|(name, dir, _)| ((*name).to_owned(), Entry::Dir(*dir)));
            file(FILES, 0).into_iter().chain(dirs).collect()
        }
        Dir::Options => {
            let there = OPTIONS.iter().enumerate().filter(|(_, option)| is_top || !option.top_only);
            there.map(|(n, option)| (option.name.to_owned(), Entry::File(Kind::Option, n as u16))).collect()
        }
        Dir::PerCpu => processors.map(|n| (format!("cpu{n}"), Entry::Dir(Dir::Cpu(n)))).collect(),
        Dir::Cpu(n) => file(CPU_FILES, n + 1),
        Dir::TraceStat => processors.map(|n| (format!("function{n}"), Entry::File(Kind::Stat, n))).collect(),
        Dir::Events => {
            let files = [
                ("enable", Entry::File(Kind::EventsEnable, 0)),
                ("ftrace", Entry::Dir(Dir::EventsFtrace)),
                ("header_event", Entry::File(Kind::HeaderEvent, 0)),
                ("header_page", Entry::File(Kind::HeaderPage, 0)),
            ];
            files.into_iter().map(|(name, entry)| (name.to_owned(), entry)).collect()
        }
        Dir::EventsFtrace => {
            let events = (0..).zip(formats::EVENTS);
            events.map(|(n, (name, _))| (name.to_owned(), Entry::Dir(Dir::Event(n)))).collect()
        }
        Dir::Event(n) => {
            let files = [("format", Kind::EventFormat), ("id", Kind::EventId)];
            files.into_iter().map(|(name, kind)| (name.to_owned(), Entry::File(kind, n))).collect()
        }
        Dir::Instances => Vec::new(),
    }
}

/// Returns the default mode of an entry.
pub(crate) fn mode(entry: Entry) -> u16 {
    match entry {
        Entry::Dir(Dir::Events | Dir::EventsFtrace | Dir::Event(_)) => 0o755,
        Entry::Dir(_) => 0o750,
        Entry::File(Kind::Option | Kind::Stat | Kind::EventsEnable, _) => RW,
        Entry::File(kind, _) => {
            let mut all = FILES.iter().chain(CPU_FILES);
            all.find(|file| file.kind == kind).map_or(RO, |file| file.mode)
        }
    }
}

/// Returns the name of a writable file.
pub(crate) fn name(kind: Kind) -> &'static str {
    let known = FILES.iter().find(|file| file.kind == kind);
    known.map_or(if kind == Kind::Option { "options" } else { "calltap" }, |file| file.name)
}

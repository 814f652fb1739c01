//! The nodes of the tree: directories and files, their names and modes.

use crate::options::OPTIONS;
use calltap_ringbuffer::formats;

/// A directory or file of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// Id of the instance.
    pub instance: u32,
    /// The entry of the instance.
    pub entry: Entry,
}

/// A directory or file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Entry {
    /// A directory.
    Dir(Dir),
    /// A file. The number is that of an option, or of a processor plus one; 0 for other files.
    File(Kind, u16),
}

/// A directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dir {
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
pub enum Kind {
    /// A file of [`crate::control`], by its index in [`CONTROL`].
    Control(u8),
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

/// A file: name, kind, mode, and whether only the first instance has it.
type File = (&'static str, Kind, u16, bool);

const FILES: &[File] = &[
    ("README", Kind::Readme, RO, true),
    ("available_events", Kind::Empty, RO, true),
    ("available_filter_functions", Kind::Control(0), RO, true),
    ("available_filter_functions_addrs", Kind::AvailableAddresses, RO, true),
    ("available_tracers", Kind::AvailableTracers, RO, false),
    ("buffer_percent", Kind::Percent, RW, false),
    ("buffer_size_kb", Kind::BufferKb, RW, false),
    ("buffer_subbuf_size_kb", Kind::SubbufKb, RW, false),
    ("buffer_total_size_kb", Kind::BufferTotalKb, RO, false),
    ("current_tracer", Kind::CurrentTracer, RW, false),
    ("dump", Kind::Dump, RO, false),
    ("dyn_ftrace_total_info", Kind::Control(1), RO, true),
    ("enabled_functions", Kind::EnabledFunctions, RO, true),
    ("error_log", Kind::ErrorLog, RW, false),
    ("failures", Kind::Control(2), RO, true),
    ("free_buffer", Kind::FreeBuffer, 0o200, false),
    ("ftraced_enabled", Kind::Ftraced, RW, true),
    ("function_profile_enabled", Kind::ProfileEnabled, RW, true),
    ("function_tracers", Kind::FunctionTracers, RW, true),
    ("kallsyms", Kind::Kallsyms, RO, true),
    ("max_graph_depth", Kind::MaxGraphDepth, RW, true),
    ("printk_formats", Kind::Empty, RO, true),
    ("saved_cmdlines", Kind::SavedCmdlines, RO, true),
    ("saved_cmdlines_size", Kind::SavedCmdlinesSize, RW, true),
    ("saved_tgids", Kind::SavedTgids, RO, true),
    ("set_event", Kind::SetEvent, RW, false),
    ("set_ftrace_filter", Kind::Filter, RW, false),
    ("set_ftrace_notrace", Kind::Notrace, RW, false),
    ("set_ftrace_notrace_pid", Kind::NotracePid, RW, false),
    ("set_ftrace_pid", Kind::Pid, RW, false),
    ("set_graph_function", Kind::GraphFunction, RW, true),
    ("set_graph_notrace", Kind::GraphNotrace, RW, true),
    ("snapshot", Kind::Snapshot, RW, false),
    ("stack_max_size", Kind::StackMaxSize, RW, true),
    ("stack_trace", Kind::StackTrace, RO, true),
    ("stack_trace_filter", Kind::StackTraceFilter, RW, true),
    ("stack_tracer_enabled", Kind::StackTracerEnabled, RW, true),
    ("timestamp_mode", Kind::TimestampMode, RO, false),
    ("touched_functions", Kind::TouchedFunctions, RO, true),
    ("trace", Kind::Trace, RW, false),
    ("trace_clock", Kind::Clock, RW, false),
    ("trace_marker", Kind::Marker, WO, false),
    ("trace_marker_raw", Kind::RawMarker, WO, false),
    ("trace_options", Kind::Options, RW, false),
    ("trace_pipe", Kind::TracePipe, RO, false),
    ("tracing_cpumask", Kind::Cpumask, RW, false),
    ("tracing_max_latency", Kind::MaxLatency, RW, false),
    ("tracing_on", Kind::TracingOn, RW, false),
    ("tracing_thresh", Kind::Threshold, RW, true),
];

const CPU_FILES: &[File] = &[
    ("buffer_size_kb", Kind::BufferKb, RW, false),
    ("snapshot", Kind::Snapshot, RW, false),
    ("snapshot_raw", Kind::RawSnapshot, RO, false),
    ("stats", Kind::Stats, RO, false),
    ("trace", Kind::Trace, RW, false),
    ("trace_pipe", Kind::TracePipe, RO, false),
    ("trace_pipe_raw", Kind::RawPipe, RO, false),
];

const DIRS: &[(&str, Dir, bool)] = &[
    ("events", Dir::Events, false),
    ("instances", Dir::Instances, true),
    ("options", Dir::Options, false),
    ("per_cpu", Dir::PerCpu, false),
    ("trace_stat", Dir::TraceStat, true),
];

/// Names in [`crate::control`] of the files of [`Kind::Control`].
pub const CONTROL: [&str; 3] = ["available_filter_functions", "dyn_ftrace_total_info", "failures"];

/// Returns the entries of a directory, except instances.
pub fn entries(dir: Dir, is_top: bool, processors: usize) -> Vec<(String, Entry)> {
    let file = |files: &[File], arg: u16| -> Vec<(String, Entry)> {
        let there = files.iter().filter(|(_, _, _, top)| is_top || !top);
        there.map(|(name, kind, ..)| ((*name).to_owned(), Entry::File(*kind, arg))).collect()
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
pub fn mode(entry: Entry) -> u16 {
    match entry {
        Entry::Dir(Dir::Events | Dir::EventsFtrace | Dir::Event(_)) => 0o755,
        Entry::Dir(_) => 0o750,
        Entry::File(Kind::Option | Kind::Stat | Kind::EventsEnable, _) => RW,
        Entry::File(kind, _) => {
            let mut all = FILES.iter().chain(CPU_FILES);
            all.find(|(_, known, ..)| *known == kind).map_or(RO, |(_, _, mode, _)| *mode)
        }
    }
}

/// Returns the name of a writable file.
pub fn name(kind: Kind) -> &'static str {
    let known = FILES.iter().find(|(_, known, ..)| *known == kind);
    known.map_or(if kind == Kind::Option { "options" } else { "calltap" }, |(name, ..)| *name)
}

//! Flags that several commands have.

use super::{Flag, Operand, Takes, choice, many, or, switch, value};

pub const INPUT: Flag = or(value("input", Some('i'), "FILE", "The trace to read."), "./calltap.data");
pub const OUTPUT: Flag = value("output", Some('o'), "FILE", "Write to this file instead of standard output.");
pub const LINKER_NAMES: Flag =
    switch("linker-names", None, "Show mangled (linker) names instead of demangled ones.");
/// Flags that select a part of a trace, the same for all commands that show one.
pub const PART: &[Flag] = &[
    value(
        "from",
        None,
        "TIME",
        "Only calls from this time on: seconds since the beginning (1.5, 300ms), a time of day (14:03:21.5), or RFC 3339.",
    ),
    value(
        "until",
        None,
        "TIME",
        "Only calls before this time; calls that cross --from or --until are cut there.",
    ),
    many(value("graph", None, "GLOB", "Only calls of these functions, with all callees.")),
    many(value("callers", None, "GLOB", "Only calls of these functions, with all callers.")),
    value(
        "longer",
        None,
        "TIME",
        "Only calls longer than this (us, ms, s); the time of shorter calls counts for their callers.",
    ),
    many(value("thread", None, "NAME|TID", "Only these threads: names (globs) or kernel thread ids.")),
];
/// `--depth` of commands that show calls.
pub const DEPTH: Flag = value(
    "depth",
    None,
    "LEVELS",
    "At most LEVELS levels of calls, counted from the functions of --graph if given.",
);
pub const FULL_NAMES: Flag = switch("full-names", None, "On a terminal: do not shorten names and lines.");
pub const NO_PAGER: Flag =
    switch("no-pager", None, "On a terminal: do not start a pager (CALLTAP_PAGER, PAGER, else less).");
pub const COLOUR: Flag = choice(
    value(
        "color",
        None,
        "WHEN",
        "Names in the colours of their modules: auto is on a terminal, unless NO_COLOR is set.",
    ),
    &["auto", "always", "never"],
    "auto",
);
pub const FUNCTION: Flag = many(value("function", Some('F'), "GLOB", "Only functions that match."));
/// `-F` of commands that show calls.
pub const PICKED: Flag = many(value(
    "function",
    Some('F'),
    "GLOB",
    "Only calls of these functions; the time of other calls counts for their callers.",
));

pub const FILTER: Flag =
    many(value("filter", Some('F'), "GLOB", "Trace only functions that match (for every tracer)."));
pub const NOTRACE: Flag = many(value(
    "notrace",
    Some('N'),
    "GLOB",
    "Do not trace functions that match, not even those that a filter names (for every tracer).",
));
pub const TRACER: Flag = many(value(
    "tracer",
    None,
    "NAME[:GLOB,...]",
    "A tracer and its own filter: function (entry and caller), function_graph (entry, return, duration; the default), or profile (calls and times are summed in the program, without events; see 'calltap report --profile').",
));
pub const ARGUMENTS: Flag = many(value(
    "arguments",
    Some('A'),
    "FUNCTION[@ITEM,...]",
    "Record arguments of the function: 'open@arg1/s,arg2/x32', 'send@req->size'; without items, all that the debugging information describes; 'all': of the functions of -F, or of all (docs/guides/arguments.md).",
));
pub const RESULTS: Flag =
    many(value("results", Some('R'), "FUNCTION[@retval/FORM]", "Record the return value of the function."));
pub const IF: Flag = many(value(
    "if",
    None,
    "[FUNCTION@]CONDITION",
    "Record only calls that satisfy the condition: 'write@arg3 > 4096'; join conditions with &&.",
));
pub const LATER: Flag = switch(
    "later",
    None,
    "Accept globs without a match: a library that the program opens later may define the functions.",
);
pub const PID: Flag = value("pid", Some('p'), "PID", "The process, by id or name.");
pub const PIDS: Flag =
    value("pid", Some('p'), "PID,...", "The processes, by id, name or program, separated by commas.");
pub const CHILDREN: Flag = switch("children", None, "With -p: also all descendants of these processes.");

pub const NO_SCHED: Flag =
    switch("no-sched", None, "Do not record context switches: when threads run and wait stays unknown.");

pub const EVENTS: Flag = value(
    "events",
    None,
    "LIST",
    "Also record events of the kernel, separated by commas: sched, the wakeups of threads, for 'calltap why' and 'locks'; syscalls, the system calls, for 'why' and 'locks', and as calls in all views; faults: page faults, migrations and signals. sched, syscalls and signals need root or CAP_PERFMON.",
);

pub const KERNEL: Flag = value(
    "kernel",
    None,
    "GLOBS",
    "Also record functions of the kernel, nested in the program's calls: globs, separated by commas ('vfs_*,ext4_*'). Needs root and a kernel with function tracers; before Linux 6.11 without returns.",
);

pub const INTERVAL: Flag = or(value("interval", None, "TIME", "Interval between updates (ms, s)."), "1s");

pub const MAX_OVERHEAD: Flag = or(
    value(
        "max-overhead",
        None,
        "PERCENT",
        "Disable the most frequently called functions to limit the cost of tracing to this share of the process's own time, of which a tenth of a processor is the least (none: no limit).",
    ),
    "5%",
);

/// How long a full buffer may hold up a program that calltap has started.
pub const MAX_WAIT: &str = "10s";

pub const BUFFER_SIZE: Flag = or(
    value(
        "buffer-size",
        None,
        "SIZE",
        "Maximum ring memory for all threads together (bytes, or with K, M, G); auto: 256M, plus 64K per thread.",
    ),
    "auto",
);

pub const STACK_SIZE: Flag = or(
    value("stack-size", None, "SIZE", "Maximum number of bytes of stack to copy at a call, up to 128K."),
    calltap_selection::DEFAULT_STACK_SIZE,
);

/// `--buffer-size` of commands that keep the newest events in the process.
pub const KEPT_SIZE: Flag = or(
    value(
        "buffer-size",
        None,
        "SIZE",
        "Ring memory in the process for all threads together (bytes, or with K, M, G); auto: 64M, plus 128K per thread, up to 576M.",
    ),
    "auto",
);

pub const MOUNTED_SIZE: Flag = or(
    value(
        "buffer-size",
        None,
        "SIZE",
        "Ring memory in the process for all threads together (bytes, or with K, M, G).",
    ),
    "64M",
);

pub const PATCH_MODE: Flag = choice(
    value(
        "patch-mode",
        None,
        "MODE",
        "How to change code that may be executing: live, while all threads run (needs membarrier); jmp3f, as live, through the short jump of the ftrace of 2008; breakpoint, as live, through breakpoints and a SIGTRAP handler in the program, which is less safe: the kernel kills a program that blocks or handles SIGTRAP meanwhile; stop_machine, with all threads stopped (works without membarrier); before-start, before the program runs (only with -- PROGRAM, where all code is changed then).",
    ),
    &["live", "jmp3f", "breakpoint", "stop_machine", "before-start"],
    "live",
);

pub const PYTHON: Flag = many(value(
    "python",
    None,
    "GLOB",
    "Trace Python functions of CPython 3.8 to 3.13 that match, as module.Class.method ('*': all; a leading '!' excludes); C functions only if -F or the query names them (docs/guides/python.md).",
));

pub const LIBCALLS: Flag = switch(
    "libcalls",
    None,
    "Also trace the program's calls into libraries, but nothing inside the libraries; -N excludes functions (docs/guides/unmodified.md).",
);

pub const ALLOW_INT3: Flag = switch(
    "allow-int3",
    None,
    "Also trace functions without room for a jump, by permanent breakpoints: each call costs a signal (1 us or more), and the kernel kills the program if it calls such a function while SIGTRAP is blocked or handled by the program (docs/explanation/safety.md).",
);

pub const DISCOVERY: Flag = choice(
    value(
        "discovery",
        None,
        "WHEN",
        "When to find calls to mcount and __fentry__ that no list in the file names: at-load, by decoding the file; first-call, when a call executes: a replacement of mcount records the call, which is converted within a second (also in code made at run time; see ftraced_enabled of 'calltap tracefs put').",
    ),
    &["at-load", "first-call"],
    "at-load",
);

pub const PATCH_LOG: Flag = value(
    "patch-log",
    None,
    "FILE",
    "Log every code change for 'calltap tools audit': some hundred bytes per function and change.",
);

/// `--time` of answers that contain times.
pub const TIME: Flag = choice(
    value(
        "time",
        None,
        "TIMES",
        "Show times as seconds since the beginning, or as the time of day, to match logs.",
    ),
    &["relative", "wall"],
    "relative",
);

/// `--input` of query commands: a trace, without a default.
pub const TRACE: Flag =
    value("input", Some('i'), "FILE", "A recorded trace, instead of a process or program.");
pub const ANSWER_PID: Flag = value(
    "pid",
    Some('p'),
    "PID,...",
    "Running processes, by id, name or program. calltap attaches to each, answers separately, and detaches.",
);
pub const ANSWER_DURATION: Flag = value(
    "duration",
    None,
    "TIME",
    "With -p: detach after this time (seconds, or a number with us, ms, s); by default at Ctrl-C, or the end of the process.",
);
pub const ANSWER_OVERHEAD: Flag = or(
    value(
        "max-overhead",
        None,
        "PERCENT",
        "With -p: disable the most frequently called functions to limit the cost of tracing to this share of the process's own time, of which a tenth of a processor is the least (none: no limit).",
    ),
    "5%",
);
pub const ANSWER_JSON: Flag = switch("json", None, "Write the answer as JSON.");

/// Flags of every query command: source (process, trace) and output.
pub const ASKED: &[Flag] = &[ANSWER_PID, CHILDREN, TRACE, OUTPUT, ANSWER_JSON, ANSWER_DURATION];
/// Flags of every query command: how the process is traced.
pub const ASKING: &[Flag] =
    &[PYTHON, NOTRACE, LATER, BUFFER_SIZE, PATCH_MODE, ALLOW_INT3, PATCH_LOG, LINKER_NAMES, FULL_NAMES];
/// Flags of live views: how the process is traced.
pub const LOOKING: &[Flag] = &[
    FILTER,
    NOTRACE,
    PYTHON,
    GRAPH,
    CALLERS,
    LEVELS,
    LATER,
    PATCH_MODE,
    ALLOW_INT3,
    PATCH_LOG,
    INTERVAL,
    MAX_OVERHEAD,
    BUFFER_SIZE,
];
/// Flags of these commands that act while calls are recorded, and not on a trace.
pub const RECORDING: &[Flag] = &[
    TRACER,
    NOTRACE,
    IF,
    LATER,
    BUFFER_SIZE,
    STACK_SIZE,
    PATCH_MODE,
    ALLOW_INT3,
    PATCH_LOG,
    LIBCALLS,
    DISCOVERY,
    EVENTS,
    KERNEL,
    NO_SCHED,
    MAX_OVERHEAD,
    CHILDREN,
    ANSWER_DURATION,
    INTERVAL,
];
/// Flags that select the calls that the recorder keeps.
pub const GRAPH: Flag =
    many(value("graph", None, "GLOB", "Keep only calls of these functions, with all callees."));
pub const CALLERS: Flag =
    many(value("callers", None, "GLOB", "Keep only calls of these functions, with all callers."));
pub const LEVELS: Flag = value(
    "depth",
    None,
    "LEVELS",
    "Keep at most LEVELS levels of calls, counted from the functions of --graph if given.",
);

pub const FUNCTIONS: Option<Operand> = Some(Operand {
    name: "FUNCTION",
    takes: Takes::ManyAndProgram,
    optional: true,
    help: "Functions (globs), unless --python names them; a last word that is a file is read, as by -i FILE.",
});
pub const FILE: Option<Operand> = Some(Operand {
    name: "FILE",
    takes: Takes::One,
    optional: true,
    help: "The trace to read, as by -i FILE.",
});
pub const WATCHED: Flag =
    value("pid", Some('p'), "PID,...", "Watch these processes, by id or name, instead of showing a trace.");
pub const SHOWN: Option<Operand> = Some(Operand {
    name: "TRACE",
    takes: Takes::One,
    optional: true,
    help: "The trace to show (./calltap.data).",
});

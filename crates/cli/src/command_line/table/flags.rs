//! Flags that several commands have.

use super::{Flag, Operand, Takes, choice, many, or, switch, value};

pub const INPUT: Flag = or(value("input", Some('i'), "FILE", "The trace to read."), "./calltap.data");
pub const OUTPUT: Flag = value("output", Some('o'), "FILE", "Write there instead of to standard output.");
pub const LINKER_NAMES: Flag =
    switch("linker-names", None, "Show symbols as the linker knows them, not demangled.");
/// Flags that select a part of a trace, the same for all commands that show one.
pub const PART: &[Flag] = &[
    value(
        "from",
        None,
        "TIME",
        "Not before: seconds since the beginning (1.5, 300ms), a time of day (14:03:21.5), or RFC 3339.",
    ),
    value("until", None, "TIME", "Before this time; calls that cross the bounds are cut."),
    many(value("graph", None, "GLOB", "Only calls of these functions, and what they call.")),
    many(value("callers", None, "GLOB", "Only calls of these functions, and the calls that lead to them.")),
    value(
        "longer",
        None,
        "TIME",
        "Only calls that take longer (us, ms, s); others count as their callers' time.",
    ),
    many(value("thread", None, "NAME|TID", "Only these threads: names as globs, or kernel thread ids.")),
];
/// `--depth` of commands that show calls.
pub const DEPTH: Flag =
    value("depth", None, "LEVELS", "Only so many levels of calls; with --graph, from its functions on.");
pub const FULL_NAMES: Flag = switch("full-names", None, "On a terminal: show names in full, and long lines.");
pub const NO_PAGER: Flag = switch(
    "no-pager",
    None,
    "On a terminal: write to it, not into a pager (CALLTAP_PAGER, PAGER, else less).",
);
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
    "Only calls of these functions; others count as their callers' time.",
));

pub const FILTER: Flag =
    many(value("filter", Some('F'), "GLOB", "Trace only functions that match (for every tracer)."));
pub const NOTRACE: Flag = many(value(
    "notrace",
    Some('N'),
    "GLOB",
    "Do not trace functions that match (for every tracer); wins over filters.",
));
pub const TRACER: Flag = many(value(
    "tracer",
    None,
    "NAME[:GLOB,...]",
    "A tracer and its own filter: function (entry and caller), function_graph (entry, return, duration; the default), or profile (calls and times are summed up in the program, no events; see 'calltap report --profile').",
));
pub const ARGUMENTS: Flag = many(value(
    "arguments",
    Some('A'),
    "FUNCTION[@ITEM,...]",
    "Read arguments of its calls, as in 'open@arg1/s,arg2/x32' or 'send@req->size'; without items all that debugging information knows (docs/arguments.md).",
));
pub const RESULTS: Flag =
    many(value("results", Some('R'), "FUNCTION[@retval/FORM]", "Read what it returns."));
pub const IF: Flag = many(value(
    "if",
    None,
    "[FUNCTION@]CONDITION",
    "Record only calls for which it holds, as in 'write@arg3 > 4096'; conditions are joined by &&.",
));
pub const LATER: Flag = switch(
    "later",
    None,
    "Accept globs that match nothing at the start: libraries opened later may have the functions.",
);
pub const PID: Flag = value("pid", Some('p'), "PID", "The process: its id, or its name.");
pub const PIDS: Flag =
    value("pid", Some('p'), "PID,...", "The processes: their ids or names, separated by commas.");
pub const CHILDREN: Flag =
    switch("children", None, "With -p: also the children of these processes, and theirs.");

pub const NO_SCHED: Flag = switch(
    "no-sched",
    None,
    "Do not record when threads run and when they wait (the kernel's context switches).",
);

pub const EVENTS: Flag = value(
    "events",
    None,
    "LIST",
    "Also record, separated by commas: sched, who wakes whom, for 'calltap why' and 'locks'; syscalls, the system calls of the threads, for these and as calls in all views (both take root or CAP_PERFMON); faults: page faults, moves to other processors, and signals (those take root or CAP_PERFMON).",
);

pub const KERNEL: Flag = value(
    "kernel",
    None,
    "GLOBS",
    "Also record functions of the kernel within the program's calls: globs, separated by commas ('vfs_*,ext4_*'). Takes root and a kernel with function tracers; before Linux 6.11 their returns are not recorded.",
);

pub const INTERVAL: Flag = or(value("interval", None, "TIME", "Interval between updates (ms, s)."), "1s");

pub const MAX_OVERHEAD: Flag = or(
    value(
        "max-overhead",
        None,
        "PERCENT",
        "Disable the most frequently called functions, so that tracing costs no more than this of the process's own time (none: no limit).",
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
        "Ring memory for all threads together, at most (bytes, or with K, M, G); auto: 256M, and 64K more for each thread.",
    ),
    "auto",
);

pub const STACK_SIZE: Flag = or(
    value(
        "stack-size",
        None,
        "SIZE",
        "Bytes of stack that are copied at a call, at most (128K is the limit).",
    ),
    calltap_selection::DEFAULT_STACK_SIZE,
);

/// `--buffer-size` of commands that keep the newest events in the process.
pub const KEPT_SIZE: Flag = or(
    value(
        "buffer-size",
        None,
        "SIZE",
        "Ring memory in the process for all threads together (bytes, or with K, M, G); auto: 64M, and 128K more for each thread, up to 576M.",
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
        "How code that may be running is changed: live, while everything runs; jmp3f, the same through the short jump of 2008; breakpoint, the same through breakpoints and a handler of SIGTRAP in the program, which can never be as safe (a program that blocks or takes over SIGTRAP meanwhile is killed); stop_machine, while all threads are stopped (also where the kernel has no membarrier); before-start, before it runs (with -- PROGRAM, where it is so anyway).",
    ),
    &["live", "jmp3f", "breakpoint", "stop_machine", "before-start"],
    "live",
);

pub const PYTHON: Flag = many(value(
    "python",
    None,
    "GLOB",
    "Trace Python functions of CPython 3.8 to 3.13 that match, as module.Class.method ('*': all; '!' in front takes away), and of C only what -F names, or a question asks about (docs/python.md).",
));

pub const LIBCALLS: Flag = switch(
    "libcalls",
    None,
    "Also trace the calls that the program makes into libraries, by the linker's stubs, and nothing inside the libraries; -N takes some away (docs/unmodified.md).",
);

pub const ALLOW_INT3: Flag = switch(
    "allow-int3",
    None,
    "Trace also those functions that have no room for a jump, by breakpoints that stay: each call costs a signal, a microsecond or more, and a program that blocks or takes over SIGTRAP later is killed when it calls one (docs/explanation/safety.md).",
);

pub const DISCOVERY: Flag = choice(
    value(
        "discovery",
        None,
        "WHEN",
        "When calls to mcount and __fentry__ are found that no list in the file names: at-load, by decoding it; first-call, when they are made, by a recorder in the place of mcount whose finds are converted once a second (also in code made at run time; see ftraced_enabled of 'calltap tracefs put').",
    ),
    &["at-load", "first-call"],
    "at-load",
);

pub const PATCH_LOG: Flag = value(
    "patch-log",
    None,
    "FILE",
    "Write down every change of code, for 'calltap tools audit'. (Large: some hundred bytes per function and change.)",
);

/// `--time` of answers that contain times.
pub const TIME: Flag = choice(
    value(
        "time",
        None,
        "TIMES",
        "Times as seconds since the beginning, or as the time of day, to match logs.",
    ),
    &["relative", "wall"],
    "relative",
);

/// `--input` of the questions: a trace, without a default.
pub const TRACE: Flag = value("input", Some('i'), "FILE", "A trace that was recorded before.");
pub const ANSWER_PID: Flag = value(
    "pid",
    Some('p'),
    "PID,...",
    "Running processes, by their ids or names; each is asked by itself, and left as it was.",
);
pub const ANSWER_DURATION: Flag = value(
    "duration",
    None,
    "TIME",
    "With -p: for how long (seconds, or a number with us, ms, s); else until Ctrl-C, or its end.",
);
pub const ANSWER_OVERHEAD: Flag = or(
    value(
        "max-overhead",
        None,
        "PERCENT",
        "With -p: disable the most frequently called functions, so that tracing costs no more than this of the process's own time (none: no limit).",
    ),
    "5%",
);
pub const ANSWER_JSON: Flag = switch("json", None, "The answer as JSON.");

/// Flags of all questions: whom they ask, and how the answer is written.
pub const ASKED: &[Flag] = &[ANSWER_PID, CHILDREN, TRACE, OUTPUT, ANSWER_JSON, ANSWER_DURATION];
/// Flags of all questions: how the process is traced.
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
/// Flags that select the calls that the recorder keeps.
pub const GRAPH: Flag =
    many(value("graph", None, "GLOB", "Keep only calls of these functions, and what they call."));
pub const CALLERS: Flag = many(value(
    "callers",
    None,
    "GLOB",
    "Keep only calls of these functions, and the calls that lead to them.",
));
pub const LEVELS: Flag =
    value("depth", None, "LEVELS", "Keep only so many levels of calls; with --graph, from its functions on.");

pub const FUNCTIONS: Option<Operand> = Some(Operand {
    name: "FUNCTION",
    takes: Takes::ManyAndProgram,
    optional: true,
    help: "Functions, as globs, unless --python has them; last a trace to read, as -i FILE.",
});
pub const FILE: Option<Operand> =
    Some(Operand { name: "FILE", takes: Takes::One, optional: true, help: "The trace to read, as -i FILE." });
pub const WATCHED: Flag = value(
    "pid",
    Some('p'),
    "PID,...",
    "Watch these processes, by their ids or names, instead of showing a trace.",
);
pub const SHOWN: Option<Operand> = Some(Operand {
    name: "TRACE",
    takes: Takes::One,
    optional: true,
    help: "The trace to show (./calltap.data).",
});

//! Recording: the command that writes a trace.

use super::flags::{
    ALLOW_INT3, ANSWER_DURATION, ANSWER_OVERHEAD, ARGUMENTS, BUFFER_SIZE, CALLERS, CHILDREN, DISCOVERY,
    EVENTS, FILTER, GRAPH, IF, KERNEL, LATER, LEVELS, LIBCALLS, MAX_WAIT, NO_SCHED, NOTRACE, PATCH_LOG,
    PATCH_MODE, PYTHON, RESULTS, TRACER,
};
use super::{Command, Operand, Takes, choice, many, or, switch, value};

/// The commands.
pub const RECORD: &[Command] = &[Command {
    name: "record",
    about: "Run a program, or attach to a running process, and record every call into a trace file",
    details: "Starts the program with the agent inside and switches the wanted functions on before its first instruction runs. \
                  Signals, terminal, output and exit status pass through untouched; a summary goes to standard error at the end.\n\n\
                  A function can be traced if the compiler left room for it: -fpatchable-function-entry=5 (gcc, clang), \
                  -Z patchable-function-entry=5 (rustc), -pg, -pg -mfentry, with or without -mrecord-mcount, \
                  -fxray-instrument (clang), -Z instrument-xray (rustc); \
                  where it left none anywhere, or a filter names the function, by relocating its prologue.\n\n\
                  A function is named by as much of its name as distinguishes it: handle, Srv::handle, Srv::handle(int); with wildcards *, ?, [...]; with its module in front, 'libssl:SSL_*' (docs/reference/names.md).",
    flags: &[&[
        or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data"),
        value(
            "repeat",
            None,
            "N",
            "Record the program N times, one after the other, into FILE.1 to FILE.N, for 'calltap diff'. A run that fails is the last. K/N: begin with the K-th.",
        ),
        value(
            "pid",
            Some('p'),
            "PID,...",
            "Attach to this process, by id or name, and leave it as it was at the end. Several, separated by commas: a trace of each, FILE.PID.",
        ),
        CHILDREN,
        ANSWER_OVERHEAD,
        ANSWER_DURATION,
        FILTER,
        NOTRACE,
        TRACER,
        ARGUMENTS,
        RESULTS,
        IF,
        LIBCALLS,
        PYTHON,
        switch(
            "async",
            None,
            "Programs in Rust: trace the poll functions of futures, for 'calltap futures'; -F adds functions. Programs in Python: coroutines (other functions with --python).",
        ),
        choice(
            value(
                "clock",
                None,
                "CLOCK",
                "Where times come from: tsc at every event; sparse: tsc once per 14 events, interpolated; coarse: a 1 ms tick; counter: order only.",
            ),
            &["tsc", "sparse", "coarse", "counter"],
            "tsc",
        ),
        BUFFER_SIZE,
        switch(
            "overwrite",
            None,
            "Keep only the newest events of each thread (flight recorder) instead of streaming.",
        ),
        or(
            value(
                "max-wait",
                None,
                "TIME",
                "With -- PROGRAM: how long a full buffer may hold up a thread while the recorder works, before calls are counted as lost (us, ms, s). A process that is attached to is never held up.",
            ),
            MAX_WAIT,
        ),
        switch(
            "fail-on-loss",
            None,
            "Exit with status 3 if events were lost and the program itself has not failed.",
        ),
        many(value(
            "slow",
            None,
            "RULE",
            "Keep only what happens beneath calls that take longer, as in 'handle_request>10ms' (the function may be a glob).",
        )),
        or(
            value(
                "slow-memory",
                None,
                "SIZE",
                "With --slow: memory for events of calls that have not reached their limit (bytes, or with K, M, G).",
            ),
            "128M",
        ),
        GRAPH,
        CALLERS,
        LEVELS,
        many(value(
            "on",
            None,
            "FUNCTION:ACTION[:COUNT]",
            "On a call of FUNCTION: trace_on, trace_off, snapshot (as --snapshot-on), or depth=N, which keeps N levels of calls, FUNCTION being the first; at most COUNT times. With any trace_on, recording starts switched off.",
        )),
        many(value(
            "snapshot-on",
            None,
            "EVENT",
            "Keep the newest events in memory, and write them to a file (FILE.1, FILE.2, ...) when it happens: 'FUNCTION>TIME', signal (SIGUSR1 to calltap), crash, exit.",
        )),
        or(
            value("last", None, "TIME", "With --snapshot-on: keep the events of this last period (ms, s)."),
            "10s",
        ),
        or(
            value(
                "history",
                None,
                "SIZE",
                "With --snapshot-on: maximum memory for compressed events (bytes, or with K, M, G).",
            ),
            "64M",
        ),
        or(value("snapshots", None, "N", "With --snapshot-on: maximum number of files."), "10"),
        switch(
            "follow",
            None,
            "Also record the programs that its processes become (execve), and their children, until the last has ended: one trace for the tree.",
        ),
        NO_SCHED,
        EVENTS,
        KERNEL,
        PATCH_MODE,
        ALLOW_INT3,
        DISCOVERY,
        PATCH_LOG,
        LATER,
        switch("quiet", Some('q'), "No summary; losses are reported all the same."),
    ]],
    operand: Some(Operand {
        name: "PROGRAM",
        takes: Takes::Rest,
        optional: true,
        help: "The program and its arguments.",
    }),
}];

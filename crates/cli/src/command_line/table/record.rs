//! Recording: the command that writes a trace.

use super::flags::{
    ALLOW_INT3, ANSWER_DURATION, ANSWER_OVERHEAD, ARGUMENTS, BUFFER_SIZE, CALLERS, CHILDREN, DISCOVERY,
    EVENTS, FILTER, GRAPH, IF, KERNEL, LATER, LEVELS, LIBCALLS, MAX_WAIT, NO_SCHED, NOTRACE, PATCH_LOG,
    PATCH_MODE, PYTHON, RESULTS, TRACER,
};
use super::{Command, Operand, Takes, choice, many, or, switch, value, with};

/// Flags of which one makes snapshots.
const SNAPSHOTS: &[&str] = &["snapshot-on", "on"];

/// The commands.
pub const RECORD: &[Command] = &[Command {
    name: "record",
    about: "Run a program, or attach to a running process, and record every call into a trace file",
    details: "Starts the program with the agent, and enables the selected functions before the \
              program's first instruction runs. Signals, terminal, output and exit status pass \
              through unchanged; a summary is written to standard error at the end.\n\n\
              A function can be traced if the compiler reserved room for it: \
              -fpatchable-function-entry=5 (gcc, clang), -Z patchable-function-entry=5 (rustc), \
              -pg, -pg -mfentry, with or without -mrecord-mcount, -fxray-instrument (clang), -Z \
              instrument-xray (rustc). In a program without any such room, or if a filter names \
              the function, calltap relocates the function's prologue instead.\n\n\
              A function is named by any part of its name that identifies it: handle, Srv::handle, \
              Srv::handle(int); with wildcards *, ?, [...]; with its module in front, \
              'libssl:SSL_*' (docs/reference/names.md).",
    flags: &[&[
        or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data"),
        value(
            "repeat",
            None,
            "N",
            "Record N runs into FILE.1 ... FILE.N, for 'calltap diff'; stops at the first failed run. K/N starts at run K.",
        ),
        value(
            "pid",
            Some('p'),
            "PID,...",
            "Attach to this process (id or name), and detach at the end. Several processes, separated by commas, have a trace each, FILE.PID.",
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
            "In Rust programs: trace the poll functions of futures, for 'calltap futures'; -F adds functions. In Python programs: trace coroutines; --python adds functions.",
        ),
        choice(
            value(
                "clock",
                None,
                "CLOCK",
                "Source of times. tsc: at every event; sparse: tsc once per 14 events, interpolated; coarse: a 1 ms tick; counter: order only.",
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
                "With -- PROGRAM: how long a thread with a full buffer waits for the recorder before its calls are counted as lost (us, ms, s). Threads of an attached process never wait.",
            ),
            MAX_WAIT,
        ),
        switch("fail-on-loss", None, "Exit with status 3 if events were lost and the program succeeded."),
        many(value(
            "slow",
            None,
            "FUNCTION>TIME",
            "Keep only calls longer than TIME, with their callees: 'handle_request>10ms' (the function may be a glob).",
        )),
        with(
            or(
                value(
                    "slow-memory",
                    None,
                    "SIZE",
                    "With --slow: memory for the events of open calls that have not reached TIME (bytes, or with K, M, G).",
                ),
                "128M",
            ),
            &["slow"],
        ),
        GRAPH,
        CALLERS,
        LEVELS,
        many(value(
            "on",
            None,
            "FUNCTION:ACTION[:COUNT]",
            "At a call of FUNCTION: trace_on, trace_off, snapshot (as --snapshot-on), or depth=N, which keeps N levels of calls, FUNCTION being the first; at most COUNT times. With any trace_on, recording is off at the start.",
        )),
        many(value(
            "snapshot-on",
            None,
            "EVENT",
            "Keep the newest events in memory, and write them to a file (FILE.1, FILE.2, ...) at each EVENT: 'FUNCTION>TIME', signal (SIGUSR1 to calltap), crash, exit.",
        )),
        with(
            or(
                value(
                    "last",
                    None,
                    "TIME",
                    "With --snapshot-on: keep the events of this last period (ms, s).",
                ),
                "10s",
            ),
            SNAPSHOTS,
        ),
        with(
            or(
                value(
                    "history",
                    None,
                    "SIZE",
                    "With --snapshot-on: maximum memory for compressed events (bytes, or with K, M, G).",
                ),
                "64M",
            ),
            SNAPSHOTS,
        ),
        with(
            or(value("snapshots", None, "N", "With --snapshot-on: maximum number of files."), "10"),
            SNAPSHOTS,
        ),
        switch(
            "follow",
            None,
            "Follow execve and fork until the last process has ended: one trace of the whole process tree.",
        ),
        NO_SCHED,
        EVENTS,
        KERNEL,
        PATCH_MODE,
        ALLOW_INT3,
        DISCOVERY,
        PATCH_LOG,
        LATER,
        switch("quiet", Some('q'), "Write no summary; losses are still reported."),
    ]],
    operand: Some(Operand {
        name: "PROGRAM",
        takes: Takes::Rest,
        optional: true,
        help: "The program and its arguments.",
    }),
}];

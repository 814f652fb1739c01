//! Commands that show, compare and convert traces.

use super::flags::{
    COLOUR, DEPTH, FILE, FULL_NAMES, FUNCTION, INPUT, LINKER_NAMES, NO_PAGER, OUTPUT, PART, PICKED,
};
use super::{Command, Operand, Takes, choice, choices, many, or, switch, value};

/// The commands.
pub const TRACES: &[Command] = &[
    Command {
        name: "report",
        about: "Show a table of functions: calls, total and own time",
        details: "Total time counts the outermost call of a recursion once; average, minimum, maximum, standard deviation and percentiles are per call. \
                  A percentile (p50, p90, p99, p99.9) is off by less than 0.8 % of itself; the others are exact.",
        flags: &[
            &[
                switch(
                    "profile",
                    None,
                    "What the profile tracer has summed up instead (record --tracer profile): calls, total, average, longest.",
                ),
                value(
                    "pid",
                    Some('p'),
                    "PID",
                    "With --profile: of a process that is attached to or recorded, until now.",
                ),
                INPUT,
                OUTPUT,
                NO_PAGER,
                COLOUR,
                choice(
                    value("format", None, "FORMAT", "Form of the table."),
                    &["text", "csv", "json"],
                    "text",
                ),
                choice(
                    value("sort", Some('s'), "COLUMN", "Column to sort by."),
                    calltap_analysis::report::Column::NAMES,
                    "total",
                ),
                value(
                    "columns",
                    None,
                    "LIST",
                    "Columns with numbers, separated by commas: those to sort by, also p50, p90, p99, p99.9.",
                ),
                FUNCTION,
                DEPTH,
                switch("by-thread", None, "A row for every function and thread."),
                switch(
                    "lines",
                    None,
                    "Show the source line of each function, where debugging information of the same build is at hand, and of Python functions.",
                ),
                choices(
                    value(
                        "by",
                        None,
                        "WHAT",
                        "A row for each goroutine of Go programs: who started it, with which function, and how long it waited.",
                    ),
                    &["goroutine"],
                ),
                value("limit", Some('n'), "ROWS", "At most so many rows."),
                LINKER_NAMES,
                FULL_NAMES,
            ],
            PART,
        ],
        operand: FILE,
    },
    Command {
        name: "diff",
        about: "Compare two traces, or several with several: which functions differ, beyond the noise",
        details: "With several recordings a side ('calltap record --repeat 5 -o A -- PROGRAM') their means are compared, and a change is beyond the noise if its confidence \
                  interval, by how the recordings of each side differ from each other, leaves no other answer, and it is at least --min-change. Write globs in quotes, \
                  'A.*' 'B.*', or put -- between the sides: A.1 A.2 -- B.1 B.2, with all flags in front.\n\n\
                  With one recording a side, calls are compared exactly. A time differs if it does by more than four standard errors, as the single calls in both traces vary, and by at least \
                  --min-change; of a percentile, if the ranges in which it lies do not meet. In the table ~ stands before a change within the noise, ? where calls are too few \
                  to tell. A function is its name and the name of its module's file; both traces may be of different builds. Traces of different clocks are compared \
                  by calls alone.\n\n\
                  --fail-if 'MEASURE(FUNCTION)>BOUND', for use in scripts: MEASURE is total, self, calls, avg, p50, p90, p99, p99.9, max, cpu, runnable, blocked or tracing, in B; FUNCTION a name or glob; \
                  > may be >=, < or <=; BOUND is a ratio to A (1.1x), a time (5ms) or a number of calls. If it is proven to hold of any function it matches, with its whole confidence \
                  interval, the exit code is 3, and standard error says of which. Conditions on times need five recordings a side; with fewer the exit code is 4. \
                  (1: the comparison could not be made; 2: a wrong command line.)",
        flags: &[&[
            OUTPUT,
            NO_PAGER,
            choice(value("format", None, "FORMAT", "Form of the comparison."), &["text", "json"], "text"),
            switch("json", None, "The same as --format json: everything that is known, of all functions."),
            switch("paths", None, "By call path instead of by function."),
            many(value(
                "fail-if",
                None,
                "CONDITION",
                "Exit with 3 if it is proven to hold, as 'total(f)>1.1x'.",
            )),
            value(
                "columns",
                None,
                "LIST",
                "What to show, of total, self, calls, avg, p50, p90, p99, p99.9, max, cpu, runnable, blocked, tracing (total,self,calls,p50,p99).",
            ),
            choice(
                value("sort", Some('s'), "COLUMN", "The largest differences of this first."),
                calltap_analysis::diff::Measure::NAMES,
                "total",
            ),
            switch("all", Some('a'), "Also what does not differ beyond the noise."),
            or(
                value(
                    "min-change",
                    None,
                    "PERCENT",
                    "Times that differ by less are the same (none: no limit).",
                ),
                "5%",
            ),
            FUNCTION,
            value("limit", Some('n'), "ROWS", "At most so many rows."),
            LINKER_NAMES,
            FULL_NAMES,
        ]],
        operand: Some(Operand {
            name: "TRACE",
            takes: Takes::ManyAndMore,
            optional: false,
            help: "Two traces or globs: A, and B, which is compared with it.",
        }),
    },
    Command {
        name: "replay",
        about: "Show the calls as they happened, in ftrace's function_graph form",
        details: "Marks before a duration: $ over 1 s, @ 100 ms, * 10 ms, # 1 ms, ! 100 us, + 10 us.\n\n\
                  calltap replay --graph handle_request --longer 100us --time wall\n\
                  calltap replay --from 14:03:21.5 --until 14:03:22 --depth 3",
        flags: &[
            &[
                INPUT,
                OUTPUT,
                NO_PAGER,
                COLOUR,
                choice(
                    value(
                        "time",
                        None,
                        "TIMES",
                        "Begin lines with seconds since the beginning, or the time of day.",
                    ),
                    &["relative", "wall", "none"],
                    "none",
                ),
                choice(
                    value("format", None, "FORMAT", "Form: JSON has an object for each event, one per line."),
                    &["text", "json"],
                    "text",
                ),
                PICKED,
                DEPTH,
                value("limit", Some('n'), "LINES", "At most so many lines."),
                switch(
                    "lines",
                    None,
                    "Show the source line of each function, where debugging information of the same build is at hand, and of Python functions.",
                ),
                switch("no-sched", None, "Leave out when threads were blocked, or waited for a processor."),
                LINKER_NAMES,
                FULL_NAMES,
            ],
            PART,
        ],
        operand: FILE,
    },
    Command {
        name: "graph",
        about: "Show the call graph: of the program, or callers and callees of one function",
        details: "",
        flags: &[
            &[
                INPUT,
                OUTPUT,
                NO_PAGER,
                COLOUR,
                choice(
                    value("format", None, "FORMAT", "Form: of JSON a list of nodes, each with its parent's."),
                    &["text", "json"],
                    "text",
                ),
                value("function", Some('F'), "NAME", "Callers above and callees below this function."),
                value("depth", None, "LEVELS", "At most so many levels."),
                value("min-percent", None, "PERCENT", "Leave out paths with a smaller share of the time."),
                LINKER_NAMES,
                FULL_NAMES,
            ],
            PART,
        ],
        operand: FILE,
    },
    Command {
        name: "info",
        about: "Show what a trace holds: program, host, threads, modules, tracers, losses",
        details: "",
        flags: &[&[
            INPUT,
            OUTPUT,
            NO_PAGER,
            choice(value("format", None, "FORMAT", "Form."), &["text", "json"], "text"),
        ]],
        operand: FILE,
    },
    Command {
        name: "export",
        about: "Convert a trace for other viewers",
        details: "perfetto: protobuf for ui.perfetto.dev and trace_processor, which show calls 512 deep: deeper ones are counted. \
                  chrome: JSON trace events. flamegraph: a self-contained SVG. folded: stacks with nanoseconds, for flame graph \
                  tools. csv: one line per call. speedscope: a profile of every thread. pprof: calls and times by call path, for 'go tool pprof'. callgrind: for \
                  KCachegrind and callgrind_annotate. firefox: samples, for profiler.firefox.com; each stands for what a call path took in a slice of the time. \
                  trace-cmd: a trace.dat for 'trace-cmd report -i FILE' and KernelShark (which wants names that end in .dat). parquet: a row per call, in a dataset by host, process and day in the directory named by -o; docs/fleet.md has its columns. otlp: OpenTelemetry spans of the functions that -F names, \
                  as lines of JSON for the collector's otlpjsonfile receiver.\n\n\
                  In a trace.dat each thread has a processor of its own while it lives; one that starts later gets that of one that has ended. Blanks in names become underscores \
                  (none are left after commas), because there a name ends at the first. What was lost is shown as dropped events, calls that had not returned have no end, depths over 500 are shown as 500, and a program's \
                  module is moved to other addresses where another program of the trace has its own.",
        flags: &[
            &[
                INPUT,
                OUTPUT,
                choice(
                    value("to", None, "FORMAT", "What to write."),
                    &[
                        "perfetto",
                        "chrome",
                        "flamegraph",
                        "folded",
                        "csv",
                        "speedscope",
                        "pprof",
                        "callgrind",
                        "firefox",
                        "trace-cmd",
                        "parquet",
                        "otlp",
                    ],
                    "perfetto",
                ),
                choice(
                    value(
                        "format-version",
                        None,
                        "VERSION",
                        "With --to trace-cmd: the version of trace.dat. All trace-cmd and KernelShark read 6; 7 needs trace-cmd 3.",
                    ),
                    &["6", "7"],
                    "6",
                ),
                choice(
                    value(
                        "by",
                        None,
                        "TIME",
                        "With --to flamegraph or folded: all time of calls (wall), or what of it threads ran, had no processor, or slept.",
                    ),
                    calltap_analysis::paths::By::NAMES,
                    "wall",
                ),
                many(value(
                    "function",
                    Some('F'),
                    "GLOB",
                    "Only calls of these functions; others count as their callers' time. With --to otlp: functions that become spans.",
                )),
                value(
                    "trace-id",
                    None,
                    "ARGUMENT",
                    "With --to otlp: the argument (recorded by -A) that says which trace a call is part of, in whatever thread.",
                ),
                DEPTH,
                LINKER_NAMES,
            ],
            PART,
        ],
        operand: FILE,
    },
    Command {
        name: "import",
        about: "Make a trace of a trace.dat of trace-cmd's, for all views, diff and exports",
        details: "Files of versions 6 and 7, also compressed ones. Functions of the kernel (tracers function and function_graph) become functions of the module [kernel] or of \
                  its modules; system calls (raw_syscalls) become calls of sys_NAME, and with sched_switch and sched_waking what 'calltap record --events sched,syscalls' \
                  records. Events of other kinds are counted. docs/import.md has what a trace.dat does not tell.\n\n\
                  trace-cmd record -C mono -e sched_switch -e sched_waking -e raw_syscalls -o trace.dat -- ./prog\n\
                  calltap import trace.dat -o kernel.data; calltap report kernel.data",
        flags: &[&[or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data")]],
        operand: Some(Operand {
            name: "FILE",
            takes: Takes::One,
            optional: false,
            help: "The trace.dat to read.",
        }),
    },
    Command {
        name: "merge",
        about: "Put recordings of one machine on one timeline, as one trace for all views and exports",
        details: "Traces of calltap, and trace.dat files of trace-cmd. Times are related by the clocks of the recordings: what was recorded by the processor's counter \
                  (calltap's tsc, trace-cmd's -C x86-tsc) needs no conversion, and the kernel's calls of a thread are then within the program's calls of that thread. CLOCK_MONOTONIC \
                  (calltap's coarse, -C mono) can be related to all of calltap's clocks but counter. Recordings whose clocks cannot be related are refused.\n\n\
                  calltap merge calltap.data trace.dat -o merged.data; calltap why 'handle>10ms' merged.data",
        flags: &[&[or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data")]],
        operand: Some(Operand {
            name: "FILE",
            takes: Takes::Many,
            optional: false,
            help: "The recordings: traces of calltap's, and trace.dat files.",
        }),
    },
];

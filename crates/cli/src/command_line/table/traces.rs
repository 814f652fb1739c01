//! Commands that show, compare and convert traces.

use super::flags::{
    COLOUR, DEPTH, FILE, FULL_NAMES, FUNCTION, INPUT, LINKER_NAMES, NO_PAGER, OUTPUT, PART, PICKED,
};
use super::{Command, Operand, Takes, choice, choices, many, or, switch, value};
use calltap_export::FORMATS;

/// Names of the formats of `export`: files, and the dataset.
const FORMAT_NAMES: [&str; FORMATS.len() + 1] = {
    let mut names = ["parquet"; FORMATS.len() + 1];
    let mut n = 0;
    while n < FORMATS.len() {
        names[n] = FORMATS[n].name;
        n += 1;
    }
    names
};

/// The commands.
pub const TRACES: &[Command] = &[
    Command {
        name: "report",
        about: "Show a table of functions: calls, total and own time",
        details: "The total time counts the outermost call of a recursion once; average, minimum, \
                  maximum, standard deviation and percentiles are per call. Percentiles (p50, p90, \
                  p99, p99.9) have a relative error below 0.8 %; the other columns are exact.",
        flags: &[
            &[
                switch(
                    "profile",
                    None,
                    "Show the sums of the profile tracer (record --tracer profile) instead of events.",
                ),
                value(
                    "pid",
                    Some('p'),
                    "PID",
                    "With --profile: an attached or recorded process, instead of a trace.",
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
                    "Numeric columns, separated by commas; the names are those of --sort.",
                ),
                FUNCTION,
                DEPTH,
                switch("by-thread", None, "A row for every function and thread."),
                switch(
                    "lines",
                    None,
                    "Show the source line of each Python function, and of each function with debugging information of the same build.",
                ),
                choices(
                    value(
                        "by",
                        None,
                        "WHAT",
                        "A row for each goroutine of Go programs: its starter, its function, and how long it waited.",
                    ),
                    &["goroutine"],
                ),
                value("limit", Some('n'), "ROWS", "At most ROWS rows."),
                LINKER_NAMES,
                FULL_NAMES,
            ],
            PART,
        ],
        operand: FILE,
    },
    Command {
        name: "diff",
        about: "Compare two traces, or two groups of traces: functions that differ by more than the noise",
        details: "With several recordings per side, made in turn ('calltap record -o A.1 -- \
                  PROGRAM', then B.1, A.2, B.2 ...), calltap compares their means. A difference \
                  is beyond the noise if its confidence interval, computed from the variation \
                  between the recordings of a side, excludes zero, and if the difference is at \
                  least --min-change. Quote globs, 'A.*' 'B.*', \
                  or separate the sides by --: A.1 A.2 -- B.1 B.2, after all options.\n\n\
                  With one recording per side, numbers of calls are compared exactly. A time \
                  differs if the difference exceeds four standard errors, by the variance of \
                  single calls in both traces, and --min-change; a percentile differs if its \
                  ranges in both traces are disjoint. In the table ~ marks a change within the \
                  noise, and ? too few calls. Functions are matched by name and file name of their \
                  module, so the traces may be of different builds. Of traces with different \
                  clocks only numbers of calls are compared.\n\n\
                  --fail-if 'MEASURE(FUNCTION)>BOUND', for scripts: MEASURE is total, self, calls, \
                  avg, p50, p90, p99, p99.9, max, cpu, runnable, blocked or tracing, in B; \
                  FUNCTION is a name or glob; > may be >=, < or <=; BOUND is a ratio to A (1.1x), \
                  a time (5ms) or a number of calls. The exit status is 3 if the condition is \
                  proven for a matching function, with its whole confidence interval; standard \
                  error names the function. Conditions on times need five recordings per side, and \
                  for a ratio made in turn; otherwise the status is 4. max takes no ratio: a maximum \
                  is one call. (1: wrong usage, or the comparison is impossible.)",
        flags: &[&[
            OUTPUT,
            NO_PAGER,
            choice(value("format", None, "FORMAT", "Form of the comparison."), &["text", "json"], "text"),
            switch("json", None, "Same as --format json: all data of all functions."),
            switch("paths", None, "Compare call paths instead of functions."),
            many(value(
                "fail-if",
                None,
                "CONDITION",
                "Exit with 3 if the condition is proven: 'total(f)>1.1x'.",
            )),
            value(
                "columns",
                None,
                "LIST",
                "Columns to show: total, self, calls, avg, p50, p90, p99, p99.9, max, cpu, runnable, blocked, tracing (total,self,calls,p50,p99).",
            ),
            choice(
                value("sort", Some('s'), "COLUMN", "Sort by the difference of this column, largest first."),
                calltap_analysis::diff::Measure::NAMES,
                "total",
            ),
            switch("all", Some('a'), "Also functions whose change is within the noise."),
            or(
                value("min-change", None, "PERCENT", "Ignore smaller differences of times (none: no limit)."),
                "5%",
            ),
            FUNCTION,
            value("limit", Some('n'), "ROWS", "At most ROWS rows."),
            LINKER_NAMES,
            FULL_NAMES,
        ]],
        operand: Some(Operand {
            name: "TRACE",
            takes: Takes::ManyAndMore,
            optional: false,
            help: "Two traces or globs: A, the base, and B, which is compared with A.",
        }),
    },
    Command {
        name: "replay",
        about: "Show the calls in order of time, in ftrace's function_graph form",
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
                        "Start lines with seconds since the beginning, or with the time of day.",
                    ),
                    &["relative", "wall", "none"],
                    "none",
                ),
                choice(
                    value(
                        "format",
                        None,
                        "FORMAT",
                        "Form of the output; json: one object per event and line.",
                    ),
                    &["text", "json"],
                    "text",
                ),
                PICKED,
                DEPTH,
                value("limit", Some('n'), "LINES", "At most LINES lines."),
                switch(
                    "lines",
                    None,
                    "Show the source line of each Python function, and of each function with debugging information of the same build.",
                ),
                switch(
                    "no-sched",
                    None,
                    "Omit the times in which threads were blocked, or waited for a processor.",
                ),
                LINKER_NAMES,
                FULL_NAMES,
            ],
            PART,
        ],
        operand: FILE,
    },
    Command {
        name: "graph",
        about: "Show the call graph of the program, or the callers and callees of one function",
        details: "",
        flags: &[
            &[
                INPUT,
                OUTPUT,
                NO_PAGER,
                COLOUR,
                choice(
                    value(
                        "format",
                        None,
                        "FORMAT",
                        "Form of the output; json: a list of nodes, each with the number of its parent.",
                    ),
                    &["text", "json"],
                    "text",
                ),
                many(value(
                    "function",
                    Some('F'),
                    "NAME",
                    "Show callers above and callees below these functions.",
                )),
                value("depth", None, "LEVELS", "At most LEVELS levels."),
                value("min-percent", None, "PERCENT", "Omit paths with a smaller share of the time."),
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
            choice(value("format", None, "FORMAT", "Form of the output."), &["text", "json"], "text"),
        ]],
        operand: FILE,
    },
    Command {
        name: "export",
        about: "Convert a trace for other viewers",
        details: "perfetto: protobuf for ui.perfetto.dev and trace_processor, which display 512 \
                  levels of calls; deeper calls are counted. chrome: JSON trace events. \
                  flamegraph: a self-contained SVG. folded: stacks with nanoseconds, for flame \
                  graph tools. csv: one line per call. speedscope: a profile per thread. pprof: \
                  calls and times by call path, for 'go tool pprof'. callgrind: for KCachegrind \
                  and callgrind_annotate. firefox: samples for profiler.firefox.com, each of which \
                  stands for the time of a call path in a slice of the recording. trace-cmd: a \
                  trace.dat for 'trace-cmd report -i FILE' and KernelShark (which opens only names \
                  that end in .dat). parquet: a row per call, in a dataset by host, process and \
                  day in the directory of -o; docs/guides/fleet.md lists its columns. otlp: OpenTelemetry \
                  spans of the functions of -F, as lines of JSON for the otlpjsonfile receiver of \
                  the collector.\n\n\
                  In a trace.dat each thread has a processor of its own during its life; a later \
                  thread reuses the processor of an ended one. Blanks in names become underscores, \
                  or are removed after commas, because the format ends a name at a blank. Lost \
                  events are shown as dropped events; calls that have not returned have no end; \
                  depths over 500 are shown as 500; the module of a program is moved to other \
                  addresses if another program of the trace occupies them.",
        flags: &[
            &[
                INPUT,
                OUTPUT,
                choice(value("to", None, "FORMAT", "Format to write."), &FORMAT_NAMES, FORMATS[0].name),
                choice(
                    value(
                        "format-version",
                        None,
                        "VERSION",
                        "With --to trace-cmd: version of trace.dat. Every trace-cmd and KernelShark reads 6; 7 needs trace-cmd 3.",
                    ),
                    &["6", "7"],
                    "6",
                ),
                choice(
                    value(
                        "by",
                        None,
                        "TIME",
                        "With --to flamegraph or folded: time to show. wall: all time of calls; cpu: on a processor; runnable: waiting for a processor; blocked: sleeping; tracing: held by calltap.",
                    ),
                    calltap_analysis::paths::By::NAMES,
                    "wall",
                ),
                many(value(
                    "function",
                    Some('F'),
                    "GLOB",
                    "Only calls of these functions; the time of other calls counts for their callers. With --to otlp: the functions that become spans.",
                )),
                value(
                    "trace-id",
                    None,
                    "ARGUMENT",
                    "With --to otlp: the argument (recorded by -A) that identifies the trace of a call, across threads.",
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
        about: "Convert a trace.dat of trace-cmd to a trace of calltap, for all views, diff and exports",
        details: "Reads files of versions 6 and 7, compressed ones included. Functions of the \
                  kernel (tracers function and function_graph) become functions of the module \
                  [kernel] or of the kernel's modules; system calls (raw_syscalls) become calls of \
                  sys_NAME; sched_switch and sched_waking become the events of 'calltap record \
                  --events sched,syscalls'. Events of other kinds are counted. docs/guides/import.md \
                  lists the limits of a trace.dat.\n\n\
                  trace-cmd record -C mono -e sched_switch -e sched_waking -e raw_syscalls -o \
                  trace.dat -- ./prog\n\
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
        about: "Merge recordings of one machine into one trace with one timeline, for all views and exports",
        details: "Merges traces of calltap, and trace.dat files of trace-cmd, by their clocks. \
                  Recordings by the processor's counter (calltap's tsc, trace-cmd's -C x86-tsc) \
                  need no conversion, and kernel calls of a thread are then nested in the \
                  program's calls of that thread. CLOCK_MONOTONIC (calltap's coarse, -C mono) can \
                  be related to all clocks of calltap except counter. Recordings whose clocks \
                  cannot be related are refused.\n\n\
                  calltap merge calltap.data trace.dat -o merged.data; calltap why 'handle>10ms' \
                  merged.data",
        flags: &[&[or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data")]],
        operand: Some(Operand {
            name: "FILE",
            takes: Takes::Many,
            optional: false,
            help: "The recordings: traces of calltap, and trace.dat files.",
        }),
    },
];

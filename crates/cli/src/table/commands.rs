//! The commands.

use super::flags::*;
use super::{Command, Operand, Takes, choice, many, or, switch, value};

/// All commands.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "record",
        about: "Run a program, or attach to a running process, and record every call into a trace file",
        details: "Starts the program with the agent inside and switches the wanted functions on before its first instruction runs. \
                  Signals, terminal, output and exit status pass through untouched; a summary goes to standard error at the end.\n\n\
                  A function can be traced if the compiler left room for it: -fpatchable-function-entry=5 (gcc, clang), \
                  -Z patchable-function-entry=5 (rustc), -pg, -pg -mfentry, with or without -mrecord-mcount, \
                  -fxray-instrument (clang), -Z instrument-xray (rustc); \
                  where it left none anywhere, or a filter names the function, as it is.\n\n\
                  Globs are those of ftrace: *, ?, [...] and \\ ; they match linker symbols and demangled names.",
        flags: &[&[
            or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data"),
            value(
                "repeat",
                None,
                "N",
                "Record the program N times, one after the other, into FILE.1 to FILE.N, for 'calltap diff'. A run that fails is the last. K/N: begin with the K-th.",
            ),
            value("pid", Some('p'), "PID", "Attach to this process, and leave it as it was at the end."),
            ANSWER_OVERHEAD,
            ANSWER_DURATION,
            FILTER,
            NOTRACE,
            TRACER,
            ARGUMENTS,
            RESULTS,
            IF,
            switch(
                "async",
                None,
                "Programs in Rust: trace what polls futures, and which one, for 'calltap futures' (nothing else, but with -F what that names).",
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
                    "With --slow: what may be held back of calls that are not slow yet (bytes, or with K, M, G).",
                ),
                "128M",
            ),
            many(value(
                "snapshot-on",
                None,
                "EVENT",
                "Keep the newest events in memory, and write them to a file (FILE.1, FILE.2, ...) when it happens: 'FUNCTION>TIME', signal (SIGUSR1 to calltap), crash, exit.",
            )),
            or(value("last", None, "TIME", "With --snapshot-on: what is older is forgotten (ms, s)."), "10s"),
            or(
                value(
                    "history",
                    None,
                    "SIZE",
                    "With --snapshot-on: compressed events in memory, at most (bytes, or with K, M, G).",
                ),
                "64M",
            ),
            or(value("snapshots", None, "N", "With --snapshot-on: files, at most."), "10"),
            switch(
                "follow",
                None,
                "Also record the programs that its processes become (execve), and their children, until the last has ended: one trace for the tree.",
            ),
            NO_SCHED,
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
    },
    Command {
        name: "top",
        about: "Show a live table of the functions of a running process: calls per second, average, longest",
        details: "Attaches, shows what happened in every interval, and leaves the process as it was: at q, Ctrl-C, or its end. Nothing is written to disk. \
                  Functions that were ever called have a row; TIME% is the time spent in a function and what it calls, of all threads together.\n\n\
                  On a terminal: up, down, PgUp, PgDn, Home, End select a function; space or enter switches it off or on, at once; s sorts by the next column \
                  (c calls, t total, a avg, m max, f function); p pauses the display; / shows only functions with some text in their names; q quits.\n\n\
                  Otherwise: a block of text for every interval: a line that begins with #, titles, a line per function, an empty line. Times are in microseconds.",
        flags: &[
            &[PID],
            LOOKING,
            &[
                choice(
                    value("sort", Some('s'), "COLUMN", "Column to sort by."),
                    &["calls", "total", "avg", "max", "function"],
                    "calls",
                ),
                value("limit", Some('n'), "ROWS", "At most so many rows."),
                value("count", None, "N", "So many intervals; else until it is ended."),
            ],
        ],
        operand: None,
    },
    Command {
        name: "count",
        about: "Count calls of some functions: of a process, of a program, or in a trace",
        details: "calltap count 'SSL_*' -p 4711\n\
                  calltap count 'parse_*' -- ./prog\n\n\
                  The program counts for itself (the profile tracer): no events are made, and nothing can be lost. What that costs is not limited by a governor. \
                  On a terminal the table is shown again every second; at the end, by Ctrl-C or otherwise, it is printed once. docs/answers.md has more.",
        flags: &[ASKED, &[value("limit", Some('n'), "ROWS", "At most so many rows."), IF], ASKING],
        operand: FUNCTIONS,
    },
    Command {
        name: "latency",
        about: "Show histograms of how long calls of some functions take",
        details: "Only these functions are traced. By powers of two, or with --linear in steps (1000 of them; what takes longer is in the last). With --by caller a call counts for the function that it \
                  returns to, by the return address: callers need not be traced. Calls that are not over have no duration, and are counted apart.",
        flags: &[
            ASKED,
            &[
                value(
                    "linear",
                    None,
                    "WIDTH",
                    "Buckets of this width (ns, us, ms, s) instead of powers of two.",
                ),
                choice(
                    value(
                        "by",
                        None,
                        "WHAT",
                        "A histogram for each function, or for each of its threads or callers.",
                    ),
                    &["function", "thread", "caller"],
                    "function",
                ),
                NO_SCHED,
                ANSWER_OVERHEAD,
                IF,
            ],
            ASKING,
        ],
        operand: FUNCTIONS,
    },
    Command {
        name: "slower",
        about: "Show calls that take longer than some time, as they end",
        details: "calltap slower 10ms handle_request -p 4711\n\n\
                  A line each: when it began (seconds since the beginning), thread, duration, function, and the function that it returns to; at the end a table by function. Without functions all are traced. A call that \
                  is not over at the end has a > before the time it has taken.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "LINES", "At most so many calls; then it ends."),
                NO_SCHED,
                ANSWER_OVERHEAD,
                IF,
            ],
            ASKING,
        ],
        operand: Some(Operand {
            name: "TIME [FUNCTION]",
            takes: Takes::ManyAndProgram,
            optional: false,
            help: "Longer than this (ns, us, ms, s); functions, as globs.",
        }),
    },
    Command {
        name: "stacks",
        about: "Show by which paths of calls some functions are called, how often, and how long that takes",
        details: "calltap stacks malloc -p 4711\n\n\
                  At each call of these functions a piece of the stack is copied (--stack-size), and unwound by calltap: a path has all functions that are active, whether they can be traced or not. It begins \
                  with [unknown] where it could not be followed to the beginning. Only these functions are traced.\n\n\
                  Without functions, and with -F, nothing is copied: a path has the traced functions that are active, and the first line says so. A file has the callers that were \
                  recorded: 'record -A FUNCTION@$callers'.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "PATHS", "At most so many paths."),
                many(value(
                    "filter",
                    Some('F'),
                    "GLOB",
                    "Unwind nothing: paths have the traced functions that match.",
                )),
                STACK_SIZE,
                IF,
                ANSWER_OVERHEAD,
            ],
            ASKING,
        ],
        operand: FUNCTIONS,
    },
    Command {
        name: "futures",
        about: "Show the futures of a program in Rust: how often and how long they were polled, how long they waited",
        details: "calltap futures -p 4711\n\
                  calltap futures --each 'app::handle::*' -- ./prog\n\n\
                  All polls of one future are one span, whichever threads ran it: from the first to when it was ready, or dropped. Busy is the time of its polls (with what they poll themselves), idle \
                  that between them. Futures that were spawned on tokio are its tasks. A recording needs 'record --async'. docs/futures.md says how it is known, and what is not.",
        flags: &[
            ASKED,
            &[
                switch("each", None, "A line for every future, when it is over."),
                value("limit", Some('n'), "ROWS", "At most so many rows of the table."),
                ANSWER_OVERHEAD,
                NOTRACE,
                LATER,
                BUFFER_SIZE,
                PATCH_MODE,
                PATCH_LOG,
                LINKER_NAMES,
            ],
        ],
        operand: Some(Operand {
            name: "TYPE",
            takes: Takes::ManyAndProgram,
            optional: true,
            help: "Only futures whose types match, as globs.",
        }),
    },
    Command {
        name: "watch",
        about: "Show calls of some functions as they happen: when, by which thread, how long, called by whom",
        details: "A line for each call when it ends. Only these functions are traced; callers are named by their return addresses. What a terminal or a pager does not take fast enough is left out, and counted.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "LINES", "At most so many calls; then it ends."),
                many(value(
                    "arguments",
                    Some('A'),
                    "ITEM,...",
                    "Show arguments, as in 'arg1/s,arg2/x32,req->size'; 'all': what debugging information knows (docs/arguments.md).",
                )),
                switch("results", Some('R'), "Show what they return."),
                switch(
                    "callers",
                    None,
                    "Show all callers of a call, unwound, not only the one that it returns to.",
                ),
                STACK_SIZE,
                IF,
                NO_SCHED,
                ANSWER_OVERHEAD,
            ],
            ASKING,
        ],
        operand: FUNCTIONS,
    },
    Command {
        name: "view",
        about: "Show a trace, or a running process, as a page in a browser: timeline, flame graph, functions",
        details: "Serves one page, and prints its address; every user of this machine who knows it can see the trace. It loads nothing from anywhere else, and nothing is written to disk. \
                  Ctrl-C ends it; ? on the page shows its keys.\n\n\
                  With -p: what the process does, newest events first (about a million are kept); functions are switched off and on in the running process by a click. It is left as it was: \
                  at Ctrl-C, at its end, or when no page has asked for --idle.",
        flags: &[
            &[
                WATCHED,
                TRACE,
                value("port", None, "PORT", "Serve at this port; else at any that is free."),
                or(
                    value(
                        "idle",
                        None,
                        "TIME",
                        "With -p: leave the process when no page has asked for so long (none: never).",
                    ),
                    "300s",
                ),
            ],
            LOOKING,
        ],
        operand: SHOWN,
    },
    Command {
        name: "tui",
        about: "Look around in a trace, or in a running process, on a terminal: functions, callers and callees, timeline",
        details: "1 functions, with callers and callees of the chosen one: up, down, PgUp, PgDn, Home, End choose; tab goes to callers and callees, enter to the function that is selected there; \
                  s sorts by the next column; / searches. 2 timeline: left, right pan; + and - zoom; 0 shows all; up, down scroll; n and N go to the next and the previous call \
                  of the chosen function. With -p: space switches the chosen function off or on, p pauses the display. q quits.",
        flags: &[&[WATCHED, TRACE], LOOKING],
        operand: SHOWN,
    },
    Command {
        name: "attach",
        about: "Attach to a running process and keep its newest events (flight recorder)",
        details: "Loads the agent, switches the wanted functions on, and returns. Each thread keeps its newest events until you take a \
                  snapshot. The process is stopped for about a millisecond; see 'calltap detach' for the way back.\n\n\
                  With --discovery first-call no process is there to convert calls once a second: a command that opens the session (set, status, get, put, stat, snapshot) \
                  has what was recorded until then converted first.",
        flags: &[&[
            PID, FILTER, NOTRACE, TRACER, ARGUMENTS, RESULTS, IF, KEPT_SIZE, PATCH_MODE, ALLOW_INT3,
            DISCOVERY, PATCH_LOG, LATER,
        ]],
        operand: None,
    },
    Command {
        name: "set",
        about: "Change what is traced in a process that is attached to, while it runs",
        details: "What is given replaces what was set before, kind by kind (filters, notrace sets, tracers, arguments, results, conditions); an empty word clears it. Only functions \
                  that differ are touched, and nothing is stopped. Also while 'record -p' or 'top' is at it.",
        flags: &[&[
            PID,
            FILTER,
            NOTRACE,
            TRACER,
            ARGUMENTS,
            RESULTS,
            IF,
            switch("on", None, "Switch the functions on again."),
            switch("off", None, "Switch all functions off; filters are kept."),
            ALLOW_INT3,
            PATCH_LOG,
            LATER,
        ]],
        operand: None,
    },
    Command {
        name: "status",
        about: "Show what is traced in a process that is attached to",
        details: "",
        flags: &[&[
            PID,
            OUTPUT,
            choice(value("format", None, "FORMAT", "Form of the answer."), &["text", "json"], "text"),
        ]],
        operand: None,
    },
    Command {
        name: "get",
        about: "Read control files of a process that is attached to, as ftrace has them",
        details: "Without a name: which there are. See 'calltap put'.",
        flags: &[&[PID, OUTPUT]],
        operand: Some(Operand {
            name: "NAME",
            takes: Takes::Many,
            optional: true,
            help: "current_tracer, function_tracers, set_ftrace_filter, ...",
        }),
    },
    Command {
        name: "put",
        about: "Write to a control file of a process that is attached to, as ftrace has them",
        details: "'calltap put set_ftrace_filter \'parse_*\' -p PID' is what \'echo parse_* > set_ftrace_filter\' is to the kernel: the functions that the default tracer \
                  traces, from now on. A name, a glob, or a place in available_filter_functions; with ! in front it is taken away. The default tracer is the one that was registered last, or whose name was \
                  written to function_tracers. A value that is refused changes nothing.",
        flags: &[&[PID, switch("append", Some('a'), "Add to what is there, as >> does.")]],
        operand: Some(Operand {
            name: "NAME VALUE",
            takes: Takes::Many,
            optional: false,
            help: "The file, and what is written to it (several values: several words).",
        }),
    },
    Command {
        name: "mount",
        about: "Mount the control directory of a running process, or of all that are attached to, as ftrace has it for the kernel",
        details: "Attaches, and returns when the directory can be used: 'echo function_graph > DIR/current_tracer', 'echo \'parse_*\' > DIR/set_ftrace_filter', \
                  'cat DIR/trace_pipe'. Nothing is traced before it is asked for. Names, formats and errors are those of the kernel's tracefs; where they differ, \
                  docs/compatibility.md says so and why. 'umount DIR' leaves the process as it was; so does the end of the process, and whatever becomes of calltap.\n\nWithout -p, DIR has a directory \
                  for every process: 'mkdir DIR/PID' attaches, 'rmdir DIR/PID' leaves, a process that 'calltap attach' was told of appears by itself and keeps its tracers and \
                  filters, and one that ends is gone. Why one could not be attached to is in DIR/error_log.",
        flags: &[&[
            PID,
            KEPT_SIZE,
            PATCH_MODE,
            ALLOW_INT3,
            PATCH_LOG,
            switch(
                "foreground",
                Some('f'),
                "Serve the directory until it is unmounted, instead of returning.",
            ),
        ]],
        operand: Some(Operand {
            name: "DIR",
            takes: Takes::One,
            optional: false,
            help: "An existing directory.",
        }),
    },
    Command {
        name: "run",
        about: "Run a program with its control directory mounted; nothing is traced before it is asked for",
        details: "As 'calltap mount' for a program that is started here. It ends as the program ends.",
        flags: &[&[
            value("mount", None, "DIR", "An existing directory."),
            KEPT_SIZE,
            PATCH_MODE,
            ALLOW_INT3,
            PATCH_LOG,
        ]],
        operand: Some(Operand {
            name: "PROGRAM",
            takes: Takes::Rest,
            optional: false,
            help: "The program and its arguments.",
        }),
    },
    Command {
        name: "exec",
        about: "Run a client of ftrace (trace-cmd, a script) on a process instead of the kernel",
        details: "The command finds the process's control directory at /sys/kernel/tracing, in a mount namespace of its own: 'calltap exec -p PID -- trace-cmd start -p function'. \
                  The kernel's own directory is not touched.",
        flags: &[&[PID]],
        operand: Some(Operand {
            name: "COMMAND",
            takes: Takes::Rest,
            optional: false,
            help: "The command and its arguments.",
        }),
    },
    Command {
        name: "stat",
        about: "Show what the profile tracer has summed up: calls, total, average and longest time per function",
        details: "The profile tracer ('--tracer profile:GLOB,...' of record, attach and set) keeps sums in the program itself, without an event for every call: nothing is \
                  written while it runs, nothing can be lost. With -p: of a process that is attached to or recorded, until now; else from a trace. Time is that of calls which have \
                  returned, and includes what they called; a function that was entered by a jump (a tail call) is counted, and its time is its caller's. Of a recursive function every call counts. What the profile tracer \
                  costs is not limited by --max-overhead, which judges by events.",
        flags: &[&[
            value("pid", Some('p'), "PID", "A process that is attached to or recorded, instead of a trace."),
            INPUT,
            OUTPUT,
            choice(value("format", None, "FORMAT", "Form of the table."), &["text", "csv", "json"], "text"),
            choice(
                value("sort", Some('s'), "COLUMN", "Column to sort by."),
                &["calls", "total", "avg", "max", "function"],
                "total",
            ),
            FUNCTION,
            value("limit", Some('n'), "ROWS", "At most so many rows."),
            LINKER_NAMES,
        ]],
        operand: None,
    },
    Command {
        name: "snapshot",
        about: "Write what the rings of a process hold now into a trace file",
        details: "The functions are switched off while the rings are copied (a tenth of a second for 64 MB), and on again.",
        flags: &[&[
            PID,
            or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data"),
            PATCH_LOG,
        ]],
        operand: None,
    },
    Command {
        name: "detach",
        about: "Leave a process as it was",
        details: "A calltap that records it is asked to end. Also cleans up what a calltap that was killed has left. The text of the process is then byte for byte that of its files.",
        flags: &[&[PID, PATCH_LOG]],
        operand: None,
    },
    Command {
        name: "report",
        about: "Show a table of functions: calls, total and own time",
        details: "Total time counts the outermost call of a recursion once; average, minimum, maximum, standard deviation and percentiles are per call. \
                  A percentile (p50, p90, p99, p99.9) is off by less than 0.8 % of itself; the others are exact.",
        flags: &[&[
            INPUT,
            OUTPUT,
            choice(value("format", None, "FORMAT", "Form of the table."), &["text", "csv", "json"], "text"),
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
            THREAD,
            switch("by-thread", None, "A row for every function and thread."),
            value("limit", Some('n'), "ROWS", "At most so many rows."),
            LINKER_NAMES,
        ]],
        operand: None,
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
                  --fail-if 'MEASURE(FUNCTION)>BOUND', for use in scripts: MEASURE is total, self, calls, avg, p50, p90, p99, p99.9 or max, in B; FUNCTION a name or glob; \
                  > may be >=, < or <=; BOUND is a ratio to A (1.1x), a time (5ms) or a number of calls. If it is proven to hold of any function it matches, with its whole confidence \
                  interval, the exit code is 3, and standard error says of which. Conditions on times need five recordings a side; with fewer the exit code is 4. \
                  (1: the comparison could not be made; 2: a wrong command line.)",
        flags: &[&[
            OUTPUT,
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
                "What to show, of total, self, calls, avg, p50, p90, p99, p99.9, max (total,self,calls,p50,p99).",
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
        details: "Marks before a duration: $ over 1 s, @ 100 ms, * 10 ms, # 1 ms, ! 100 us, + 10 us.",
        flags: &[&[
            INPUT,
            OUTPUT,
            THREAD,
            value("limit", Some('n'), "LINES", "At most so many lines."),
            LINKER_NAMES,
        ]],
        operand: None,
    },
    Command {
        name: "graph",
        about: "Show the call graph: of the program, or callers and callees of one function",
        details: "",
        flags: &[&[
            INPUT,
            OUTPUT,
            value("function", Some('F'), "NAME", "Callers above and callees below this function."),
            value("depth", None, "LEVELS", "At most so many levels."),
            value("min-percent", None, "PERCENT", "Leave out paths with a smaller share of the time."),
            THREAD,
            LINKER_NAMES,
        ]],
        operand: None,
    },
    Command {
        name: "info",
        about: "Show what a trace holds: program, host, threads, modules, tracers, losses",
        details: "",
        flags: &[&[
            INPUT,
            OUTPUT,
            choice(value("format", None, "FORMAT", "Form."), &["text", "json"], "text"),
        ]],
        operand: None,
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
        flags: &[&[
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
            many(value("function", Some('F'), "GLOB", "With --to otlp: functions that become spans.")),
            value(
                "trace-id",
                None,
                "ARGUMENT",
                "With --to otlp: the argument (recorded by -A) that says which trace a call is part of, in whatever thread.",
            ),
            THREAD,
            LINKER_NAMES,
        ]],
        operand: None,
    },
    Command {
        name: "sites",
        about: "List every function of a binary, and whether and how it can be traced",
        details: "Kinds: patchable, mcount_loc, fentry, mcount, xray, prologue (as it is), none; functions that cannot be traced come with the reason.",
        flags: &[&[
            OUTPUT,
            choice(value("format", None, "FORMAT", "Form of the list."), &["text", "json"], "text"),
            LINKER_NAMES,
            ALLOW_INT3,
            switch(
                "inlined",
                None,
                "List the functions that were inlined instead, as the debugging information tells.",
            ),
        ]],
        operand: Some(Operand {
            name: "BINARY",
            takes: Takes::One,
            optional: false,
            help: "An ELF executable or shared object.",
        }),
    },
    Command {
        name: "recordmcount",
        about: "Add __mcount_loc, the list of calls to mcount, to object files compiled with -pg",
        details: "What the compiler does itself with -mrecord-mcount, for compilers that do not have it, for C++, and for objects that exist already. \
                  x86-64 and i386. A file is replaced at once or, on failure, left as it was; objects without calls to mcount, or with a list, \
                  are not touched. Other hard links to a file keep what it was.\n\n\
                  The list holds the address of every call to mcount, _mcount and __fentry__; 'calltap sites' and 'calltap record' read it.",
        flags: &[&[]],
        operand: Some(Operand { name: "FILE", takes: Takes::Many, optional: false, help: "Object files." }),
    },
    Command {
        name: "cc",
        about: "Run a compiler, and add __mcount_loc to the object files that it makes",
        details: "For builds: make CC='calltap cc gcc' CFLAGS='-O2 -pg'. The compiler gets its arguments as they are, and its exit status is passed on; then \
                  what it made is treated as by 'calltap recordmcount'.\n\n\
                  Covered: -c with or without -o, several sources, response files (@FILE), -r. Not covered, and run as if without calltap: -S, -E, -M; \
                  compiling and linking in one command, after which no object remains; link-time optimisation (-flto), where the linker \
                  makes the code. In programs built so the calls are found without a list.",
        flags: &[&[]],
        operand: Some(Operand {
            name: "COMPILER",
            takes: Takes::Rest,
            optional: false,
            help: "The compiler and its arguments.",
        }),
    },
    Command {
        name: "audit",
        about: "Check a log of code changes against the rules by which running code may be changed",
        details: "Replays what --patch-log wrote: every site read and found as expected before anything is written, one step at a time, a core sync \
                  between two steps, nothing else touched. Says what it has checked, or names the lines that break a rule.",
        flags: &[&[OUTPUT]],
        operand: Some(Operand {
            name: "LOG",
            takes: Takes::One,
            optional: false,
            help: "A file that --patch-log wrote.",
        }),
    },
    Command {
        name: "man",
        about: "Print the manual page, in roff",
        details: "",
        flags: &[&[OUTPUT]],
        operand: None,
    },
    Command {
        name: "completions",
        about: "Print the completion script of a shell",
        details: "",
        flags: &[&[
            OUTPUT,
            choice(value("shell", None, "SHELL", "Which shell."), &["bash", "zsh", "fish", "elvish"], "bash"),
        ]],
        operand: None,
    },
];

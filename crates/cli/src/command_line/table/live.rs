//! Commands that show what a program does while it runs: questions, `top` and `view`.

use super::flags::{
    ANSWER_OVERHEAD, ASKED, ASKING, BUFFER_SIZE, CHILDREN, FULL_NAMES, FUNCTIONS, IF, LATER, LINKER_NAMES,
    LOOKING, NO_SCHED, NOTRACE, PATCH_LOG, PATCH_MODE, PIDS, SHOWN, STACK_SIZE, TIME, TRACE, WATCHED,
};
use super::{Command, Operand, Takes, choice, choices, many, or, switch, value};

/// The commands.
pub const LIVE: &[Command] = &[
    Command {
        name: "top",
        about: "Show a live table of the functions of a running process: calls per second, average, longest",
        details: "Attaches, shows what happened in every interval, and leaves the process as it was: at q, Ctrl-C, or its end. Nothing is written to disk. \
                  Functions that were ever called have a row; TIME% is the time spent in a function and what it calls, of all threads together. `>6.0` is of a function that was off for a part of the interval: at least so much; `-` of one that was off for all of it.\n\n\
                  On a terminal: up, down, PgUp, PgDn, Home, End select a function; space or enter switches it off or on, at once; s sorts by the next column \
                  (c calls, t total, a avg, m max, f function); p pauses the display; / shows only functions with some text in their names; q quits. \
                  Of several processes the functions are added up; ] and [ show each process by itself.\n\n\
                  Otherwise: a block of text for every interval: a line that begins with #, titles, a line per function, an empty line. Times are in microseconds. Several processes have a block each.",
        flags: &[
            &[PIDS, CHILDREN],
            LOOKING,
            &[FULL_NAMES],
            &[
                choice(
                    value("sort", Some('s'), "COLUMN", "Column to sort by."),
                    &["calls", "total", "avg", "max", "function"],
                    "calls",
                ),
                value("limit", Some('n'), "ROWS", "At most so many rows."),
                value("count", None, "N", "So many intervals; else until it is ended."),
                switch("json", None, "A JSON object a line for every interval of a process."),
            ],
        ],
        operand: None,
    },
    Command {
        name: "count",
        about: "Count calls of some functions: of a process, of a program, or in a trace",
        details: "calltap count 'SSL_*' -p 4711\n\
                  calltap count 'parse_*' -- ./prog\n\n\
                  The program counts for itself (the profile tracer): no events are made, and nothing can be lost. What that costs is not limited by a governor. With --by events are counted, and --max-overhead limits them. \
                  On a terminal the table is shown again every second; at the end, by Ctrl-C or otherwise, it is printed once. docs/answers.md has more.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "ROWS", "At most so many rows."),
                choices(
                    value(
                        "by",
                        None,
                        "WHAT",
                        "A row for each caller, thread, or value ('malloc@arg1'); these are counted from events. Of Go programs, goroutine is the same as thread.",
                    ),
                    &["caller", "thread", "goroutine", "value"],
                ),
                ANSWER_OVERHEAD,
                IF,
            ],
            ASKING,
        ],
        operand: FUNCTIONS,
    },
    Command {
        name: "histogram",
        about: "Show histograms of the values of arguments and results: sizes, lengths, return codes",
        details: "calltap histogram 'malloc@arg1' -p 4711\n\
                  calltap histogram 'read@retval' --by caller -- ./prog\n\n\
                  By powers of two, with --linear in steps, or with --each every value by itself. Texts are counted each. A recording needs 'record -A malloc@arg1', or -R for results. \
                  docs/arguments.md says what can be read.",
        flags: &[
            ASKED,
            &[
                value("linear", None, "WIDTH", "Buckets of this width instead of powers of two."),
                switch("each", None, "A bucket for every value."),
                choices(
                    value(
                        "by",
                        None,
                        "WHAT",
                        "A histogram for each caller or thread (goroutine: the same as thread); value: the same as --each.",
                    ),
                    &["caller", "thread", "goroutine", "value"],
                ),
                ANSWER_OVERHEAD,
                IF,
            ],
            ASKING,
        ],
        operand: Some(Operand {
            name: "FUNCTION@ITEM,...",
            takes: Takes::ManyAndProgram,
            optional: false,
            help: "Functions, as globs, and which of their values; last a trace, as -i FILE.",
        }),
    },
    Command {
        name: "span",
        about: "Show the time between two calls that share a value: 'accept@retval .. close@arg1'",
        details: "calltap span 'ngx_http_process_request@arg1 .. ngx_http_finalize_request@arg1' -p 4711\n\n\
                  A span begins when the first function is called (or, with retval, when it returns) and ends when the second is called (or returns) with the same value, in whatever thread of the process: \
                  requests of event loops, connections, locks. Shown are percentiles, a histogram, and the slowest. Spans during which events were lost are unknown, and counted. \
                  A recording needs 'record -A', or -R for results.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "SPANS", "So many of the slowest are shown each (10)."),
                value(
                    "linear",
                    None,
                    "WIDTH",
                    "Buckets of this width (ns, us, ms, s) instead of powers of two.",
                ),
                TIME,
                ANSWER_OVERHEAD,
                IF,
            ],
            ASKING,
        ],
        operand: Some(Operand {
            name: "BEGIN@ITEM .. END@ITEM",
            takes: Takes::ManyAndProgram,
            optional: false,
            help: "Where spans begin and end, in quotes; last a trace, as -i FILE.",
        }),
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
                        "A histogram for each function, or for each of its threads or callers (goroutine: the same as thread).",
                    ),
                    &["function", "thread", "goroutine", "caller"],
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
                  A line each: when it began (seconds since the beginning), thread, duration, function, and the function that it returns to; at the end a table by function, whose TIME is that of the outermost slow calls of a recursion. Without functions all are traced. A call that \
                  is not over at the end has a > before the time it has taken.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "LINES", "At most so many calls; then it ends."),
                TIME,
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
            help: "Longer than this (ns, us, ms, s); functions, as globs; last a trace, as -i FILE.",
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
        about: "Show the futures of a program in Rust, or coroutines of one in Python: how often and how long they were polled, how long they waited",
        details: "calltap futures -p 4711\n\
                  calltap futures --each 'app::handle::*' -- ./prog\n\n\
                  All polls of one future are one span, whichever threads ran it: from the first to when it was ready, or dropped. Busy is the time of its polls (with what they poll themselves), idle \
                  that between them. Futures that were spawned on tokio are its tasks. A recording needs 'record --async'. docs/futures.md says how it is known, and what is not; docs/python.md, what a coroutine of Python has.",
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
                FULL_NAMES,
            ],
        ],
        operand: Some(Operand {
            name: "TYPE",
            takes: Takes::ManyAndProgram,
            optional: true,
            help: "Only futures whose types match, as globs; last a trace, as -i FILE.",
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
                TIME,
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
                  at Ctrl-C, at its end, or when no page has asked for --idle. Of several processes the page shows the one that is chosen at its top.",
        flags: &[
            &[
                WATCHED,
                CHILDREN,
                TRACE,
                value(
                    "save",
                    None,
                    "FILE",
                    "Write the page into a file that any browser opens without calltap, and serve nothing; what it does not have of the trace is said.",
                ),
                value(
                    "base",
                    None,
                    "FILE",
                    "Compare the trace with this one: a flame graph of the differences, red where calls take more time than in FILE, blue where less.",
                ),
                value("port", None, "PORT", "Serve at this port; else at any that is free."),
                switch(
                    "no-browser",
                    None,
                    "Only print the address. On a terminal of a desktop a browser opens the page: the one that BROWSER names, else xdg-open's.",
                ),
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
                  of the chosen function. With -p: space switches the chosen function off or on, p pauses the display, ] and [ show another of several processes. q quits.",
        flags: &[&[WATCHED, CHILDREN, TRACE, FULL_NAMES], LOOKING],
        operand: SHOWN,
    },
];

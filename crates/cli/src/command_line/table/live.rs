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
        details: "Attaches to the process, shows every interval, and detaches at q, Ctrl-C, or the \
                  end of the process. Nothing is written to disk. Every function that was called \
                  has a row. TIME% is the time spent in a function and its callees, summed over \
                  all threads. `>6.0`: the function was disabled for part of the interval, and \
                  this is a lower bound; `-`: it was disabled throughout.\n\n\
                  On a terminal: up, down, PgUp, PgDn, Home, End select a function; space or enter \
                  disables or enables it at once; s sorts by the next column (c calls, t total, a \
                  avg, m max, f function); p pauses the display; / filters function names by text; \
                  q quits. Functions of several processes are added up; ] and [ show each process \
                  alone.\n\n\
                  Otherwise each interval is a block of text: a line that begins with #, titles, a \
                  line per function, an empty line. Times are in microseconds. Each of several \
                  processes has its own block.",
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
                value("limit", Some('n'), "ROWS", "At most ROWS rows."),
                value("count", None, "N", "Stop after N intervals."),
                switch("json", None, "Write one JSON object per line, for each interval of a process."),
            ],
        ],
        operand: None,
    },
    Command {
        name: "count",
        about: "Count calls of some functions: of a process, of a program, or in a trace",
        details: "calltap count 'SSL_*' -p 4711\n\
                  calltap count 'parse_*' -- ./prog\n\n\
                  The agent counts in the program (profile tracer): there are no events to lose, \
                  and --max-overhead does not apply. With --by, events are counted, and \
                  --max-overhead applies. On a terminal the table is updated every second; when \
                  the command ends, it is printed once. See docs/guides/answers.md.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "ROWS", "At most ROWS rows."),
                choices(
                    value(
                        "by",
                        None,
                        "WHAT",
                        "A row for each caller, thread, or value ('malloc@arg1'), counted from events. In Go programs, goroutine is the same as thread.",
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
                  Buckets are powers of two, steps of WIDTH with --linear, or single values with \
                  --each. Each text is a value of its own. A trace needs 'record -A malloc@arg1', \
                  or -R for results. docs/guides/arguments.md lists the values that can be read.",
        flags: &[
            ASKED,
            &[
                value("linear", None, "WIDTH", "Buckets of this width instead of powers of two."),
                switch("each", None, "A bucket for each value."),
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
            help: "Functions (globs) and their values; a last word that is a file is read, as by -i FILE.",
        }),
    },
    Command {
        name: "span",
        about: "Show the time between two calls that share a value: 'accept@retval .. close@arg1'",
        details: "calltap span 'ngx_http_process_request@arg1 .. ngx_http_finalize_request@arg1' \
                  -p 4711\n\n\
                  A span begins when the first function is called (with retval: when it returns), \
                  and ends when the second is called (or returns) with the same value, in any \
                  thread of the process: requests of event loops, connections, locks. The answer \
                  has percentiles, a histogram, and the slowest spans. Spans during which events \
                  were lost are unknown, and counted apart. A trace needs 'record -A', or -R for \
                  results.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "SPANS", "Show the SPANS slowest spans (10)."),
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
            help: "Begin and end of the spans, in quotes; a last word that is a file is read, as by -i FILE.",
        }),
    },
    Command {
        name: "latency",
        about: "Show histograms of the durations of calls of some functions",
        details: "Only these functions are traced. Buckets are powers of two, or with --linear \
                  1000 steps, the last of which also has all longer calls. With --by caller a call \
                  counts for the function at its return address: callers need not be traced. Calls \
                  without a return have no duration, and are counted apart.",
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
        about: "Show calls that take longer than a limit, as they end",
        details: "calltap slower 10ms handle_request -p 4711\n\n\
                  A line per call: its start (seconds since the beginning), thread, duration, \
                  function, and the function that it returns to; then a table by function; TIME \
                  counts the outermost slow call of a recursion. Without functions, all are \
                  traced. > marks the duration of a call that was still open at the end.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "LINES", "Stop after LINES calls."),
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
            help: "The limit (ns, us, ms, s) and functions (globs); a last word that is a file is read, as by -i FILE.",
        }),
    },
    Command {
        name: "stacks",
        about: "Show the call paths of functions, with the number and time of the calls",
        details: "calltap stacks malloc -p 4711\n\n\
                  At each call the agent copies part of the stack (--stack-size), and calltap \
                  unwinds the copy: paths include functions that are not traced. A path that could \
                  not be unwound to its beginning starts with [unknown]. Only the functions of the \
                  query are traced.\n\n\
                  Without functions, and with -F, no stack is copied: a path consists of the open \
                  calls of traced functions, and the first line says so. A trace has unwound paths \
                  if it was recorded with 'record -A FUNCTION@$callers'.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "PATHS", "At most PATHS paths."),
                many(value(
                    "filter",
                    Some('F'),
                    "GLOB",
                    "Do not unwind: paths consist of traced functions that match.",
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
        about: "Show the futures of a Rust program, or the coroutines of a Python program: polls, time in polls, time between polls",
        details: "calltap futures -p 4711\n\
                  calltap futures --each 'app::handle::*' -- ./prog\n\n\
                  All polls of one future are one span, on whichever threads they ran: from the \
                  first poll to the result, or the drop. BUSY: time inside polls, nested polls \
                  included. IDLE: time between polls. Futures spawned on tokio are its tasks. A \
                  trace needs 'record --async'. See docs/guides/futures.md, and docs/guides/python.md for \
                  coroutines.",
        flags: &[
            ASKED,
            &[
                switch("each", None, "A line for each future, at its end."),
                value("limit", Some('n'), "ROWS", "At most ROWS rows of the table."),
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
            help: "Only futures whose types match (globs); a last word that is a file is read, as by -i FILE.",
        }),
    },
    Command {
        name: "watch",
        about: "Show calls of some functions as they happen: time, thread, duration, caller",
        details: "A line for each call, when it ends. Only these functions are traced; callers are \
                  named by their return addresses. Lines that the terminal or pager cannot display \
                  in time are dropped and counted.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "LINES", "Stop after LINES calls."),
                TIME,
                many(value(
                    "arguments",
                    Some('A'),
                    "ITEM,...",
                    "Show arguments: 'arg1/s,arg2/x32,req->size'; 'all': those that the debugging information describes (docs/guides/arguments.md).",
                )),
                switch("results", Some('R'), "Show return values; a word retval/x64 gives their form."),
                switch("callers", None, "Unwind, and show all callers instead of the direct one."),
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
        details: "Serves one page, and prints its address; every user of this machine who knows \
                  the address can see the trace. The page loads nothing from other servers, and \
                  nothing is written to disk. Ctrl-C stops the server; ? on the page lists its \
                  keys.\n\n\
                  With -p: shows the process live, newest events first (about a million are kept); \
                  a click disables or enables a function in the process. calltap detaches at \
                  Ctrl-C, at the end of the process, or --idle after the last request of a page. \
                  With several processes, a selector at the top of the page chooses one.",
        flags: &[
            &[
                WATCHED,
                CHILDREN,
                TRACE,
                value(
                    "save",
                    None,
                    "FILE",
                    "Write a self-contained page to FILE and exit; the page states which data it lacks.",
                ),
                value(
                    "base",
                    None,
                    "FILE",
                    "Compare the trace with FILE in a flame graph: red where calls take more time than in FILE, blue where less.",
                ),
                value("port", None, "PORT", "Serve at this port; by default at a free one."),
                switch(
                    "no-browser",
                    None,
                    "Only print the address, and do not open the page (on a desktop: in the browser that BROWSER names, else by xdg-open).",
                ),
                or(
                    value(
                        "idle",
                        None,
                        "TIME",
                        "With -p: detach this long after the last request of a page (none: never).",
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
        about: "Browse a trace, or a running process, on a terminal: functions, callers and callees, timeline",
        details: "1 shows functions, with callers and callees of the selected one: up, down, PgUp, \
                  PgDn, Home, End select; tab moves to callers and callees, enter selects the \
                  function under the cursor there; s sorts by the next column; / searches. 2 shows \
                  the timeline: left, right pan; + and - zoom; 0 shows all; up, down scroll; n and \
                  N go to the next and the previous call of the selected function. With -p: space \
                  disables or enables the selected function, p pauses the display, ] and [ show \
                  another of several processes. q quits.",
        flags: &[&[WATCHED, CHILDREN, TRACE, FULL_NAMES], LOOKING],
        operand: SHOWN,
    },
];

//! Commands for a session with a running process: attach, set, status, snapshot, detach; and for
//! its control directory.

use super::flags::{
    ALLOW_INT3, ARGUMENTS, CALLERS, CHILDREN, DISCOVERY, FILE, FILTER, FULL_NAMES, FUNCTION, GRAPH, IF,
    INPUT, KEPT_SIZE, LATER, LEVELS, LIBCALLS, LINKER_NAMES, MOUNTED_SIZE, NOTRACE, OUTPUT, PATCH_LOG,
    PATCH_MODE, PID, PIDS, PYTHON, RESULTS, TRACER,
};
use super::{Command, Operand, Takes, choice, or, switch, value};

/// The commands.
pub const SESSION: &[Command] = &[
    Command {
        name: "attach",
        about: "Attach to a running process and keep its newest events (flight recorder)",
        details: "Loads the agent, switches the wanted functions on, and returns. Each thread keeps its newest events until you take a \
                  snapshot; by default the rings have room for all threads there are, and a line says if they do not. The process is stopped for about a millisecond; see 'calltap detach' for the way back.\n\n\
                  With --discovery first-call no process is there to convert calls once a second: a command that opens the session (set, status, get, put, stat, snapshot) \
                  has what was recorded until then converted first.",
        flags: &[&[
            PIDS, CHILDREN, FILTER, NOTRACE, PYTHON, LIBCALLS, TRACER, ARGUMENTS, RESULTS, IF, KEPT_SIZE,
            PATCH_MODE, ALLOW_INT3, DISCOVERY, PATCH_LOG, LATER,
        ]],
        operand: None,
    },
    Command {
        name: "set",
        about: "Change what is traced in a process that is attached to, while it runs",
        details: "What is given replaces what was set before, kind by kind (filters, notrace sets, Python functions, tracers, arguments, results, conditions); an empty word clears it. Only functions \
                  that differ are touched, and nothing is stopped. Also while 'record', 'top' or 'view' is at it: of these, --graph, --callers and --depth change which calls are kept, from now on.",
        flags: &[&[
            PIDS,
            CHILDREN,
            FILTER,
            NOTRACE,
            PYTHON,
            TRACER,
            ARGUMENTS,
            RESULTS,
            IF,
            GRAPH,
            CALLERS,
            LEVELS,
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
            PIDS,
            CHILDREN,
            OUTPUT,
            choice(value("format", None, "FORMAT", "Form of the answer."), &["text", "json"], "text"),
        ]],
        operand: None,
    },
    Command {
        name: "get",
        about: "Read control files of a process that is attached to, as ftrace has them",
        details: "Without a name: which there are. See 'calltap tracefs put'.",
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
        details: "'calltap tracefs put set_ftrace_filter \'parse_*\' -p PID' is what \'echo parse_* > set_ftrace_filter\' is to the kernel: the functions that the default tracer \
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
                  docs/reference/compatibility.md says so and why. 'umount DIR' leaves the process as it was; so does the end of the process, and whatever becomes of calltap.\n\nWithout -p, DIR has a directory \
                  for every process: 'mkdir DIR/PID' attaches, 'rmdir DIR/PID' leaves, a process that 'calltap attach' was told of appears by itself and keeps its tracers and \
                  filters, and one that ends is gone. Why one could not be attached to is in DIR/error_log.",
        flags: &[&[
            PID,
            MOUNTED_SIZE,
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
        details: "As 'calltap tracefs mount' for a program that is started here. It ends as the program ends.",
        flags: &[&[
            value("mount", None, "DIR", "An existing directory."),
            MOUNTED_SIZE,
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
        details: "The command finds the process's control directory at /sys/kernel/tracing, in a mount namespace of its own: 'calltap tracefs exec -p PID -- trace-cmd start -p function'. \
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
            FULL_NAMES,
        ]],
        operand: FILE,
    },
    Command {
        name: "snapshot",
        about: "Write what the rings of a process hold now into a trace file",
        details: "The process records on while the rings are copied, and is not stopped. Of several processes each has a file, FILE.PID.",
        flags: &[&[
            PIDS,
            CHILDREN,
            or(value("output", Some('o'), "FILE", "The trace file to write."), "./calltap.data"),
            PATCH_LOG,
        ]],
        operand: None,
    },
    Command {
        name: "detach",
        about: "Leave a process as it was",
        details: "A calltap that records it is asked to end. Also cleans up what a calltap that was killed has left. The text of the process is then byte for byte that of its files.",
        flags: &[&[PIDS, CHILDREN, PATCH_LOG]],
        operand: None,
    },
];

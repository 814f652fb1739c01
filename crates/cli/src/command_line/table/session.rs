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
        details: "Loads the agent, enables the selected functions, and returns. Each thread keeps \
                  its newest events until a snapshot; by default the rings have room for all \
                  present threads, and a message says if they do not. The process is stopped for \
                  about a millisecond. 'calltap detach' undoes the attach.\n\n\
                  With --discovery first-call, the next command that opens the session (set, \
                  status, get, put, stat, snapshot) converts the recorded calls: no process \
                  remains that could do so once a second.",
        flags: &[&[
            PIDS, CHILDREN, FILTER, NOTRACE, PYTHON, LIBCALLS, TRACER, ARGUMENTS, RESULTS, IF, KEPT_SIZE,
            PATCH_MODE, ALLOW_INT3, DISCOVERY, PATCH_LOG, LATER,
        ]],
        operand: None,
    },
    Command {
        name: "set",
        about: "Change the selection of an attached process, while the process runs",
        details: "Each option replaces its previous value (filters, notrace sets, Python \
                  functions, tracers, arguments, results, conditions); an empty value clears it. \
                  Only functions whose state differs are changed. Unmodified functions that were not \
                  enabled before are written while all threads are stopped; others while they run. \
                  Works during record, top and view too; there --graph, --callers and --depth change \
                  which calls the recorder keeps.",
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
            switch("on", None, "Enable the selected functions again."),
            switch("off", None, "Disable all functions, and keep the filters."),
            ALLOW_INT3,
            PATCH_LOG,
            LATER,
        ]],
        operand: None,
    },
    Command {
        name: "status",
        about: "Show the selection of an attached process, or list the attached processes",
        details: "Without -p, lists the processes that are attached to, recorded or watched.",
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
        about: "Read control files of an attached process, in the formats of ftrace",
        details: "Without NAME, lists the control files. See 'calltap tracefs put'.",
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
        about: "Write to a control file of an attached process, in the formats of ftrace",
        details: "'calltap tracefs put set_ftrace_filter \'parse_*\' -p PID' corresponds to \'echo \
                  parse_* > set_ftrace_filter\' for the kernel: from now on, the default tracer \
                  traces these functions. VALUE is a name, a glob, or a line number of \
                  available_filter_functions; a leading ! removes it. The default tracer is the \
                  one that was registered last, or whose name was last written to \
                  function_tracers. A refused value changes nothing.",
        flags: &[&[PID, switch("append", Some('a'), "Append to the current value, as >> does.")]],
        operand: Some(Operand {
            name: "NAME VALUE",
            takes: Takes::Many,
            optional: false,
            help: "The file, and the values to write, one per word.",
        }),
    },
    Command {
        name: "mount",
        about: "Mount the control directory of a running process, or of all attached processes, like the tracefs of the kernel",
        details: "Attaches to the process, and returns when the directory can be used: 'echo \
                  function_graph > DIR/current_tracer', 'echo \'parse_*\' > \
                  DIR/set_ftrace_filter', 'cat DIR/trace_pipe'. At first no tracer is enabled. \
                  Names, formats and errors are those of the kernel's tracefs; \
                  docs/reference/compatibility.md lists the differences, with reasons. 'umount \
                  DIR' detaches. If calltap is killed, DIR is unmounted and recording stops.\n\n\
                  Without -p, DIR has a directory for every attached process: 'mkdir DIR/PID' \
                  attaches, 'rmdir DIR/PID' detaches; processes of 'calltap attach' appear with \
                  their tracers and filters; the directory of an ended process disappears. \
                  DIR/error_log has the reasons of refusals.",
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
        about: "Run a program with its control directory mounted, and no tracer enabled",
        details: "As 'calltap tracefs mount', for a program that calltap starts. Ends when the \
                  program ends.",
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
        details: "The command sees the control directory of the process at /sys/kernel/tracing, in \
                  a mount namespace of its own: 'calltap tracefs exec -p PID -- trace-cmd start -p \
                  function'. The kernel's own directory is not changed.",
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
        about: "Show the sums of the profile tracer: calls, total, average and longest time per function",
        details: "The profile tracer ('--tracer profile:GLOB,...' of record, attach and set) sums \
                  calls in the program itself, without events: nothing is written while the \
                  program runs, and nothing can be lost. With -p: the sums until now of an \
                  attached or recorded process; otherwise those of a trace. Times are of calls \
                  that have returned, callees included; every call of a recursion counts. A \
                  function entered by a jump (a tail call) is counted, and its time belongs to its \
                  caller. --max-overhead does not apply to the profile tracer.",
        flags: &[&[
            value("pid", Some('p'), "PID", "An attached or recorded process, instead of a trace."),
            INPUT,
            OUTPUT,
            choice(value("format", None, "FORMAT", "Form of the table."), &["text", "csv", "json"], "text"),
            choice(
                value("sort", Some('s'), "COLUMN", "Column to sort by."),
                &["calls", "total", "avg", "max", "function"],
                "total",
            ),
            FUNCTION,
            value("limit", Some('n'), "ROWS", "At most ROWS rows."),
            LINKER_NAMES,
            FULL_NAMES,
        ]],
        operand: FILE,
    },
    Command {
        name: "snapshot",
        about: "Copy the rings of a process to a trace file",
        details: "The process is not stopped, and continues to record during the copy. With \
                  several processes, each has a file FILE.PID.",
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
        about: "Detach from a process: disable its sites and restore its code",
        details: "Ends a running recorder of the process; also removes the code of a killed \
                  calltap. The text then equals the files byte for byte.",
        flags: &[&[PIDS, CHILDREN, PATCH_LOG]],
        operand: None,
    },
];

//! `calltap why`: the waits of slow calls.

use super::flags::{ANSWER_OVERHEAD, ASKED, ASKING, FILTER};
use super::{Command, Operand, Takes, switch, value};

/// The commands.
pub const WHY: &[Command] = &[
    Command {
        name: "why",
        about: "Show why calls were slow: what they waited for, which thread woke them, and what the waker did meanwhile",
        details: "calltap why 'handle>10ms' -p 4711\n\
                  calltap why 'handle>10ms' -- ./prog\n\n\
                  For each of the slowest calls: its run time by function; each wait with its system call and \
                  open calls, its waker, the waker's open calls, and what the waker did during the \
                  wait (recursively). All functions are traced, or those of -F; a matching call \
                  inside a matching call is part of the outer one. The answer is computed when the \
                  program has ended.\n\n\
                  With --async, names are those of futures, or of the async functions whose bodies \
                  they are: how long each was polled; how long it waited, which future woke its \
                  task, and what that future did meanwhile; how long no worker polled it after the \
                  wakeup. Only functions that poll futures are traced, and those of -F. A trace \
                  needs 'record --async'.\n\n\
                  Wakeups and system calls need root or CAP_PERFMON, and tracefs; without these \
                  permissions the answer marks the missing parts. A trace needs 'record --events \
                  sched,syscalls'. See docs/guides/why.md.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "N", "Show the N slowest calls (10), or the N largest causes."),
                switch("summary", None, "Show the time of all slow calls together, by cause."),
                switch(
                    "async",
                    None,
                    "Explain futures of a Rust program instead of calls, and the tasks that woke them.",
                ),
                FILTER,
                ANSWER_OVERHEAD,
            ],
            ASKING,
        ],
        operand: Some(Operand {
            name: "CALL>TIME",
            takes: Takes::ManyAndProgram,
            optional: false,
            help: "Calls of functions (a glob), or futures, that take longer: 'handle>10ms'; a last word that is a file is read, as by -i FILE.",
        }),
    },
    Command {
        name: "locks",
        about: "Show the locks at which threads waited: number and time of the waits, waiting functions, waking functions",
        details: "calltap locks -p 4711 --duration 10s\n\n\
                  A lock is an address at which threads wait for each other by the system call \
                  futex: mutexes, condition variables, semaphores, joins. It has the name of the \
                  global object there, by the symbol table of the file; otherwise its address and \
                  mapping are shown. Requires the permissions of 'calltap why'.",
        flags: &[
            ASKED,
            &[value("limit", Some('n'), "ROWS", "At most ROWS locks."), FILTER, ANSWER_OVERHEAD],
            ASKING,
        ],
        operand: Some(Operand {
            name: "PROGRAM",
            takes: Takes::Rest,
            optional: true,
            help: "The program and its arguments; or a trace, as by -i FILE.",
        }),
    },
];

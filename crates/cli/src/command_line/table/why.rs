//! `calltap why`: the waits of slow calls.

use super::flags::{ANSWER_OVERHEAD, ASKED, ASKING, FILTER};
use super::{Command, Operand, Takes, switch, value};

/// The commands.
pub const WHY: &[Command] = &[
    Command {
        name: "why",
        about: "Show why calls were slow: what they waited for, which thread woke them, and what that had done meanwhile",
        details: "calltap why 'handle>10ms' -p 4711\n\
                  calltap why 'handle>10ms' -- ./prog\n\n\
                  Of each of the slowest calls: how long its thread ran, and in which functions; each wait, with the system call and the calls around it; who ended the wait, and in which \
                  calls that thread was then; and the same of that thread, for the time of the wait. All functions are traced, or those of -F; a call within a call of the kind is part of it. The program is recorded \
                  until its end, and the answer is made then, of the whole.\n\n\
                  With --async the names are those of futures, or of the async functions whose bodies they are: how long each was polled; how long it waited, who woke its task, and what that future had done meanwhile; \
                  and how long no worker polled it although it was woken. Only functions that poll futures are traced, and those of -F. A file needs 'record --async'.\n\n\
                  Who woke whom, and system calls, take root or CAP_PERFMON, and tracefs; without them the answer says so, and the rest. A file needs 'record --events sched,syscalls'. docs/why.md has more.",
        flags: &[
            ASKED,
            &[
                value("limit", Some('n'), "N", "The N slowest calls (10), or the N largest causes."),
                switch("summary", None, "The time of all slow calls together, by cause."),
                switch(
                    "async",
                    None,
                    "Futures of a program in Rust instead of calls, and which tasks woke them.",
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
            help: "Calls of functions (a glob), or futures, that take longer, as in 'handle>10ms'; last a trace, as -i FILE.",
        }),
    },
    Command {
        name: "locks",
        about: "Show at which locks threads waited: how often, how long, in which functions, and in which they were woken",
        details: "calltap locks -p 4711 --duration 10s\n\n\
                  A lock is an address at which threads wait for each other by the system call futex: mutexes, condition variables, semaphores, joins. It has the name of the global object there, as the symbol table of its \
                  file says; else the address and what is mapped there. It needs what 'calltap why' needs.",
        flags: &[
            ASKED,
            &[value("limit", Some('n'), "ROWS", "At most so many locks."), FILTER, ANSWER_OVERHEAD],
            ASKING,
        ],
        operand: Some(Operand {
            name: "PROGRAM",
            takes: Takes::Rest,
            optional: true,
            help: "The program and its arguments; or a trace, as -i FILE.",
        }),
    },
];

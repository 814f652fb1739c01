//! Reasons why a process cannot be detached from yet.

use calltap_patch::Avma;
use calltap_process::Reason;
use calltap_process::ptrace::threads::NotHeld;
use std::{fmt, io};

/// Why a process is not detached from yet: a thread is in calltap's code, or may return to it.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// Not all threads could be stopped.
    NotHeld(NotHeld),
    /// This thread executes calltap's code.
    Runs { thread: u32, at: u64 },
    /// A signal handler of this thread has interrupted calltap's code.
    Interrupted { thread: u32 },
    /// This thread unwinds its stack, with copies of return addresses that are stubs.
    Unwinds { thread: u32 },
    /// This thread unwinds its stack, and goes on with that only after SIGCONT.
    UnwindsStopped { thread: u32 },
    /// A stack could not be searched to its end.
    StackNotSearched,
    /// Threads have started or ended meanwhile.
    OtherThreads,
    /// All threads are on stacks without room for the unmapping call.
    NoRoom,
    /// Open calls could not be given their return addresses back.
    CallsNotClosed { why: io::Error },
    /// The agent could not be told to refuse the interpreter's calls.
    GateOpen { why: io::Error },
    /// A thread will return into instructions that are written last.
    WillReturn,
    /// Another tool has changed the code at a site. It may have saved calltap's jump, to execute it
    /// or to write it back.
    ForeignCode { at: Avma },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NotHeld(why) => write!(out, "{}", Reason::from(*why)),
            Obstacle::Runs { thread, at } => {
                write!(out, "thread {thread} is still in calltap's code, at {at:#x}")
            }
            Obstacle::Interrupted { thread } => {
                write!(
                    out,
                    "a signal handler of thread {thread} has interrupted calltap's code, and has not returned"
                )
            }
            Obstacle::Unwinds { thread } => {
                write!(
                    out,
                    "thread {thread} unwinds its stack, and may be about to return into calltap's code"
                )
            }
            Obstacle::UnwindsStopped { thread } => {
                write!(
                    out,
                    "thread {thread} is stopped by a signal, perhaps in the middle of unwinding its stack"
                )
            }
            Obstacle::StackNotSearched => {
                out.write_str("a thread's stack cannot be searched for calltap's code, as it is too large, no other process may read it (memfd_secret), or the stack pointer is in no memory")
            }
            Obstacle::OtherThreads => {
                out.write_str("threads begin and end faster than calltap can stop them")
            }
            Obstacle::NoRoom => out.write_str("no thread's stack has room for a call"),
            Obstacle::CallsNotClosed { why } => {
                write!(out, "calls still return to calltap's code, as their return addresses could not be restored: {why}")
            }
            Obstacle::GateOpen { why } => {
                write!(out, "Python still calls calltap's code, as the agent's memory could not be written: {why}")
            }
            Obstacle::WillReturn => {
                out.write_str("a thread will return into instructions that calltap has moved")
            }
            Obstacle::ForeignCode { at } => {
                write!(
                    out,
                    "another tool has changed the code at {:#x}, and may have saved calltap's jump there",
                    at.0
                )
            }
        }
    }
}

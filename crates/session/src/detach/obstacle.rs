//! Reasons why a process cannot be detached from yet.

use calltap_process::ptrace::threads::NotHeld;
use std::io;

calltap_sites::reasons! {
    /// Why a process is not detached from yet: a thread is in calltap's code, or may return to it.
    #[derive(Debug)]
    pub enum Obstacle;

    /// Not all threads could be stopped.
    NotHeld { why: NotHeld } = "not-held", "{why}", "do what that reason says, and detach again";
    Runs { thread: u32, at: u64 } = "thread-in-code",
        "thread {thread} is still in calltap's code, at {at:#x}", "detach again";
    Interrupted { thread: u32 } = "handler-in-code",
        "a signal handler of thread {thread} has interrupted calltap's code, and has not returned", "detach again when it has returned";
    /// The thread has copies of return addresses that are stubs.
    Unwinds { thread: u32 } = "unwinding",
        "thread {thread} unwinds its stack, and may be about to return into calltap's code", "detach again";
    /// The thread continues only after SIGCONT.
    UnwindsStopped { thread: u32 } = "stopped-unwinding",
        "thread {thread} is stopped by a signal, perhaps in the middle of unwinding its stack", "kill -CONT PID, and detach again";
    StackNotSearched = "stack-not-searched",
        "a thread's stack cannot be searched for calltap's code, as it is too large, no other process may read it (memfd_secret), or the stack pointer is in no memory",
        "detach again when that thread has ended";
    OtherThreads = "other-threads",
        "threads begin and end faster than calltap can stop them", "detach again";
    /// No stack has room for the unmapping call.
    NoRoom = "no-room-to-unmap", "no thread's stack has room for a call", "detach again";
    CallsNotClosed { why: io::Error } = "calls-not-closed",
        "calls still return to calltap's code, as their return addresses could not be restored: {why}", "detach again";
    GateOpen { why: io::Error } = "python-not-refused",
        "Python still calls calltap's code, as the agent's memory could not be written: {why}", "detach again";
    /// The instructions are written last.
    WillReturn = "will-return",
        "a thread will return into instructions that calltap has moved", "detach again";
    /// The tool may execute calltap's jump, or write it back.
    ForeignCode { at: u64 } = "foreign-code",
        "another tool has changed the code at {at:#x}, and may have saved calltap's jump there", "end that tool, and detach again";
}

#[cfg(test)]
mod tests {
    use super::Obstacle;
    use calltap_sites::reason::assert_documented;

    #[test]
    fn all_obstacles_are_documented() {
        assert_documented(Obstacle::ALL);
    }
}

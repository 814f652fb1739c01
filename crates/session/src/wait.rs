//! Reports of traced threads: what `waitpid` says of them, decoded from the raw status.
//!
//! The raw status is decoded here because the enums of the wrapper libraries have no value for real-time signals: they turn the
//! stop for one into an error, which is indistinguishable from the end of the thread.

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

/// PTRACE_EVENT_STOP, in the upper half of a status.
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;
/// Set in the signal of a system-call stop (PTRACE_O_TRACESYSGOOD).
const SYSTEM_CALL: i32 = 0x80;

/// What a traced thread did since it was last resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// Nothing yet.
    Runs,
    /// It ended.
    Ended,
    /// It stopped for PTRACE_INTERRUPT, or as a new thread.
    Interrupted,
    /// It stopped with its process, for SIGSTOP or another stop signal.
    GroupStop(i32),
    /// It stopped at the entry to or the exit from a system call.
    SystemCall,
    /// It stopped before a signal is delivered; the signal is delivered if it is passed on.
    Signal(i32),
    /// It stopped for another event of ptrace, with this number.
    Event(i32),
}

/// The next report of a traced thread. Does not wait.
pub fn poll(tid: u32) -> Report {
    let Some(pid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else { return Report::Ended };
    let options = WaitOptions::from_bits_retain(libc::__WALL as u32) | WaitOptions::NOHANG;
    match waitpid(Some(pid), options) {
        Ok(None) => Report::Runs,
        Ok(Some((_, status))) => decode(status.as_raw()),
        // The thread is not, or no longer, one of this tracer's.
        Err(Errno::CHILD) => Report::Ended,
        Err(_) => Report::Runs,
    }
}

/// A raw status of `waitpid`.
fn decode(status: i32) -> Report {
    if !libc::WIFSTOPPED(status) {
        return Report::Ended;
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (EVENT_STOP, libc::SIGTRAP) => Report::Interrupted,
        (EVENT_STOP, signal) => Report::GroupStop(signal),
        (0, signal) if signal == libc::SIGTRAP | SYSTEM_CALL => Report::SystemCall,
        (0, signal) => Report::Signal(signal),
        (event, _) => Report::Event(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: i32, signal: i32, expected: Report) {
        assert_eq!(decode(event << 16 | signal << 8 | 0x7f), expected);
    }

    #[test]
    fn every_signal_is_reported_by_its_number() {
        (1..=64).for_each(|signal| check(0, signal, Report::Signal(signal)));
    }

    #[test]
    fn stops_are_told_apart() {
        check(EVENT_STOP, libc::SIGTRAP, Report::Interrupted);
        check(EVENT_STOP, libc::SIGSTOP, Report::GroupStop(libc::SIGSTOP));
        check(0, libc::SIGTRAP | SYSTEM_CALL, Report::SystemCall);
        check(libc::PTRACE_EVENT_CLONE, libc::SIGTRAP, Report::Event(libc::PTRACE_EVENT_CLONE));
    }

    #[test]
    fn only_an_exit_and_a_death_by_signal_are_the_end() {
        assert_eq!(decode(3 << 8), Report::Ended);
        assert_eq!(decode(libc::SIGKILL), Report::Ended);
        assert_eq!(decode(libc::SIGSEGV | 0x80), Report::Ended);
    }
}

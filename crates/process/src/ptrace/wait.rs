//! Reports of traced threads: polls `waitid` and decodes the raw status.
//!
//! The stop before a signal is never collected. The kernel keeps the signal with the report: once
//! the report is collected, the thread gets the signal only from a tracer that resumes the thread
//! with it. A tracer that is killed in between would lose the signal.
//!
//! The raw status is decoded here because the enums of the wrapper libraries have no value for
//! real-time signals: they turn the stop for one into an error, which is indistinguishable from the
//! end of the thread.

use crate::proc;
use crate::ptrace::standstill;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// PTRACE_EVENT_STOP, in the second byte of a status.
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;
/// Bit set in the signal of a system-call stop (PTRACE_O_TRACESYSGOOD).
const SYSTEM_CALL: i32 = 0x80;

/// Options of a wait for any thread that returns at once.
const ANY_NOW: WaitIdOptions =
    WaitIdOptions::from_bits_retain(libc::__WALL as u32).union(WaitIdOptions::NOHANG);

/// Event of a traced thread since it was last resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// No report yet.
    Runs,
    /// The thread ended.
    Ended,
    /// The thread stopped for PTRACE_INTERRUPT, or as a new thread.
    Interrupted,
    /// The thread stopped with its process, for SIGSTOP or another stop signal.
    GroupStop(i32),
    /// The thread stopped at the entry to or the exit from a system call.
    SystemCall,
    /// The thread stopped before this signal is delivered. The tracer decides whether it is.
    Signal(i32),
    /// The thread stopped for another event of ptrace, with this number.
    Event(i32),
}

/// Returns the report of a traced thread, without waiting. The report before a signal is returned
/// until the thread is resumed, every other one once. An ended thread is reaped.
pub fn poll(tid: u32) -> Report {
    let Some(pid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else { return Report::Ended };
    // An end is left for the parent.
    let report = match stop_of(pid, WaitIdOptions::NOWAIT) {
        Ok(Some(signal @ Report::Signal(_))) => signal,
        Ok(Some(other)) => stop_of(pid, WaitIdOptions::empty()).ok().flatten().unwrap_or(other),
        Ok(None) | Err(Errno::CHILD) => return without_stop(tid, pid),
        Err(_) => return Report::Runs,
    };
    if !matches!(report, Report::Runs | Report::GroupStop(_)) {
        standstill::note(tid);
    }
    report
}

/// Collects the stop before a signal that the thread is not to get, as injected code has raised it.
pub fn collect(tid: u32) {
    let pid = i32::try_from(tid).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| stop_of(pid, WaitIdOptions::empty()));
}

/// Returns a thread's stop. `how`: NOWAIT leaves it to be reported again.
fn stop_of(pid: Pid, how: WaitIdOptions) -> Result<Option<Report>, Errno> {
    let stop = waitid(WaitId::Pid(pid), ANY_NOW | WaitIdOptions::STOPPED | how)?;
    let status = |stop: WaitIdStatus| stop.trapping_signal().or_else(|| stop.stopping_signal());
    Ok(stop.map(|stop| status(stop).map_or(Report::Runs, decode)))
}

/// Returns the report of a thread that has not stopped: it runs, has ended, or is not or no longer
/// a tracee.
fn without_stop(tid: u32, pid: Pid) -> Report {
    match waitid(WaitId::Pid(pid), ANY_NOW | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
        Ok(Some(status)) if is_end(&status) => {
            release_ended(tid);
            Report::Ended
        }
        Err(Errno::CHILD) => Report::Ended,
        // A stop since the first look is reported here as well, and returned by the next poll.
        Ok(_) | Err(_) => Report::Runs,
    }
}

fn is_end(status: &WaitIdStatus) -> bool {
    status.exited() || status.killed() || status.dumped()
}

/// First report that the kernel has of all traced threads and children of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstReport {
    /// There is no report.
    None,
    /// A traced thread stopped.
    Stop,
    /// A thread or child ended.
    End,
}

/// Returns the first report without collecting it.
pub(crate) fn first_report() -> FirstReport {
    // The stop of a traced thread is reported even if only ends are asked for.
    match waitid(WaitId::All, ANY_NOW | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
        Ok(Some(status)) if is_end(&status) => FirstReport::End,
        Ok(Some(_)) => FirstReport::Stop,
        Ok(None) | Err(_) => FirstReport::None,
    }
}

/// Returns the thread or child that a [`FirstReport::End`] is about.
pub(crate) fn first_ended() -> Option<u32> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    match waitid(Id::All, flags) {
        Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => pid.as_raw().try_into().ok(),
        // A wrapper without a value for real-time signals: the lists tell which thread it was.
        Ok(_) | Err(_) => None,
    }
}

/// Reaps a traced thread if it has ended, unless it is its process's first. Until the tracer does
/// so, an execve of the process waits, and so do the end of the process and its parent. How a
/// process ended is left for its parent to learn. Returns whether this process no longer traces the
/// thread.
pub(crate) fn release_ended(tid: u32) -> bool {
    let Some(pid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else { return true };
    let ended = ANY_NOW | WaitIdOptions::EXITED;
    // The stop of a traced thread is reported even if only ends are asked for, and must be left for
    // the thread that waits for it.
    match waitid(WaitId::Pid(pid), ended | WaitIdOptions::NOWAIT) {
        Err(Errno::CHILD) => true,
        Ok(Some(status)) if is_end(&status) && proc::is_first_thread(tid) == Some(false) => {
            waitid(WaitId::Pid(pid), ended).is_ok()
        }
        Ok(_) | Err(_) => false,
    }
}

/// Decodes the status of a stop: its signal, and an event of ptrace in the byte above.
pub(super) fn decode(status: i32) -> Report {
    match (status >> 8, status & 0xff) {
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
        assert_eq!(decode(event << 8 | signal), expected);
    }

    #[test]
    fn every_signal_is_reported_by_its_number() {
        (1..=64).for_each(|signal| check(0, signal, Report::Signal(signal)));
    }

    #[test]
    fn stops_are_distinguished() {
        check(EVENT_STOP, libc::SIGTRAP, Report::Interrupted);
        check(EVENT_STOP, libc::SIGSTOP, Report::GroupStop(libc::SIGSTOP));
        check(0, libc::SIGTRAP | SYSTEM_CALL, Report::SystemCall);
        check(libc::PTRACE_EVENT_CLONE, libc::SIGTRAP, Report::Event(libc::PTRACE_EVENT_CLONE));
    }

    #[test]
    fn the_end_of_a_child_is_left_for_its_parent() {
        let mut child = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn().expect("a shell");
        while poll(child.id()) == Report::Runs {
            std::thread::yield_now();
        }
        assert_eq!(poll(child.id()), Report::Ended);
        assert_eq!(child.wait().expect("not yet waited for").code(), Some(3));
    }
}

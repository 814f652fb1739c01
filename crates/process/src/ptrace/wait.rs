//! Reports of traced threads: what `waitid` says of them, decoded from the raw status.
//!
//! The raw status is decoded here because the enums of the wrapper libraries have no value for real-time signals: they turn the
//! stop for one into an error, which is indistinguishable from the end of the thread.

use crate::proc;
use crate::ptrace::standstill;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// PTRACE_EVENT_STOP, in the second byte of a status.
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

/// The next report of a traced thread. Does not wait. A thread that has ended is [released](release_ended).
pub fn poll(tid: u32) -> Report {
    let Some(pid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else { return Report::Ended };
    let any = WaitIdOptions::from_bits_retain(libc::__WALL as u32) | WaitIdOptions::NOHANG;
    // Only a stop is taken: an end is left for the parent to learn.
    let stop = match waitid(WaitId::Pid(pid), any | WaitIdOptions::STOPPED) {
        Ok(Some(stop)) => stop,
        Ok(None) | Err(Errno::CHILD) => return without_stop(tid, pid, any),
        Err(_) => return Report::Runs,
    };
    let status = stop.trapping_signal().or_else(|| stop.stopping_signal());
    let report = status.map_or(Report::Runs, decode);
    if !matches!(report, Report::Runs | Report::GroupStop(_)) {
        standstill::note(tid);
    }
    report
}

/// The report of a thread that has not stopped: it runs, has ended, or is not, or no longer, one of this tracer's.
fn without_stop(tid: u32, pid: Pid, any: WaitIdOptions) -> Report {
    match waitid(WaitId::Pid(pid), any | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
        Ok(Some(status)) if is_end(&status) => {
            release_ended(tid);
            Report::Ended
        }
        Err(Errno::CHILD) => Report::Ended,
        // A stop since the first look is reported here as well, and taken the next time.
        Ok(_) | Err(_) => Report::Runs,
    }
}

fn is_end(status: &WaitIdStatus) -> bool {
    status.exited() || status.killed() || status.dumped()
}

/// What the kernel would report first of all traced threads and children of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstReport {
    /// Nothing.
    None,
    /// The stop of a traced thread.
    Stop,
    /// An end.
    End,
}

/// Looks for it, and leaves it.
pub fn first_report() -> FirstReport {
    let any = WaitIdOptions::from_bits_retain(libc::__WALL as u32) | WaitIdOptions::NOHANG;
    // The stop of a traced thread is reported even where only ends are asked for.
    match waitid(WaitId::All, any | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
        Ok(Some(status)) if is_end(&status) => FirstReport::End,
        Ok(Some(_)) => FirstReport::Stop,
        Ok(None) | Err(_) => FirstReport::None,
    }
}

/// Releases a traced thread if it has ended. Until its tracer does so, an execve of its process waits for it, and so do the end of its process
/// and the parent of that. How a process ended is left for its parent to learn.
pub fn release_ended(tid: u32) {
    let Some(pid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else { return };
    let ended =
        WaitIdOptions::from_bits_retain(libc::__WALL as u32) | WaitIdOptions::NOHANG | WaitIdOptions::EXITED;
    // The stop of a traced thread is reported even where only ends are asked for, and must be left for the thread that waits for it.
    let status = waitid(WaitId::Pid(pid), ended | WaitIdOptions::NOWAIT);
    let has_ended = status.is_ok_and(|status| status.is_some_and(|status| is_end(&status)));
    if has_ended && proc::is_first_thread(tid) == Some(false) {
        let _ = waitid(WaitId::Pid(pid), ended);
    }
}

/// The status of a stop: its signal, and an event of ptrace in the byte above.
fn decode(status: i32) -> Report {
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
    fn stops_are_told_apart() {
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

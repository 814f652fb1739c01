//! Threads of other processes that are followed by ptrace: they run, and stop for a moment at each
//! event.
//!
//! A tracer is a thread. When it ends, the kernel releases all its tracees with the signals that
//! were on their way.

use crate::ptrace::requests::{self, OwnReport};
use crate::ptrace::standstill;
use crate::ptrace::wait::{self, Report};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// An event of a followed thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The thread has ended.
    Ended,
    /// The thread is this process's child and has ended; the thread of calltap that started it has
    /// to wait for it.
    ChildEnded,
    /// The thread executed another program, which has not run an instruction yet. The thread had
    /// this id before.
    Exec(u32),
    /// A signal is about to be delivered to the thread.
    Signal(i32),
    /// The thread stops for a stop signal.
    Stop,
    /// The thread has begun, or has started another thread or process.
    Other,
}

/// Makes the calling thread the tracer of a thread and of all threads and processes that it starts.
pub fn seize(tid: u32) -> Result<(), Errno> {
    use ptrace::Options as O;
    let all = O::PTRACE_O_TRACEFORK | O::PTRACE_O_TRACEVFORK | O::PTRACE_O_TRACECLONE | O::PTRACE_O_TRACEEXEC;
    ptrace::seize(Pid::from_raw(tid as i32), all)
}

/// Why there is no event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quiet {
    /// The calling thread has no tracee left.
    None,
    /// No event yet.
    Yet,
}

/// Returns the next event of a tracee of the calling thread; `child` is the one that is this
/// process's child. A signal is returned until the thread is resumed.
pub fn next(child: Option<u32>) -> Result<(u32, Event), Quiet> {
    let (pid, report) = match requests::reporting() {
        Ok(Some(report)) => report,
        Err(Errno::ECHILD) => return Err(Quiet::None),
        Ok(None) | Err(_) => return Err(Quiet::Yet),
    };
    let tid = pid.as_raw() as u32;
    let event = match report {
        // A child of this process is left for the thread that started it.
        OwnReport::Ended if child == Some(tid) => return Ok((tid, Event::ChildEnded)),
        OwnReport::Ended => Event::Ended,
        OwnReport::Stopped(status) => event(pid, wait::decode(status)),
    };
    // The stop before a signal is not collected, as in `wait`.
    if !matches!(event, Event::Signal(_)) {
        requests::collect(pid);
    }
    if !matches!(event, Event::Ended | Event::Stop) {
        standstill::note(tid);
    }
    Ok((tid, event))
}

fn event(pid: Pid, report: Report) -> Event {
    match report {
        Report::Signal(signal) => Event::Signal(signal),
        Report::GroupStop(_) => Event::Stop,
        Report::Event(libc::PTRACE_EVENT_EXEC) => {
            let tid = || pid.as_raw() as u32;
            Event::Exec(ptrace::getevent(pid).map_or_else(|_| tid(), |former| former as u32))
        }
        _ => Event::Other,
    }
}

/// Resumes a thread, with this signal (0: none).
pub fn run(tid: u32, signal: i32) {
    // A tracee that has ended meanwhile needs nothing.
    let _ = requests::resume(Pid::from_raw(tid as i32), false, signal);
}

/// Leaves a thread stopped for as long as it would be without calltap.
pub fn stay_stopped(tid: u32) {
    // A tracee that has ended meanwhile does not run.
    let _ = requests::listen(Pid::from_raw(tid as i32));
}

/// Whether two processes share their memory. True if the kernel does not answer.
pub fn may_share_memory(one: u32, other: u32) -> bool {
    has_same_memory(one, other).unwrap_or(true)
}

/// Whether two processes have the same memory. None if the kernel does not answer.
pub(crate) fn has_same_memory(one: u32, other: u32) -> Option<bool> {
    requests::has_same_memory(Pid::from_raw(one as i32), Pid::from_raw(other as i32)).ok()
}

//! Threads of other processes that are followed by ptrace: they run, and stop for a moment at each
//! event.
//!
//! A tracer is a thread. When it ends, the kernel releases all its tracees with the signals that
//! were on their way.
//!
//! Unsafe because signals may be any number, and some requests have no safe wrapper.
#![allow(unsafe_code)]

use crate::ptrace::standstill;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// PTRACE_EVENT_STOP, as in the status of a thread.
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;

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
/// process's child.
pub fn next(child: Option<u32>) -> Result<(u32, Event), Quiet> {
    const OPTIONS: i32 = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: zeros are a valid siginfo_t, which the call fills in; the accessors read what waitid
    // sets.
    let (tid, has_ended) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        // A child of this process is left for the thread that started it.
        if libc::waitid(libc::P_ALL, 0, &mut info, OPTIONS | libc::WNOWAIT) != 0 {
            return Err(if Errno::last() == Errno::ECHILD { Quiet::None } else { Quiet::Yet });
        }
        if info.si_pid() == 0 {
            return Err(Quiet::Yet);
        }
        let ended = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
        (info.si_pid(), ended)
    };
    if has_ended && child == Some(tid as u32) {
        return Ok((tid as u32, Event::ChildEnded));
    }
    let mut status = 0;
    // SAFETY: the call writes one int.
    if unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG) } != tid {
        return Ok((tid as u32, Event::Ended));
    }
    Ok((tid as u32, event(tid, status)))
}

fn event(tid: i32, status: i32) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Ended;
    }
    let signal = libc::WSTOPSIG(status);
    let event = match status >> 16 {
        0 => Event::Signal(signal),
        libc::PTRACE_EVENT_EXEC => {
            Event::Exec(ptrace::getevent(Pid::from_raw(tid)).map_or(tid as u32, |former| former as u32))
        }
        EVENT_STOP if signal != libc::SIGTRAP => Event::Stop,
        _ => Event::Other,
    };
    if event != Event::Stop {
        standstill::note(tid as u32);
    }
    event
}

/// Resumes a thread, with this signal (0: none).
pub fn run(tid: u32, signal: i32) {
    // SAFETY: no pointers. A tracee that has ended meanwhile needs nothing.
    unsafe { libc::ptrace(libc::PTRACE_CONT, tid as libc::pid_t, 0usize, signal as usize) };
}

/// Leaves a thread stopped for as long as it would be without calltap.
pub fn stay_stopped(tid: u32) {
    // SAFETY: as above.
    unsafe { libc::ptrace(libc::PTRACE_LISTEN, tid as libc::pid_t, 0usize, 0usize) };
}

/// Whether two processes share their memory. True if the kernel does not answer.
pub fn may_share_memory(one: u32, other: u32) -> bool {
    has_same_memory(one, other).unwrap_or(true)
}

/// Whether two processes have the same memory. None if the kernel does not answer.
pub fn has_same_memory(one: u32, other: u32) -> Option<bool> {
    const KCMP_VM: i32 = 1;
    // SAFETY: the call compares; no pointers.
    let order =
        unsafe { libc::syscall(libc::SYS_kcmp, one as libc::pid_t, other as libc::pid_t, KCMP_VM, 0, 0) };
    (order >= 0).then_some(order == 0)
}

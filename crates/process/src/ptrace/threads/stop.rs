//! Waits until a thread that was asked to stop stands still, and resumes it.
//!
//! A process that a stop signal has stopped is in a group stop. The kernel then reports the group
//! stop of a traced thread instead of the requested stop. In a group stop a traced thread accepts
//! ptrace requests and can be resumed; when it is released, or its tracer ends, the kernel
//! returns it to the group stop, unless SIGCONT has ended that meanwhile.

use super::faults::has_faulted;
use super::helper_tracer::request;
use super::{NotHeld, has_ended, interrupt};
use crate::proc;
use crate::ptrace::requests;
use crate::ptrace::wait::{self, Report};
use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use std::time::{Duration, Instant};

/// How long to wait for a thread that only waits for a processor, on a busy machine.
pub(super) const LONG_PATIENCE: Duration = Duration::from_secs(2);
/// How long a thread that a ptrace request no longer finds may take to end.
const ENDING: Duration = Duration::from_millis(500);
/// First pause between two polls of a thread. Later ones grow.
const FIRST_PAUSE: Duration = Duration::from_micros(10);
/// Longest pause.
const LAST_PAUSE: Duration = Duration::from_millis(1);

/// Whether a thread will report its stop: it waits for a processor, or is stopped already.
fn comes_out(tid: u32) -> bool {
    matches!(proc::state(tid), Some('R' | 't'))
}

/// A thread that stands still.
pub(super) struct Standing {
    pub regs: user_regs_struct,
    /// Whether a stop signal has stopped its process.
    pub in_group_stop: bool,
}

/// Waits until a thread that was asked to stop stands still. Signals on their way are delivered.
pub(super) fn await_stop(tid: u32, start: Instant, patience: Duration) -> Result<Standing, NotHeld> {
    let mut pauses = Pauses::default();
    loop {
        match wait::poll(tid) {
            report @ (Report::Interrupted | Report::GroupStop(_)) => {
                let regs = registers(tid)?;
                // Also in a system call: a seccomp filter or user dispatch raises SIGSYS there.
                if !has_faulted(tid) {
                    let in_group_stop = matches!(report, Report::GroupStop(_));
                    return Ok(Standing { regs, in_group_stop });
                }
                // The handler takes the registers to be those of the faulting instruction or
                // system call, so the signal must be delivered first. The thread is interrupted
                // again once the signal is reported: it would serve an interrupt sent now before
                // the signal.
                resume(tid, Resume::Freely, 0)?;
            }
            // Every stop uses up the request. Asked again, the thread stops at the first
            // instruction of the signal's handler.
            Report::Signal(signal) => {
                interrupt(tid)?;
                resume(tid, Resume::Freely, signal)?;
            }
            Report::Runs
                if start.elapsed() > patience && (start.elapsed() > LONG_PATIENCE || !comes_out(tid)) =>
            {
                return Err(NotHeld::Stuck);
            }
            Report::Runs => pauses.wait(),
            Report::Ended => return Err(NotHeld::Gone),
            Report::SystemCall | Report::Event(_) => {
                interrupt(tid)?;
                resume(tid, Resume::Freely, 0)?;
            }
        }
    }
}

/// How far a stopped thread is resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resume {
    Freely,
    /// Up to its next entry to or exit from a system call.
    ToSystemCall,
}

/// Resumes a stopped thread, with this signal delivered (0: none).
pub(super) fn resume(tid: u32, how: Resume, signal: i32) -> Result<(), NotHeld> {
    let to_system_call = how != Resume::Freely;
    request(tid, move |pid| requests::resume(pid, to_system_call, signal)).map_err(|errno| lost(tid, errno))
}

pub(super) fn registers(tid: u32) -> Result<user_regs_struct, NotHeld> {
    request(tid, ptrace::getregs).map_err(|errno| lost(tid, errno))
}

/// Returns why a ptrace request failed on a stopped thread. The kernel returns ESRCH for a thread
/// that ends, and for one that is not stopped.
pub(super) fn lost(tid: u32, errno: Errno) -> NotHeld {
    let start = Instant::now();
    while errno == Errno::ESRCH && start.elapsed() < ENDING {
        if has_ended(tid) {
            return NotHeld::Gone;
        }
        std::thread::sleep(LAST_PAUSE);
    }
    NotHeld::Refused(errno)
}

/// Growing pauses between polls of a thread: short at first, as most stop within microseconds.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST_PAUSE)
    }
}

impl Pauses {
    pub(super) fn wait(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 5 / 4).min(LAST_PAUSE);
    }
}

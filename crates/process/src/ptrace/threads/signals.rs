//! Signals that a stopped thread has blocked, handled or pending, and the seccomp filters of its
//! system calls.

use super::helper_tracer::request;
use super::stop::lost;
use super::{NotHeld, StoppedThread};
use crate::ptrace::requests;
use crate::seccomp::Instruction;
use crate::status::Status;
use nix::errno::Errno;
use nix::unistd::Pid;

impl StoppedThread {
    /// Blocks all signals of the thread, until it changes its mask itself.
    pub(crate) fn block_signals(&self) -> Result<(), NotHeld> {
        self.set_blocked_signals(u64::MAX)
    }

    pub(super) fn set_blocked_signals(&self, mask: u64) -> Result<(), NotHeld> {
        let tid = self.tid;
        request(tid, move |pid| requests::set_signal_mask(pid, mask)).map_err(|errno| lost(tid, errno))
    }

    /// Reads sets of signals from the thread's status file.
    fn signals<const N: usize>(&self, names: [&str; N]) -> Option<[u64; N]> {
        let status = Status::of_thread(self.process, self.tid).ok()?;
        let mut sets = [0; N];
        for (set, name) in sets.iter_mut().zip(names) {
            *set = status.signals(name)?;
        }
        Some(sets)
    }

    /// Returns the signals that the program has handlers for.
    pub(crate) fn handled_signals(&self) -> u64 {
        self.signals(["SigCgt"]).map_or(0, |[handled]| handled)
    }

    /// Whether a signal is pending that a handler will run for. A traced thread also gets signals
    /// that it ignores, which end no call.
    pub(super) fn signal_pending(&self) -> bool {
        let sets = self.signals(["SigPnd", "ShdPnd", "SigBlk", "SigCgt"]);
        sets.is_none_or(|[own, shared, blocked, handled]| (own | shared) & !blocked & handled != 0)
    }

    /// Returns the thread's signal mask. During a system call with a temporary mask, that is the
    /// one to restore afterwards.
    pub(crate) fn blocked_signals(&self) -> Result<u64, NotHeld> {
        request(self.tid, requests::signal_mask).map_err(|errno| lost(self.tid, errno))
    }

    /// Whether the program has its system calls raise SIGSYS (PR_SET_SYSCALL_USER_DISPATCH).
    /// Kernels before 6.4 do not report it.
    pub fn dispatches_system_calls(&self) -> bool {
        request(self.tid, requests::dispatches_system_calls).unwrap_or(false)
    }

    /// Returns the seccomp filters of the thread.
    pub fn seccomp_filters(&self) -> Result<Vec<Vec<Instruction>>, Errno> {
        StoppedThread::filters_of(self.tid)
    }

    /// Returns the seccomp filters of a thread that is stopped for this one in another way.
    pub fn filters_of(tid: u32) -> Result<Vec<Vec<Instruction>>, Errno> {
        request(tid, read_filters)
    }
}

fn read_filters(pid: Pid) -> Result<Vec<Vec<Instruction>>, Errno> {
    let mut filters = Vec::new();
    loop {
        match requests::seccomp_filter(pid, filters.len()) {
            Ok(filter) => filters.push(filter),
            Err(Errno::ENOENT) => return Ok(filters),
            Err(errno) => return Err(errno),
        }
    }
}

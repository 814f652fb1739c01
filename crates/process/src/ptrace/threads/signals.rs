//! Signals that a stopped thread has blocked, handled or pending, and the seccomp filters of its
//! system calls.

use super::helper_tracer::request;
use super::stop::lost;
use super::{NotHeld, StoppedThread};
use crate::seccomp::Instruction;
use crate::status::Status;
use nix::errno::Errno;
use nix::unistd::Pid;

impl StoppedThread {
    /// Blocks all signals of the thread, until it changes its mask itself.
    pub fn block_signals(&self) -> Result<(), NotHeld> {
        self.set_blocked_signals(u64::MAX)
    }

    pub(super) fn set_blocked_signals(&self, mask: u64) -> Result<(), NotHeld> {
        const SETSIGMASK: u32 = 0x420b;
        let tid = self.tid;
        // SAFETY: the kernel reads 8 bytes from `mask`.
        let set = move |pid: Pid| unsafe {
            libc::ptrace(SETSIGMASK, pid.as_raw(), size_of::<u64>(), &raw const mask)
        };
        request(tid, move |pid| Errno::result(set(pid)).map(drop)).map_err(|errno| lost(tid, errno))
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
    pub fn handled_signals(&self) -> u64 {
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
    pub fn blocked_signals(&self) -> Result<u64, NotHeld> {
        const GETSIGMASK: u32 = 0x420a;
        let tid = self.tid;
        let get = |pid: Pid| {
            let mut mask = 0u64;
            // SAFETY: the kernel writes 8 bytes to `mask`.
            let done = unsafe { libc::ptrace(GETSIGMASK, pid.as_raw(), size_of::<u64>(), &raw mut mask) };
            Errno::result(done).map(|_| mask)
        };
        request(tid, get).map_err(|errno| lost(tid, errno))
    }

    /// Whether the program has its system calls raise SIGSYS (PR_SET_SYSCALL_USER_DISPATCH).
    /// Kernels before 6.4 do not report it.
    pub fn dispatches_system_calls(&self) -> bool {
        const GET_DISPATCH: u32 = 0x4211;
        /// `struct ptrace_sud_config`: mode, selector, start and length of the code that is exempt.
        type Configuration = [u64; 4];
        let get = |pid: Pid| {
            let mut configuration: Configuration = [0; 4];
            // SAFETY: the kernel writes at most `size` bytes.
            let done = unsafe {
                let size = size_of::<Configuration>();
                libc::ptrace(GET_DISPATCH, pid.as_raw(), size, &raw mut configuration)
            };
            Errno::result(done).map(|_| configuration[0])
        };
        request(self.tid, get).is_ok_and(|mode| mode != 0)
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
    const GET_FILTER: u32 = 0x420c;
    const EMPTY: Instruction = Instruction { code: 0, jt: 0, jf: 0, k: 0 };
    let get = |index: usize, into: *mut Instruction| {
        // SAFETY: the kernel writes as many instructions as it returned when asked without memory.
        Errno::result(unsafe { libc::ptrace(GET_FILTER, pid.as_raw(), index, into) })
    };
    let mut filters = Vec::new();
    loop {
        match get(filters.len(), std::ptr::null_mut()) {
            Ok(length) => {
                let mut filter = vec![EMPTY; length as usize];
                get(filters.len(), filter.as_mut_ptr())?;
                filters.push(filter);
            }
            Err(Errno::ENOENT) => return Ok(filters),
            Err(errno) => return Err(errno),
        }
    }
}

//! What signals and system calls a stopped thread has blocked, pending and filtered.

use super::second::request;
use super::trip::FAULTS;
use super::{Held, NotHeld, lost};
use crate::proc;
use crate::seccomp::Instruction;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::fs;

impl Held {
    /// Has it block all signals, until it changes that itself.
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

    /// Sets of signals: lines of its status.
    fn signals<const N: usize>(&self, names: [&str; N]) -> Option<[u64; N]> {
        let status = fs::read_to_string(format!("/proc/{}/task/{}/status", self.process, self.tid)).ok()?;
        let mut sets = [0; N];
        for (set, name) in sets.iter_mut().zip(names) {
            *set = proc::signals(&status, name)?;
        }
        Some(sets)
    }

    /// Signals that the program has handlers for.
    pub fn handled_signals(&self) -> u64 {
        self.signals(["SigCgt"]).map_or(0, |[handled]| handled)
    }

    /// Has a signal come that a handler will run for? A traced thread is sent those that it ignores, too: they end no call.
    pub(super) fn signal_pending(&self) -> bool {
        let sets = self.signals(["SigPnd", "ShdPnd", "SigBlk", "SigCgt"]);
        sets.is_none_or(|[own, shared, blocked, handled]| (own | shared) & !blocked & handled != 0)
    }

    /// The signals it blocks (in a call that changes them for its own time: those it will block afterwards).
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

    /// Does the program have its system calls raise SIGSYS (PR_SET_SYSCALL_USER_DISPATCH)? Kernels
    /// before 6.4 do not say it.
    pub fn dispatches_system_calls(&self) -> bool {
        const GET_DISPATCH: u32 = 0x4211;
        /// `struct ptrace_sud_config`: mode, selector, start and length of the code that is exempt.
        type Configuration = [u64; 4];
        let get = |pid: Pid| {
            let mut configuration: Configuration = [0; 4];
            // SAFETY: the kernel writes no more than so many bytes.
            let done = unsafe {
                let size = size_of::<Configuration>();
                libc::ptrace(GET_DISPATCH, pid.as_raw(), size, &raw mut configuration)
            };
            Errno::result(done).map(|_| configuration[0])
        };
        request(self.tid, get).is_ok_and(|mode| mode != 0)
    }

    /// The seccomp filters that its system calls go through.
    pub fn seccomp_filters(&self) -> Result<Vec<Vec<Instruction>>, Errno> {
        Held::filters_of(self.tid)
    }

    /// The same of a thread that stands still for this one otherwise.
    pub fn filters_of(tid: u32) -> Result<Vec<Vec<Instruction>>, Errno> {
        request(tid, read_filters)
    }
}

fn read_filters(pid: Pid) -> Result<Vec<Vec<Instruction>>, Errno> {
    const GET_FILTER: u32 = 0x420c;
    const EMPTY: Instruction = Instruction { code: 0, jt: 0, jf: 0, k: 0 };
    let get = |index: usize, into: *mut Instruction| {
        // SAFETY: the kernel writes as many instructions as it has said before, when asked without memory.
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

/// Has a stopped thread executed an instruction that raised a signal, whose handler has not begun? So
/// do breakpoints, single steps and faults.
pub(super) fn has_faulted(tid: u32) -> bool {
    const PEEKSIGINFO: u32 = 0x4209;
    /// Signals of the thread's queue that are looked at.
    const MOST: u64 = 1 << 10;
    /// `struct ptrace_peeksiginfo_args`: how many from where.
    #[repr(C)]
    struct Which {
        offset: u64,
        flags: u32,
        count: i32,
    }
    let peek = |offset: u64| {
        move |pid: Pid| {
            let mut pending = [[0i32; 32]; 4]; // siginfo_t: signal, errno, code, ...
            let which = Which { offset, flags: 0, count: pending.len() as i32 };
            // SAFETY: the kernel reads `which`, and writes so many siginfo_t of 128 bytes.
            let found =
                unsafe { libc::ptrace(PEEKSIGINFO, pid.as_raw(), &raw const which, pending.as_mut_ptr()) };
            Errno::result(found).map(|found| (pending, found as usize))
        }
    };
    // Codes of signals that processes send are not positive.
    let is_fault = |info: &[i32; 32]| FAULTS.contains(&info[0]) && info[2] > 0;
    (0..MOST)
        .step_by(4)
        .map_while(|offset| request(tid, peek(offset)).ok().filter(|(_, found)| *found > 0))
        .any(|(pending, found)| pending.iter().take(found).any(is_fault))
}

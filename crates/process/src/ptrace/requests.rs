//! Requests about other threads for which the libraries have no safe wrapper, one function each.
//!
//! Unsafe because the kernel reads and writes memory at the pointers of some requests.
#![allow(unsafe_code)]

use crate::seccomp::Instruction;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::ffi::c_long;
use std::ptr::null_mut;

const PEEKSIGINFO: u32 = 0x4209;
const GETSIGMASK: u32 = 0x420a;
const SETSIGMASK: u32 = 0x420b;
const SECCOMP_GET_FILTER: u32 = 0x420c;
const GET_RSEQ_CONFIGURATION: u32 = 0x420f;
const GET_SYSCALL_USER_DISPATCH_CONFIG: u32 = 0x4211;

/// `siginfo_t`: signal, errno, code, and what depends on the signal.
pub(super) type SignalInfo = [i32; 32];
/// Signals that [`pending_signals`] reads at once.
pub(super) const AT_ONCE: usize = 4;

fn result(done: c_long) -> Result<usize, Errno> {
    Errno::result(done).map(|done| done as usize)
}

/// Resumes a stopped thread with any signal (0: none), up to its next system call or freely.
pub(super) fn resume(pid: Pid, to_system_call: bool, signal: i32) -> Result<(), Errno> {
    let kind = if to_system_call { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
    // SAFETY: no pointers.
    result(unsafe { libc::ptrace(kind, pid.as_raw(), 0_usize, signal as usize) }).map(drop)
}

/// Leaves a thread in the group stop that it has reported.
pub(super) fn listen(pid: Pid) -> Result<(), Errno> {
    // SAFETY: no pointers.
    result(unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid.as_raw(), 0_usize, 0_usize) }).map(drop)
}

/// Reads signals of the thread's queue from a position on. Returns also how many there are.
pub(super) fn pending_signals(pid: Pid, offset: u64) -> Result<([SignalInfo; AT_ONCE], usize), Errno> {
    /// `struct ptrace_peeksiginfo_args`.
    #[repr(C)]
    struct Which {
        offset: u64,
        flags: u32,
        count: i32,
    }
    let mut pending = [[0; 32]; AT_ONCE];
    let which = Which { offset, flags: 0, count: AT_ONCE as i32 };
    // SAFETY: the kernel reads `which`, and writes up to `count` siginfo_t of 128 bytes.
    let found = unsafe { libc::ptrace(PEEKSIGINFO, pid.as_raw(), &raw const which, pending.as_mut_ptr()) };
    Ok((pending, result(found)?))
}

/// Returns the thread's signal mask.
pub(super) fn signal_mask(pid: Pid) -> Result<u64, Errno> {
    let mut mask = 0_u64;
    // SAFETY: the kernel writes 8 bytes to `mask`.
    let done = unsafe { libc::ptrace(GETSIGMASK, pid.as_raw(), size_of::<u64>(), &raw mut mask) };
    result(done).map(|_| mask)
}

/// Sets the thread's signal mask.
pub(super) fn set_signal_mask(pid: Pid, mask: u64) -> Result<(), Errno> {
    // SAFETY: the kernel reads 8 bytes from `mask`.
    let done = unsafe { libc::ptrace(SETSIGMASK, pid.as_raw(), size_of::<u64>(), &raw const mask) };
    result(done).map(drop)
}

/// Returns the address of the thread's `struct rseq`; 0 if it is not registered.
pub(super) fn rseq_area(pid: Pid) -> Result<u64, Errno> {
    /// `struct ptrace_rseq_configuration`: address; size and signature; flags.
    type Configuration = [u64; 3];
    let mut configuration: Configuration = [0; 3];
    let size = size_of::<Configuration>();
    // SAFETY: the kernel writes at most `size` bytes.
    let written = unsafe { libc::ptrace(GET_RSEQ_CONFIGURATION, pid.as_raw(), size, &raw mut configuration) };
    Ok(if result(written)? == size { configuration[0] } else { 0 })
}

/// Whether the thread's system calls may raise SIGSYS (PR_SET_SYSCALL_USER_DISPATCH). Kernels
/// before 6.4 do not report it.
pub(super) fn dispatches_system_calls(pid: Pid) -> Result<bool, Errno> {
    /// `struct ptrace_sud_config`: mode, selector, start and length of the code that is exempt.
    type Configuration = [u64; 4];
    let mut configuration: Configuration = [0; 4];
    let size = size_of::<Configuration>();
    // SAFETY: the kernel writes at most `size` bytes.
    let done =
        unsafe { libc::ptrace(GET_SYSCALL_USER_DISPATCH_CONFIG, pid.as_raw(), size, &raw mut configuration) };
    result(done).map(|_| configuration[0] != 0)
}

/// Returns a seccomp filter of the thread. The error is ENOENT behind the last one.
pub(super) fn seccomp_filter(pid: Pid, index: usize) -> Result<Vec<Instruction>, Errno> {
    let get = |into: *mut Instruction| {
        // SAFETY: without memory the kernel writes nothing and returns the number of instructions.
        // It then writes as many: filters never change.
        result(unsafe { libc::ptrace(SECCOMP_GET_FILTER, pid.as_raw(), index, into) })
    };
    let mut filter = vec![Instruction { code: 0, jt: 0, jf: 0, k: 0 }; get(null_mut())?];
    get(filter.as_mut_ptr())?;
    Ok(filter)
}

/// Options of a wait for tracees of the calling thread alone, without blocking.
const OF_OWN: i32 = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;

/// A report of a child or tracee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnReport {
    /// The thread has ended.
    Ended,
    /// The thread has stopped. The status is a signal, with an event of ptrace in the byte above.
    Stopped(i32),
}

/// Returns a child or tracee of the calling thread that has a report. The report stays. The error
/// is ECHILD if the thread has none.
pub(super) fn reporting() -> Result<Option<(Pid, OwnReport)>, Errno> {
    const OPTIONS: i32 = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | OF_OWN;
    // SAFETY: zeros are a valid siginfo_t, which the call fills in.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one siginfo_t.
    let done = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, OPTIONS) };
    Errno::result(done)?;
    // SAFETY: waitid has set the fields, or has left their zeros.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let has_ended = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    let report = if has_ended { OwnReport::Ended } else { OwnReport::Stopped(status) };
    Ok((pid != 0).then(|| (Pid::from_raw(pid), report)))
}

/// Collects a thread's report. The libraries have no value for stops by real-time signals.
pub(super) fn collect(pid: Pid) {
    // SAFETY: without memory for the status, the call writes nothing.
    unsafe { libc::waitpid(pid.as_raw(), std::ptr::null_mut(), OF_OWN) };
}

/// Whether two processes have the same memory.
pub(super) fn has_same_memory(one: Pid, other: Pid) -> Result<bool, Errno> {
    const KCMP_VM: i32 = 1;
    // SAFETY: the call compares; no pointers.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one.as_raw(), other.as_raw(), KCMP_VM, 0, 0) };
    result(order).map(|order| order == 0)
}

//! Signals that the kernel raises for an instruction: breakpoints, single steps and faults.
//!
//! Unsafe because a ptrace request has no safe wrapper.
#![allow(unsafe_code)]

use super::helper_tracer::request;
use nix::errno::Errno;
use nix::unistd::Pid;

/// Signals that the kernel raises for an instruction.
pub(super) const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Signals that the kernel raises for an instruction, as a set.
pub const FAULT_SIGNALS: u64 = {
    let (mut set, mut n) = (0, 0);
    while n < FAULTS.len() {
        set |= 1 << (FAULTS[n] - 1);
        n += 1;
    }
    set
};

/// Whether a stopped thread has executed an instruction that raised a signal whose handler has not
/// begun: a breakpoint, a single step or a fault.
pub(super) fn has_faulted(tid: u32) -> bool {
    const PEEKSIGINFO: u32 = 0x4209;
    /// Signals of the thread's queue that are read at most.
    const MOST: u64 = 1 << 10;
    /// `struct ptrace_peeksiginfo_args`: start and number.
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
            // SAFETY: the kernel reads `which`, and writes up to `count` siginfo_t of 128 bytes.
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

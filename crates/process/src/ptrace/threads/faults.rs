//! Signals that the kernel raises for an instruction: breakpoints, single steps and faults.

use super::helper_tracer::request;
use crate::ptrace::requests::{AT_ONCE, SignalInfo, pending_signals};

/// Signals that the kernel raises for an instruction.
pub(super) const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Signals that the kernel raises for an instruction, as a set.
pub(crate) const FAULT_SIGNALS: u64 = {
    let (mut set, mut n) = (0, 0);
    while n < FAULTS.len() {
        set |= 1 << (FAULTS[n] - 1);
        n += 1;
    }
    set
};

/// Whether a stopped thread has executed an instruction that raised a signal whose handler has not
/// begun: a breakpoint, a single step, a fault, or a system call that is trapped.
pub(super) fn has_faulted(tid: u32) -> bool {
    /// Signals of the thread's queue that are read at most.
    const MAX_SIGNALS: u64 = 1 << 10;
    let read = |offset: u64| request(tid, move |pid| pending_signals(pid, offset)).ok();
    // Codes of signals that processes send are not positive.
    let is_fault = |info: &SignalInfo| FAULTS.contains(&info[0]) && info[2] > 0;
    (0..MAX_SIGNALS)
        .step_by(AT_ONCE)
        .map_while(|offset| read(offset).filter(|(_, found)| *found > 0))
        .any(|(pending, found)| pending.iter().take(found).any(is_fault))
}

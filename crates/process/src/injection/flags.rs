//! Processor flags of the injected code.

/// Returns the flags with which the injected code runs, given the thread's: without the flags by
/// which a program has its own code trap (single steps, unaligned accesses), and without the
/// direction of string instructions.
pub(super) fn plain(flags: u64) -> u64 {
    const TRAP: u64 = 1 << 8;
    const DIRECTION: u64 = 1 << 10;
    const NESTED_TASK: u64 = 1 << 14;
    const ALIGNMENT_CHECK: u64 = 1 << 18;
    flags & !(TRAP | DIRECTION | NESTED_TASK | ALIGNMENT_CHECK)
}

//! Calls of prctl by which a thread forbids itself to read the time stamp counter.

use super::Call;

/// Number of the system call prctl.
pub const PRCTL: u32 = 157;
/// Operation of prctl that allows or forbids a thread to read the time stamp counter.
pub const PR_SET_TSC: u32 = 26;
/// Argument of PR_SET_TSC that forbids reading: the thread gets SIGSEGV.
pub const PR_TSC_SIGSEGV: u32 = 2;

/// Whether a call of prctl, whose arguments begin with register `first`, forbids reading the time
/// stamp counter. If there are registers in front, the call is one of `syscall`.
pub(super) fn forbids_counter(call: &impl Call, first: usize) -> bool {
    let is_prctl = first.checked_sub(1).is_none_or(|number| call.register(number) as u32 == PRCTL);
    is_prctl && [first, first + 1].map(|n| call.register(n) as u32) == [PR_SET_TSC, PR_TSC_SIGSEGV]
}

#[cfg(test)]
mod tests {
    use super::super::{Program, run, step, word};
    use super::*;
    use core::cell::Cell;
    use core::ops::Range;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn only_a_call_that_forbids_the_counter_counts() {
        struct Registers<'r>(&'r [u64], Cell<bool>);

        impl Call for Registers<'_> {
            fn register(&self, n: usize) -> u64 {
                self.0.get(n).copied().unwrap_or(0)
            }
            fn xmm(&self, _: usize) -> u64 {
                0
            }
            fn slot(&self) -> u64 {
                0
            }
            fn read(&self, _: u64, _: &mut [u8]) -> bool {
                false
            }
            fn remember(&self, _: u64) {}
            fn recall(&self) -> Option<u64> {
                None
            }
            fn copy_stack(&self, _: u32) {}
            fn forbid_counter(&self) {
                self.1.set(true);
            }
            fn is_made_in(&self, _: Range<u64>) -> bool {
                false
            }
        }

        let forbids = |first: u8, registers: &[u64]| {
            let words = [2 << 16, word(step::FORBID, first, 0)];
            let program: Program =
                core::array::from_fn(|n| AtomicU64::new(words.get(n).copied().unwrap_or(0)));
            let call = Registers(registers, Cell::new(false));
            assert!(run(&program, false, &call).is_some());
            call.1.get()
        };
        let above = 7 << 32;
        assert!(forbids(0, &[26, 2]) && forbids(0, &[above + 26, above + 2]) && forbids(1, &[157, 26, 2]));
        assert!(!forbids(0, &[26, 1]) && !forbids(0, &[25, 2]) && !forbids(1, &[158, 26, 2]));
        assert!(!forbids(0, &[157, 26, 2]) && !forbids(1, &[26, 2]));
    }
}

//! Threads that may be unwinding their stacks, with copies of return addresses that are stubs.

use crate::detach::obstacle::Obstacle;
use calltap_process::proc;
use calltap_process::ptrace::threads::StoppedThread;
use std::collections::HashMap;
use std::time::Duration;

/// How long an unwinder's addresses on a thread's stack count as unwinding in any case. Later they
/// count as stale if the thread waits in a system call or has used [`UNWINDING_CPU`] since.
pub(super) const UNWINDING: Duration = Duration::from_millis(1500);
/// Processor time in which a thread would have finished unwinding.
const UNWINDING_CPU: Duration = Duration::from_millis(200);
/// How long a thread that gets no processor may appear to be unwinding.
const STARVING: Duration = Duration::from_secs(8);

/// Threads on whose stacks unwinders were found, with their processor times at that moment.
#[derive(Default)]
pub(super) struct Suspects(HashMap<u32, Duration>);

impl Suspects {
    /// Returns the obstacle if a thread among these may be unwinding, `since` after the first look.
    /// How long a thread in a group stop has appeared to unwind says nothing.
    pub(super) fn unwind<'h>(
        &mut self,
        pid: u32,
        threads: impl Iterator<Item = &'h StoppedThread>,
        since: Duration,
    ) -> Option<Obstacle> {
        let mut unwind = None;
        for thread in threads {
            if thread.is_in_group_stop() {
                return Some(Obstacle::UnwindsStopped { thread: thread.tid });
            }
            let used = proc::cpu_of_thread(pid, thread.tid).unwrap_or_default();
            let before = *self.0.entry(thread.tid).or_insert(used);
            if may_unwind(since, thread.system_call.is_some(), used.saturating_sub(before)) {
                unwind = Some(Obstacle::Unwinds { thread: thread.tid });
            }
        }
        unwind
    }
}

/// Whether a thread that has appeared to unwind for this time may do so. Unwinding waits in system
/// calls for moments only.
fn may_unwind(since: Duration, waits: bool, used: Duration) -> bool {
    since < UNWINDING || !waits && used < UNWINDING_CPU && since < STARVING
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(since_ms: u64, waits: bool, used_ms: u64, expected: bool) {
        let [since, used] = [since_ms, used_ms].map(Duration::from_millis);
        assert_eq!(may_unwind(since, waits, used), expected, "{since:?}, waits: {waits}, {used:?}");
    }

    #[test]
    fn a_thread_that_got_no_processor_may_unwind_for_longer() {
        check(1000, true, 0, true);
        check(1000, false, 500, true);
        check(2000, true, 0, false);
        check(2000, false, 500, false);
        check(2000, false, 0, true);
        check(9000, false, 0, false);
    }
}

//! Processes with their own threads that share another process's memory: made by clone with
//! CLONE_VM and without CLONE_THREAD. A child of vfork is such a process until it executes its
//! program.
//!
//! A write to one changes the code of both, and return addresses on the stacks of both lead to
//! stubs. calltap stops the threads of one process only. It therefore attaches to no such process,
//! and unmaps nothing from one.

use crate::proc;
use crate::ptrace::followed::has_same_memory;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Returns a process that shares the memory of `pid` and still does so after `patience`, by when a
/// child of vfork has executed its program. Processes that this user may not trace are not seen.
pub(crate) fn lasting(pid: u32, patience: Duration) -> Option<u32> {
    let start = Instant::now();
    let shares = |other: &u32| known_to_share(pid, *other);
    let mut others: Vec<u32> = proc::of_same_programs(&[pid], None).filter(shares).collect();
    while !others.is_empty() && start.elapsed() < patience {
        thread::sleep(LOOK_INTERVAL);
        others.retain(shares);
    }
    others.first().copied()
}

/// Whether two processes share their memory, as far as the kernel reveals it.
pub fn known_to_share(one: u32, other: u32) -> bool {
    // An ended thread has no memory, even if its process lives on.
    let runs = |tid: &u32| proc::state(*tid).is_some_and(|state| !proc::is_end(state));
    let thread = |pid: u32| Some(pid).filter(runs).or_else(|| proc::threads(pid).into_iter().find(runs));
    let (one, other) = (thread(one), thread(other));
    one.zip(other).is_some_and(|(one, other)| has_same_memory(one, other) == Some(true))
}

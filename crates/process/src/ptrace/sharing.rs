//! Processes that have the memory of another one and threads of their own: made by clone with CLONE_VM and without CLONE_THREAD. A child of vfork is one until it runs its program.
//!
//! What is written for one changes the code of both, and return addresses on the stacks of both lead to stubs. Only the threads of one process are stopped together, so such
//! processes are not attached to, and what is mapped in them is not unmapped.

use crate::proc;
use crate::ptrace::tracee::has_same_memory;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// A process that has the memory of this one, and still has it after so long: a child of vfork goes on to its program meanwhile. Processes that this user may not
/// trace are not seen.
pub fn lasting(pid: u32, patience: Duration) -> Option<u32> {
    let start = Instant::now();
    let shares = |other: &u32| share(pid, *other);
    let mut others: Vec<u32> = proc::of_same_programs(&[pid]).filter(shares).collect();
    while !others.is_empty() && start.elapsed() < patience {
        thread::sleep(PAUSE);
        others.retain(shares);
    }
    others.first().copied()
}

/// Do two processes share their memory, as far as the kernel says it?
pub fn share(one: u32, other: u32) -> bool {
    // A thread that has ended has no memory, as any other that has ended.
    let runs = |tid: &u32| proc::state(*tid).is_some_and(|state| !proc::is_end(state));
    let thread = |pid: u32| Some(pid).filter(runs).or_else(|| proc::threads(pid).into_iter().find(runs));
    let (one, other) = (thread(one), thread(other));
    one.zip(other).is_some_and(|(one, other)| has_same_memory(one, other) == Some(true))
}

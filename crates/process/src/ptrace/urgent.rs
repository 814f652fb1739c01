//! Raised scheduling priority: for a thread that has stopped another process's threads, and
//! real-time priority for a reader of rings.
//!
//! Unsafe because the system calls that set a scheduling policy have no safe wrapper.
#![allow(unsafe_code)]

use super::suspension::Holding;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

/// A guard that raises a thread's priority as far as this process may, and defers Ctrl-Z. A stopped
/// program waits meanwhile: on a busy machine, calltap would otherwise wait tens of milliseconds
/// for a processor each time.
#[derive(Debug)]
pub(crate) struct Urgent {
    tid: i32,
    /// Former scheduling policy and priority, or niceness.
    before: Before,
    _holding: Holding,
}

/// Real-time priority of a thread that reads the rings: the lowest.
const READER: i32 = 1;

#[derive(Clone, Copy, Debug)]
enum Before {
    /// Policy and priority.
    Policy(i32, i32),
    Niceness(i32),
    /// Unchanged: this process may change neither.
    Same,
}

thread_local! {
    static URGENT: RefCell<Weak<Urgent>> = const { RefCell::new(Weak::new()) };
}

impl Urgent {
    /// Raises the priority of the calling thread, unless it is raised already.
    pub(crate) fn now() -> Arc<Urgent> {
        URGENT.with_borrow_mut(|urgent| {
            urgent.upgrade().unwrap_or_else(|| {
                let new = Arc::new(Urgent::raise());
                *urgent = Arc::downgrade(&new);
                new
            })
        })
    }

    fn raise() -> Urgent {
        const HIGHEST: i32 = -20;
        let tid = nix::unistd::gettid().as_raw();
        let mut own = libc::sched_param { sched_priority: 0 };
        // Ahead of the thread that reads the rings.
        let first = libc::sched_param { sched_priority: READER + 1 };
        // SAFETY: the calls write and read one `sched_param`, and concern this thread.
        let before = unsafe {
            let policy = libc::sched_getscheduler(tid);
            let known = policy >= 0 && libc::sched_getparam(tid, &mut own) == 0;
            let niceness = libc::getpriority(libc::PRIO_PROCESS, tid as u32);
            if known
                && libc::sched_setscheduler(tid, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &first) == 0
            {
                Before::Policy(policy, own.sched_priority)
            } else if libc::setpriority(libc::PRIO_PROCESS, tid as u32, HIGHEST) == 0 {
                Before::Niceness(niceness)
            } else {
                Before::Same
            }
        };
        Urgent { tid, before, _holding: Holding::now() }
    }
}

/// Gives a thread of this process the lowest real-time priority until it ends, in turn with others
/// of that priority. Returns false if this process may not.
///
/// Niceness counts only within one session of the kernel's autogroups: beside other computing
/// sessions, even the highest gives a thread no more than its session's share of the processors.
pub fn real_time(tid: i32) -> bool {
    let lowest = libc::sched_param { sched_priority: READER };
    // SAFETY: the call reads one `sched_param`, and concerns one thread of this process.
    unsafe { libc::sched_setscheduler(tid, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &lowest) == 0 }
}

/// Whether the scheduler gives a thread less of a busy processor than ordinary threads: by its
/// policy, or its niceness.
pub fn is_background(tid: u32) -> bool {
    // SAFETY: the calls have no pointers.
    unsafe {
        libc::sched_getscheduler(tid as i32) & !libc::SCHED_RESET_ON_FORK == libc::SCHED_IDLE
            || libc::getpriority(libc::PRIO_PROCESS, tid) > 0
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // SAFETY: the calls read one `sched_param`, and concern one thread of this process.
        unsafe {
            match self.before {
                Before::Policy(policy, priority) => {
                    let own = libc::sched_param { sched_priority: priority };
                    libc::sched_setscheduler(self.tid, policy, &own);
                }
                Before::Niceness(niceness) => {
                    libc::setpriority(libc::PRIO_PROCESS, self.tid as u32, niceness);
                }
                Before::Same => {}
            }
        }
    }
}

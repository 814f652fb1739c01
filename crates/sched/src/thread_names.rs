//! Newest names of threads: a thread that ends soon after it was named is gone when `/proc` would
//! be read.

use crate::records::Task;
use calltap_names::printable_bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of threads from which those that ended long ago are forgotten for the first time.
const CLEANUP_THREADS: usize = 4096;
/// Time after its end for which a thread's name is kept, nanoseconds: more than the recorder takes
/// to notice the end.
const KEPT_NS: u64 = 10_000_000_000;

/// The newest record of a thread since its start, or since it executed a program.
#[derive(Default, Debug)]
struct Newest {
    at: u64,
    name: Option<String>,
    ended: Option<u64>,
}

#[derive(Default, Debug)]
struct Table {
    newest: HashMap<u32, Newest>,
    /// Number of threads that were left when some were forgotten last.
    left: usize,
}

impl Table {
    /// Forgets threads that ended long ago, once there are twice as many as were left last time.
    fn forget(&mut self, now: u64) {
        if self.newest.len() >= CLEANUP_THREADS.max(2 * self.left) {
            self.newest.retain(|_, newest| newest.ended.is_none_or(|ended| ended + KEPT_NS > now));
            self.left = self.newest.len();
        }
    }
}

/// The newest name of each thread that has got one. Clones share one table.
#[derive(Clone, Default, Debug)]
pub(crate) struct ThreadNames(Arc<Mutex<Table>>);

impl ThreadNames {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record of the kernel. Records of one processor are read before those of another, so
    /// times may go back.
    pub(crate) fn take(&self, at: u64, task: Task<'_>) {
        let (tid, name) = match task {
            Task::Named { pid: tid, name } | Task::ThreadNamed { tid, name } => {
                (tid, Some(printable_bytes(name)))
            }
            // The id is that of another thread, or the name that of another program, from now on.
            Task::Begun { pid: tid, .. }
            | Task::ThreadBegun { tid, .. }
            | Task::Executed { pid: tid, .. } => (tid, None),
            Task::Ended { pid: tid } | Task::ThreadEnded { tid } => {
                if let Some(newest) = self.lock().newest.get_mut(&tid).filter(|newest| newest.at <= at) {
                    newest.ended = Some(at);
                }
                return;
            }
        };
        let mut all = self.lock();
        all.forget(at);
        let newest = all.newest.entry(tid).or_default();
        if newest.at <= at {
            *newest = Newest { at, name, ended: None };
        }
    }

    /// Returns the last name that the thread has got since the recording began.
    pub(crate) fn of(&self, tid: u32) -> Option<String> {
        self.lock().newest.get(&tid)?.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_last_name_until_its_id_is_used_again() {
        let names = ThreadNames::default();
        let named =
            |at, name: &'static str| names.take(at, Task::ThreadNamed { tid: 7, name: name.as_bytes() });
        assert_eq!(names.of(7), None);
        names.take(10, Task::ThreadBegun { tid: 7, pid: 5 });
        named(30, "second");
        // Read later, from the ring of another processor.
        named(20, "first");
        names.take(40, Task::ThreadEnded { tid: 7 });
        assert_eq!(names.of(7).as_deref(), Some("second"));
        names.take(50, Task::ThreadBegun { tid: 7, pid: 5 });
        assert_eq!(names.of(7), None);
        named(45, "of the former thread");
        assert_eq!(names.of(7), None);
    }

    #[test]
    fn an_executed_program_s_name_is_not_that_of_the_former_thread() {
        let names = ThreadNames::default();
        names.take(10, Task::Named { pid: 5, name: b"before" });
        names.take(20, Task::Executed { pid: 5, name: b"program" });
        assert_eq!(names.of(5), None);
    }

    #[test]
    fn names_of_threads_that_ended_long_ago_are_forgotten() {
        let names = ThreadNames::default();
        for tid in 0..2 * CLEANUP_THREADS as u32 {
            let at = u64::from(tid) * KEPT_NS;
            names.take(at, Task::ThreadNamed { tid, name: b"worker" });
            names.take(at, Task::ThreadEnded { tid });
        }
        assert!(names.lock().newest.len() <= CLEANUP_THREADS);
        assert_eq!(names.of(2 * CLEANUP_THREADS as u32 - 1).as_deref(), Some("worker"));
    }
}

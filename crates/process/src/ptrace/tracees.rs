//! The threads that this process traces, and the reaping of those that end meanwhile.
//!
//! The kernel keeps an ended thread until its tracer reaps it. An execve ends all other threads of
//! its process and waits until they are reaped; meanwhile, PTRACE_SEIZE of any thread of the
//! process waits for the execve. A tracer that seizes one thread of a process while it traces
//! another would thus wait for itself: a [`Reaper`] reaps instead.

use crate::ptrace::wait::{self, FirstReport};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between two looks of a [`Reaper`]: how long an execve that ends other threads may wait for
/// it.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// State of a traced thread.
#[derive(Clone, Copy, Default)]
struct Traced {
    /// Whether it was asked to stop.
    asked: bool,
    /// Whether it stays stopped until the change that it requested is made.
    stays: bool,
}

/// Traced threads by the remainder of their ids, so that two threads that stop others do not
/// contend for one lock.
static TRACED: [Mutex<BTreeMap<u32, Traced>>; PARTS] = [const { Mutex::new(BTreeMap::new()) }; PARTS];
const PARTS: usize = 16;

fn lock(part: &Mutex<BTreeMap<u32, Traced>>) -> MutexGuard<'_, BTreeMap<u32, Traced>> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the map for a thread.
fn traced(tid: u32) -> MutexGuard<'static, BTreeMap<u32, Traced>> {
    lock(&TRACED[tid as usize % PARTS])
}

/// Notes that this process traces a thread from now on.
pub fn add(tid: u32) {
    traced(tid).insert(tid, Traced::default());
}

/// Whether this process traces a thread.
pub fn is_traced(tid: u32) -> bool {
    traced(tid).contains_key(&tid)
}

/// Notes that a thread is no longer traced.
pub fn remove(tid: u32) {
    traced(tid).remove(&tid);
}

/// Notes whether a thread was asked to stop.
pub(crate) fn set_asked(tid: u32, asked: bool) {
    traced(tid).entry(tid).or_default().asked = asked;
}

/// Notes that a traced thread requested the change that it is stopped for: it stays stopped until
/// the whole change is made.
pub fn stay(tid: u32) {
    if let Some(traced) = traced(tid).get_mut(&tid) {
        traced.stays = true;
    }
}

/// Whether a thread stays stopped until the change that it requested is made.
pub(crate) fn stays(tid: u32) -> bool {
    traced(tid).get(&tid).is_some_and(|traced| traced.stays)
}

/// Reaps the threads that have ended, and forgets those that this process no longer traces.
pub(crate) fn release_ended() {
    for part in &TRACED {
        let tids: Vec<u32> = lock(part).keys().copied().collect();
        tids.into_iter().filter(|tid| wait::release_ended(*tid)).for_each(remove);
    }
}

/// Whether any thread is traced.
pub(crate) fn is_any() -> bool {
    TRACED.iter().any(|part| !lock(part).is_empty())
}

/// Whether a traced thread was asked to stop. If so, it stops before it returns from a system call
/// that this process answers, and a call that fails with EINTR is restarted.
pub fn is_asked_to_stop(tid: u32) -> bool {
    traced(tid).get(&tid).is_some_and(|traced| traced.asked)
}

/// A thread that reaps ended traced threads until this is dropped.
pub struct Reaper {
    over: Arc<AtomicBool>,
}

impl Reaper {
    /// Starts the thread. If it cannot be created, there is no reaper, and seizing may wait for an
    /// execve.
    pub fn start() -> Reaper {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let work = move || {
            let mut looks = 0;
            while !until.load(Acquire) {
                thread::sleep(LOOK_INTERVAL);
                looks += 1;
                // Polling a thousand threads takes time that stopped threads wait for. waitid
                // reports the oldest event only, so that a stop which is not collected may hide an
                // end: every fourth pass polls all threads.
                match wait::first_report() {
                    // An execve may wait for it whether it is listed or not.
                    FirstReport::End => {
                        let _ = wait::first_ended().map(wait::release_ended);
                    }
                    FirstReport::Stop if looks % 4 == 0 => {}
                    FirstReport::Stop | FirstReport::None => continue,
                }
                release_ended();
            }
        };
        // The thread is not joined: if it had to wait for a processor, stopped threads would wait
        // for it.
        let _ = thread::Builder::new().name("reaper".into()).spawn(work);
        Reaper { over }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.over.store(true, Release);
    }
}

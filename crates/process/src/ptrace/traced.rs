//! The threads that this process traces, and the end of those that end meanwhile.
//!
//! The kernel keeps a traced thread that has ended until its tracer takes notice. An execve ends all other threads of its process and waits
//! for that; until it is done, PTRACE_SEIZE of any thread of the process waits for the execve. So a tracer that seizes one thread
//! of a process while it traces another would wait for itself: a [`Reaper`] takes notice instead.

use crate::ptrace::wait::{self, FirstReport};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// An execve that ends other threads may wait so long for a [`Reaper`].
const PAUSE: Duration = Duration::from_millis(5);

/// What is known of a traced thread.
#[derive(Clone, Copy, Default)]
struct Traced {
    /// It was asked to stop.
    asked: bool,
    /// It stays stopped until the change is made that it has asked for.
    stays: bool,
}

/// Each has the threads whose ids leave one remainder: two threads that stop others are not in each other's way.
static TRACED: [Mutex<BTreeMap<u32, Traced>>; PARTS] = [const { Mutex::new(BTreeMap::new()) }; PARTS];
const PARTS: usize = 16;

fn lock(part: &Mutex<BTreeMap<u32, Traced>>) -> MutexGuard<'_, BTreeMap<u32, Traced>> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those among which a thread is.
fn traced(tid: u32) -> MutexGuard<'static, BTreeMap<u32, Traced>> {
    lock(&TRACED[tid as usize % PARTS])
}

/// Notes that a thread is traced by this process from now on.
pub fn add(tid: u32) {
    traced(tid).insert(tid, Traced::default());
}

/// Is it traced by this process?
pub fn is_traced(tid: u32) -> bool {
    traced(tid).contains_key(&tid)
}

/// Notes that it is no longer.
pub fn remove(tid: u32) {
    traced(tid).remove(&tid);
}

/// Notes whether it was asked to stop.
pub fn set_asked(tid: u32, asked: bool) {
    traced(tid).entry(tid).or_default().asked = asked;
}

/// This thread, if this process traces it, has asked for the change that it is stopped for: it stays stopped until the whole change is made.
pub fn stay(tid: u32) {
    if let Some(traced) = traced(tid).get_mut(&tid) {
        traced.stays = true;
    }
}

/// Does it stay?
pub fn stays(tid: u32) -> bool {
    traced(tid).get(&tid).is_some_and(|traced| traced.stays)
}

/// Is any thread traced?
pub fn is_any() -> bool {
    TRACED.iter().any(|part| !lock(part).is_empty())
}

/// Was this thread, if this process traces it, asked to stop? Then it does so before it returns from a system call that this process answers, and one that
/// fails with EINTR is made again.
pub fn is_asked_to_stop(tid: u32) -> bool {
    traced(tid).get(&tid).is_some_and(|traced| traced.asked)
}

/// Releases traced threads that have ended, in a thread of its own, until this is dropped.
pub struct Reaper {
    over: Arc<AtomicBool>,
}

impl Reaper {
    /// Starts it. Without one, should there be no memory for a thread, seizing may wait for an execve.
    pub fn start() -> Reaper {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let work = move || {
            let mut looks = 0;
            while !until.load(Acquire) {
                thread::sleep(PAUSE);
                looks += 1;
                // A look at each of a thousand threads takes its time from what they are stopped for. Behind a stop that no thread takes there may be an end.
                match wait::first_report() {
                    FirstReport::End => {}
                    FirstReport::Stop if looks % 4 == 0 => {}
                    FirstReport::Stop | FirstReport::None => continue,
                }
                for part in &TRACED {
                    let tids: Vec<u32> = lock(part).keys().copied().collect();
                    tids.into_iter().for_each(wait::release_ended);
                }
            }
        };
        // It is not joined: where it waits for its turn, stopped threads would wait for it.
        let _ = thread::Builder::new().name("reaper".into()).spawn(work);
        Reaper { over }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.over.store(true, Release);
    }
}

//! The recorder's sign of life, and its priority.
//!
//! Threads of the program wait for chunks, and for answers, as long as the heartbeat goes on. It is a thread's of its own: a collector that reads
//! thousands of threads, or waits for a disk, lives.

use crate::shm::Shared;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{self, Scope, Thread};
use std::time::Duration;

/// From one beat to the next.
const BEAT: Duration = Duration::from_millis(20);
/// The highest first: which of them is allowed depends on privileges and RLIMIT_NICE.
const NICENESS: [i32; 3] = [-20, -10, -5];

/// Has the calling thread run before others, as far as this process may have that: what it is late for, the program waits for or loses. Threads
/// and processes that it begins would inherit it.
pub fn hurry() {
    let _ = NICENESS.iter().find(|niceness| setpriority_process(Some(gettid()), **niceness).is_ok());
}

/// Beats until it is dropped.
pub struct Heartbeat<'s> {
    over: &'s AtomicBool,
    thread: Thread,
}

impl<'s> Heartbeat<'s> {
    /// Begins; `over` is its own.
    pub fn begin<'e>(scope: &'s Scope<'s, 'e>, shared: &'e Shared, over: &'s AtomicBool) -> Heartbeat<'s> {
        let beating = scope.spawn(move || {
            hurry();
            while !over.load(Acquire) {
                shared.control().heartbeat.fetch_add(1, Relaxed);
                thread::park_timeout(BEAT);
            }
        });
        Heartbeat { over, thread: beating.thread().clone() }
    }
}

impl Drop for Heartbeat<'_> {
    fn drop(&mut self) {
        self.over.store(true, Release);
        self.thread.unpark();
    }
}

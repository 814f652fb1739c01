//! The recorder's sign of life, and its priority.
//!
//! Threads of the program wait for chunks and for answers as long as the heartbeat goes on. A thread of its own raises it, as a pass of the collector
//! over thousands of threads may take longer than the silence that an agent takes for death.

use crate::shm::Shared;
use calltap_process::ptrace::urgent;
use rustix::process::{Pid, setpriority_process};
use rustix::thread::gettid;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{self, Scope, Thread};
use std::time::Duration;

/// From one beat to the next.
const BEAT: Duration = Duration::from_millis(20);
/// The highest first: which of them is allowed depends on privileges and RLIMIT_NICE.
const NICENESS: [i32; 3] = [-20, -10, -5];

/// Raises the priority of the calling thread as far as this process is allowed to: the program waits for what the thread is late for, or loses it.
/// Threads and processes that it begins would inherit the priority.
pub fn hurry() {
    raise(gettid());
}

fn raise(thread: Pid) {
    let _ = NICENESS.iter().find(|niceness| setpriority_process(Some(thread), **niceness).is_ok());
}

/// The same for a thread of this process that nothing waits for, and that loses what it is late for. It must have little to do, or be limited by what it does:
/// while it runs, no thread of the program runs on that processor.
pub fn hurry_most(thread: Pid) {
    if !urgent::real_time(Pid::as_raw(Some(thread))) {
        raise(thread);
    }
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
            hurry_most(gettid());
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

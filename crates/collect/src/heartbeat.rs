//! The recorder's heartbeat, and its priority.
//!
//! Threads of the program wait for chunks and for answers as long as the heartbeat continues. A
//! separate thread raises it, as a pass of the collector over thousands of threads may take longer
//! than the silence after which an agent considers the recorder dead.

use crate::shm::Shared;
use calltap_process::clock;
use calltap_process::ptrace::urgent;
use rustix::process::{Pid, setpriority_process};
use rustix::thread::gettid;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{self, Scope, Thread};
use std::time::Duration;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(20);
/// Priorities to try, highest first: privileges and RLIMIT_NICE decide which is allowed.
const NICENESS: [i32; 3] = [-20, -10, -5];

/// Raises the priority of the calling thread as far as this process may: the program waits for late
/// work of the thread, or loses events by it. Threads and processes that it begins would inherit
/// the priority.
pub fn raise_priority() {
    raise(gettid());
}

fn raise(thread: Pid) {
    let _ = NICENESS.iter().find(|niceness| setpriority_process(Some(thread), **niceness).is_ok());
}

/// Gives a thread of this process real-time priority, or else raises its priority: nothing waits
/// for the thread, and its late work is lost. It must have little to do, as no thread of the
/// program runs on that processor meanwhile.
pub fn set_real_time(thread: Pid) {
    if !urgent::real_time(Pid::as_raw(Some(thread))) {
        raise(thread);
    }
}

/// The heartbeat; it ends when this is dropped.
pub struct Heartbeat<'s> {
    /// Set to end the heartbeat.
    over: &'s AtomicBool,
    thread: Thread,
}

impl<'s> Heartbeat<'s> {
    /// Begins the heartbeat. Only it may use `over`.
    pub fn begin<'e>(scope: &'s Scope<'s, 'e>, shared: &'e Shared, over: &'s AtomicBool) -> Heartbeat<'s> {
        let beating = scope.spawn(move || {
            set_real_time(gettid());
            while !over.load(Acquire) {
                shared.control().heartbeat.fetch_add(1, Relaxed);
                draw_tsc_line(shared);
                thread::park_timeout(BEAT);
            }
        });
        Heartbeat { over, thread: beating.thread().clone() }
    }
}

/// Measures the rate by which threads that may not read the time stamp counter compute it.
pub fn draw_tsc_line(shared: &Shared) {
    if !shared.control().reads_tsc() {
        return;
    }
    let (ticks, now_ns) = clock::raw_pair();
    shared.control().tsc_line.draw_through(ticks, now_ns);
}

impl Drop for Heartbeat<'_> {
    fn drop(&mut self) {
        self.over.store(true, Release);
        self.thread.unpark();
    }
}

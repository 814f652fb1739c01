//! The recorder's heartbeat, and its priority.
//!
//! Threads of the program wait for chunks and for answers as long as the heartbeat continues. A
//! separate thread raises it, as a pass of the collector over thousands of threads may take longer
//! than the silence after which an agent considers the recorder dead.

use crate::shm::Shared;
use calltap_process::clock;
use calltap_process::ptrace::urgent;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::gettid;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::{self, Thread};
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
    lower_niceness(thread, &NICENESS);
}

/// Lowers the niceness of a thread to the first of these that this process may set. Returns the
/// former one if it was changed.
fn lower_niceness(thread: Pid, to: &[i32]) -> Option<i32> {
    let before = getpriority_process(Some(thread)).ok()?;
    let mut lower = to.iter().filter(|niceness| **niceness < before);
    lower.any(|niceness| setpriority_process(Some(thread), *niceness).is_ok()).then_some(before)
}

/// A guard: the thread that began it, and threads that this one begins meanwhile, get a larger
/// share of a busy processor than others. Attaching and detaching take many short turns: beside a
/// hundred computing threads, which get the processor for some milliseconds each, it would take a
/// minute.
pub struct LargerShare {
    thread: Pid,
    /// Former niceness, if it was changed.
    before: Option<i32>,
}

impl LargerShare {
    /// Raises the share of the calling thread as far as this process may, but not to the highest:
    /// calltap would leave little of a processor to the program while it decodes a large file.
    pub fn begin() -> LargerShare {
        let thread = gettid();
        LargerShare { thread, before: lower_niceness(thread, &NICENESS[1..]) }
    }
}

impl Drop for LargerShare {
    fn drop(&mut self) {
        self.before.and_then(|before| setpriority_process(Some(self.thread), before).ok());
    }
}

/// Gives a thread of this process real-time priority, or else raises its priority: nothing waits
/// for the thread, and its late work is lost. It must have little to do, as no thread of the
/// program runs on that processor meanwhile.
pub fn set_real_time(thread: Pid) {
    if !urgent::real_time(Pid::as_raw(Some(thread))) {
        raise(thread);
    }
}

/// Ends the heartbeat when it is dropped.
struct End<'a> {
    over: &'a AtomicBool,
    thread: Thread,
}

/// Runs work of the recorder with a heartbeat: the program's threads wait for it, however long it
/// takes. Returns its result.
pub fn beating<T>(shared: &Shared, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let beating = scope.spawn(|| {
            set_real_time(gettid());
            while !over.load(Acquire) {
                shared.control().heartbeat.fetch_add(1, Relaxed);
                draw_tsc_line(shared);
                thread::park_timeout(BEAT);
            }
        });
        let _end = End { over: &over, thread: beating.thread().clone() };
        work()
    })
}

/// Measures the rate by which threads that may not read the time stamp counter compute it.
pub fn draw_tsc_line(shared: &Shared) {
    if !shared.control().reads_tsc() {
        return;
    }
    let (ticks, now_ns) = clock::raw_pair();
    shared.control().tsc_line.draw_through(ticks, now_ns);
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.over.store(true, Release);
        self.thread.unpark();
    }
}

//! Requests to the mount that are answered early if their process has to stop.
//!
//! The user of a process's directory may be a thread of that process. During its request that
//! thread is in the kernel, where it cannot be stopped. If its request is part of execve, which
//! closes the program's files, the process's memory is locked. If another thread calls execve, the
//! kernel kills the requesting thread, and execve waits until its request is answered.
//!
//! A process that is to be stopped is therefore answered at once: it stops before it sees the
//! answer, [and stays stopped](stay) until the operation is done. If the operation was not begun,
//! the answer is EINTR, and the kernel restarts the call once the thread runs again, as with every
//! call that a stop interrupts.

use calltap_process::ptrace::tracees::is_asked_to_stop;
use calltap_process::ptrace::tracees::stay;
use calltap_process::status::Status;

use rustix::io::Errno;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Answer<T> = Box<dyn FnOnce(Result<T, Errno>) + Send>;

/// A request that is answered once.
pub struct PendingReply<T> {
    tid: u32,
    state: Mutex<State<T>>,
}

struct State<T> {
    answer: Option<Answer<T>>,
    /// The answer if the request cannot wait.
    early: Option<Result<T, Errno>>,
}

/// A request that may have to be answered early.
pub trait Early: Send + Sync {
    /// Whether the request still waits for its answer. A request that must not wait is answered
    /// here.
    fn waits(&self) -> bool;
}

impl<T: Copy> PendingReply<T> {
    /// Returns a request of the thread `tid`. `early`: the answer if the request cannot wait until
    /// its operation is begun.
    pub fn new(tid: u32, early: Result<T, Errno>, answer: Answer<T>) -> PendingReply<T> {
        PendingReply { tid, state: Mutex::new(State { answer: Some(answer), early: Some(early) }) }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the operation. False if the request was answered already, and the operation must not
    /// be done.
    pub fn begin(&self) -> bool {
        let mut state = self.state();
        state.early = None;
        state.answer.is_some()
    }

    /// Stores the result, which is the early answer while the process still has to be changed.
    pub fn done(&self, result: Result<T, Errno>) {
        self.state().early = Some(result);
    }

    /// Answers the request, unless it was answered early.
    pub fn answer(&self, result: Result<T, Errno>) {
        let answer = self.state().answer.take();
        answer.into_iter().for_each(|answer| answer(result));
    }
}

impl<T: Copy + Send> Early for PendingReply<T> {
    fn waits(&self) -> bool {
        let mut state = self.state();
        let Some(early) = state.early else { return state.answer.is_some() };
        if state.answer.is_none() || !must_not_wait(self.tid) {
            return state.answer.is_some();
        }
        let answer = state.answer.take();
        drop(state);
        stay(self.tid);
        answer.into_iter().for_each(|answer| answer(early));
        false
    }
}

/// The status of a thread: the only one of its files in `/proc` that can be read while it is in
/// execve.
struct Thread {
    tid: u32,
    status: Status,
}

impl Thread {
    fn new(tid: u32) -> Thread {
        Thread { tid, status: Status::of(tid).unwrap_or_default() }
    }

    /// Whether calltap is stopping the thread. The calltap thread that requested the stop must
    /// still exist.
    fn is_held(&self) -> bool {
        is_asked_to_stop(self.tid) && self.status.is_traced_by_us()
    }

    fn is_killed(&self) -> bool {
        const KILL: u64 = 1 << (rustix::process::Signal::KILL.as_raw() - 1);
        self.status.signals("SigPnd").is_some_and(|pending| pending & KILL != 0)
    }

    /// Whether the thread is in execve: it has a new memory already, without a program in it.
    fn is_in_execve(&self) -> bool {
        self.status.kib("VmExe") == Some(0)
    }
}

/// Whether calltap is stopping a thread.
pub fn is_held(tid: u32) -> bool {
    Thread::new(tid).is_held()
}

/// Whether a thread must not wait for its answer: it is being stopped by calltap, killed, or in
/// execve.
fn must_not_wait(tid: u32) -> bool {
    let thread = Thread::new(tid);
    thread.is_held() || thread.is_killed() || thread.is_in_execve()
}

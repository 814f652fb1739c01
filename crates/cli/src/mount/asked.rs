//! Requests of a process that is asked to stop meanwhile.
//!
//! The user of a process's directory may be a thread of that process. Inside a request to the server it is in the kernel, where it cannot be stopped; while it
//! becomes another program, which closes its files, its memory is locked; and a thread that is killed because another does that keeps the
//! other waiting. So a process that is to be stopped is answered at once: it then stands still before it sees the answer, [and stays](stay) until what it has asked for is done.
//! If that was not even begun the answer is EINTR, and the call is made again when the thread is let go, as with every call that a stop has cut short.

use calltap_session::{is_asked_to_stop, stay};
use rustix::io::Errno;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Answer<T> = Box<dyn FnOnce(Result<T, Errno>) + Send>;

/// A request that is answered once.
pub struct Asked<T> {
    tid: u32,
    state: Mutex<State<T>>,
}

struct State<T> {
    answer: Option<Answer<T>>,
    /// What is said if the answer cannot wait.
    early: Option<Result<T, Errno>>,
}

/// A request that may have to be answered early.
pub trait Early: Send + Sync {
    /// Does it wait for its answer? If it must not, it is answered.
    fn waits(&self) -> bool;
}

impl<T: Copy> Asked<T> {
    /// By this thread. `early`: what it is told if it cannot wait until anything is done.
    pub fn new(tid: u32, early: Result<T, Errno>, answer: Answer<T>) -> Asked<T> {
        Asked { tid, state: Mutex::new(State { answer: Some(answer), early: Some(early) }) }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is begun now. False: it was answered already, and is not to be done.
    pub fn begin(&self) -> bool {
        let mut state = self.state();
        state.early = None;
        state.answer.is_some()
    }

    /// This is what has come of it, but for what the process still has to be made to do.
    pub fn done(&self, result: Result<T, Errno>) {
        self.state().early = Some(result);
    }

    /// Answers it, if that was not done early.
    pub fn answer(&self, result: Result<T, Errno>) {
        let answer = self.state().answer.take();
        answer.into_iter().for_each(|answer| answer(result));
    }
}

impl<T: Copy + Send> Early for Asked<T> {
    fn waits(&self) -> bool {
        let mut state = self.state();
        let Some(early) = state.early else { return state.answer.is_some() };
        if state.answer.is_none() || !is_wanted(self.tid) {
            return state.answer.is_some();
        }
        let answer = state.answer.take();
        drop(state);
        stay(self.tid);
        answer.into_iter().for_each(|answer| answer(early));
        false
    }
}

/// What the system says of a thread. Of all its files this one alone can be read while the thread becomes another program.
struct Status(String);

impl Status {
    fn of(tid: u32) -> Status {
        Status(fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()))
    }

    /// Is it being stopped by calltap? The thread that asked it to stop may have given up.
    fn is_held(&self, tid: u32) -> bool {
        let tracer = self.field("TracerPid:").filter(|tracer| *tracer != "0");
        is_asked_to_stop(tid)
            && tracer.is_some_and(|tracer| Path::new("/proc/self/task").join(tracer).exists())
    }

    fn is_killed(&self) -> bool {
        const KILL: u64 = 1 << (rustix::process::Signal::KILL.as_raw() - 1);
        let pending = self.field("SigPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
        pending.is_some_and(|pending| pending & KILL != 0)
    }

    /// In the middle of execve a thread has a new memory already, and no program in it.
    fn is_becoming(&self) -> bool {
        self.field("VmExe:") == Some("0 kB")
    }
}

/// Is calltap stopping a thread?
pub fn is_held(tid: u32) -> bool {
    Status::of(tid).is_held(tid)
}

/// Is another tracer waiting for it, which will not let go of it?
fn is_wanted(tid: u32) -> bool {
    let status = Status::of(tid);
    status.is_held(tid) || status.is_killed() || status.is_becoming()
}

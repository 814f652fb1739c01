//! A second thread that traces, for the time of one that has stopped many threads: the kernel's work for each of them is done on two processors.
//!
//! Requests of ptrace are made by the thread that traces: of what its second one traces, a thread [requests](request) by way of that one. Reports of traced
//! threads come to any thread of this process.

use crate::ptrace::urgent::Urgent;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// Fewer threads are stopped by one thread: waking a second one would take longer.
pub(super) const MANY: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static SECOND: RefCell<Option<Rc<Second>>> = const { RefCell::new(None) };
}

/// It ends with the thread that has started it: the kernel then lets go of whatever is still held.
pub(super) struct Second {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Second {
    /// That of this thread, started if there is none yet. None: it would not have a processor for itself, or there is no memory for it.
    pub fn get() -> Option<Rc<Second>> {
        if let Some(second) = Second::known() {
            return Some(second);
        }
        let has_room = thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
        let second = Rc::new(if has_room { Second::start()? } else { return None });
        SECOND.set(Some(Rc::clone(&second)));
        Some(second)
    }

    /// That of this thread, if it has one.
    pub fn known() -> Option<Rc<Second>> {
        // While a thread ends, it has none any more.
        SECOND.try_with(|second| second.borrow().clone()).ok().flatten()
    }

    fn start() -> Option<Second> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let work = move || {
            let _urgent = Urgent::now();
            todo.into_iter().for_each(|job| job());
        };
        let thread = thread::Builder::new().name("stopper".into()).spawn(work).ok()?;
        Some(Second { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has it do something, while this thread goes on. Nothing is received if it could not.
    pub fn begin<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (tell, told) = mpsc::channel();
        let job = move || drop(tell.send(job()));
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job)));
        told
    }

    /// Has it do something, and waits for that. None: it could not.
    pub fn ask<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.begin(job).recv().ok()
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // When this is done, nothing is traced by it any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Has the second thread do something that concerns so many stopped threads, if they are many enough to have one, while this thread goes on.
pub fn aside<T: Send + 'static>(
    threads: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<Receiver<T>> {
    Second::known().filter(|_| threads >= MANY).map(|second| second.begin(work))
}

/// Makes a request of ptrace on a thread that this one traces, or its second one: a thread has to make it that traces, else the kernel finds none.
pub(super) fn request<T: Send + 'static>(
    tid: u32,
    make: impl Fn(Pid) -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    let pid = Pid::from_raw(tid as i32);
    match make(pid) {
        Err(Errno::ESRCH) => {
            let second = Second::known().ok_or(Errno::ESRCH)?;
            second.ask(move || make(pid)).unwrap_or(Err(Errno::ESRCH))
        }
        done => done,
    }
}

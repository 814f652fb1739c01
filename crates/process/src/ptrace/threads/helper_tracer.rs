//! A second tracing thread, for one that has stopped many threads: the kernel's work for each of
//! them is done on two processors.
//!
//! Only the tracer may make ptrace requests of a thread. For threads that its second thread traces,
//! a thread [requests](request) through that one. Any thread of this process receives the reports
//! of traced threads.

use crate::ptrace::urgent::Urgent;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// Number of threads from which two threads stop them. For fewer, waking a second one takes longer.
pub(super) const SHARED_THREADS: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static SECOND: RefCell<Option<Rc<HelperTracer>>> = const { RefCell::new(None) };
}

/// The second thread. It ends with the thread that started it; the kernel then releases all threads
/// that are still held.
pub(super) struct HelperTracer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl HelperTracer {
    /// Returns this thread's second one, and starts it if there is none yet. None if the machine
    /// has one processor, or if the thread cannot be created.
    pub(super) fn get() -> Option<Rc<HelperTracer>> {
        if let Some(second) = HelperTracer::known() {
            return Some(second);
        }
        let has_room = thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
        let second = Rc::new(if has_room { HelperTracer::start()? } else { return None });
        SECOND.set(Some(Rc::clone(&second)));
        Some(second)
    }

    /// Returns this thread's second one, if there is one.
    pub(super) fn known() -> Option<Rc<HelperTracer>> {
        // While a thread ends, its thread-local variables are gone.
        SECOND.try_with(|second| second.borrow().clone()).ok().flatten()
    }

    fn start() -> Option<HelperTracer> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let work = move || {
            let _urgent = Urgent::now();
            todo.into_iter().for_each(|job| job());
        };
        let thread = thread::Builder::new().name("stopper".into()).spawn(work).ok()?;
        Some(HelperTracer { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Makes the second thread run `job` while this thread goes on. The receiver yields nothing if
    /// it could not.
    pub(super) fn begin<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        let job = move || drop(sender.send(job()));
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job)));
        receiver
    }

    /// Makes the second thread run `job`, and waits for the result. None if it could not.
    pub(super) fn ask<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.begin(job).recv().ok()
    }
}

impl Drop for HelperTracer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // After the join, the second thread traces nothing any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Makes the second thread run `work` while this thread goes on. None if there is no second thread,
/// or if fewer than `SHARED_THREADS` threads are stopped.
pub fn aside<T: Send + 'static>(
    threads: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<Receiver<T>> {
    HelperTracer::known().filter(|_| threads >= SHARED_THREADS).map(|second| second.begin(work))
}

/// Makes a ptrace request of a thread that this thread or its second one traces. The kernel accepts
/// it from the tracer only.
pub(super) fn request<T: Send + 'static>(
    tid: u32,
    make: impl Fn(Pid) -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    let pid = Pid::from_raw(tid as i32);
    match make(pid) {
        Err(Errno::ESRCH) => {
            let second = HelperTracer::known().ok_or(Errno::ESRCH)?;
            second.ask(move || make(pid)).unwrap_or(Err(Errno::ESRCH))
        }
        done => done,
    }
}

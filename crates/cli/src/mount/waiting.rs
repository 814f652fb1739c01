//! Requests that wait: readers of `trace_pipe` for new events, and requests that need an answer of
//! the process.
//!
//! A thread inside a request to the mount cannot be interrupted by the kernel alone: the FUSE
//! library answers that it knows of no interrupts, and even SIGKILL then waits for the reply.
//! calltap therefore checks whether a signal is pending for a reader; if so, the read fails with
//! EINTR, as the kernel's own does.
//!
//! The waiting thread may also belong to the traced process, for which calltap itself waits;
//! [`PendingReply`] handles that.

use super::asked::{Early, PendingReply, is_held};
use super::server::Server;
use calltap_process::status::Status;
use calltap_tracefs::Read;
use fuser::{Errno, ReplyData};
use rustix::io::Errno as Io;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval between two looks for signals.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between two looks while an answer is due: a thread may be stopped until it is given.
const SHORT_LOOK_INTERVAL: Duration = Duration::from_millis(2);

enum Waiter {
    Reader(Reader),
    Asker(Arc<dyn Early>),
}

struct Reader {
    handle: u64,
    size: usize,
    tid: u32,
    reply: ReplyData,
}

/// The requests that wait.
#[derive(Default)]
pub struct Waiting {
    waiters: Mutex<Vec<Waiter>>,
    changed: Condvar,
    closed: AtomicBool,
}

impl Waiting {
    /// Starts the thread that serves the waiting requests.
    pub fn new(server: &Arc<Server>) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting::default());
        let (own, server) = (Arc::clone(&waiting), Arc::clone(server));
        thread::spawn(move || own.answer_until_over(&server));
        waiting
    }

    /// Adds a request that reads.
    pub fn read(&self, handle: u64, size: usize, tid: u32, reply: ReplyData) {
        self.add(Waiter::Reader(Reader { handle, size, tid, reply }));
    }

    /// Adds a request for which `answer` is called once.
    pub fn ask<T: Copy + Send + 'static>(
        &self,
        tid: u32,
        early: Result<T, Io>,
        answer: impl FnOnce(Result<T, Io>) + Send + 'static,
    ) -> Arc<PendingReply<T>> {
        let asked = Arc::new(PendingReply::new(tid, early, Box::new(answer)));
        let own: Arc<dyn Early> = Arc::<PendingReply<T>>::clone(&asked);
        self.add(Waiter::Asker(own));
        asked
    }

    fn add(&self, waiter: Waiter) {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
        self.changed.notify_all();
    }

    /// Ends the thread: no further request arrives.
    pub fn close(&self) {
        let _waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Release);
        self.changed.notify_all();
    }

    fn answer_until_over(&self, server: &Server) {
        let closed = || self.closed.load(Acquire);
        while !closed() {
            let none = |waiters: &mut Vec<Waiter>| waiters.is_empty() && !closed();
            let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            let mut waiters = self.changed.wait_while(waiters, none).unwrap_or_else(PoisonError::into_inner);
            let all = std::mem::take(&mut *waiters);
            drop(waiters);
            let left: Vec<Waiter> = all.into_iter().filter_map(|waiter| waiter.try_answer(server)).collect();
            let (none, due) = (left.is_empty(), left.iter().any(|waiter| matches!(waiter, Waiter::Asker(_))));
            self.waiters.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
            match (none, due) {
                (true, _) => {}
                (false, true) => thread::sleep(SHORT_LOOK_INTERVAL),
                (false, false) => server.wait(LOOK_INTERVAL),
            }
        }
    }
}

impl Waiter {
    /// Answers the request if it can be answered. Returns it if it has to wait on.
    fn try_answer(self, server: &Server) -> Option<Waiter> {
        match self {
            Waiter::Reader(reader) => reader.try_answer(server).map(Waiter::Reader),
            Waiter::Asker(asked) => asked.waits().then_some(Waiter::Asker(asked)),
        }
    }
}

impl Reader {
    fn try_answer(self, server: &Server) -> Option<Reader> {
        let read = server.tracefs().read(self.handle, 0, self.size, true);
        match read {
            Ok(Read::Data(data)) => self.reply.data(&data),
            Ok(Read::Wait) if is_signalled(self.tid) || is_held(self.tid) => self.reply.error(Errno::EINTR),
            Ok(Read::Wait) => return Some(self),
            Err(errno) => self.reply.error(Errno::from_i32(errno.raw_os_error())),
        }
        None
    }
}

/// Whether a signal is pending for a thread that it neither blocks nor ignores. The thread id 0
/// belongs to a thread outside calltap's pid namespace.
fn is_signalled(tid: u32) -> bool {
    let Ok(status) = Status::of(tid) else { return tid != 0 };
    let set = |name| status.signals(name).unwrap_or(0);
    (set("SigPnd") | set("ShdPnd")) & !set("SigBlk") & !set("SigIgn") != 0
}

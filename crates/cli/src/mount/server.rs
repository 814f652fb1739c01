//! What the threads that serve a directory have in common.

use calltap_session::{Due, Mailbox};
use calltap_tracefs::Tracefs;
use fuser::PollNotifier;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long it may take until what has happened is there, on the busiest machine: what came later would belong to what was written since.
const SYNC: Duration = Duration::from_secs(30);

/// A directory, and the process that it is about.
pub struct Server {
    /// The process.
    pub pid: u32,
    tracefs: Mutex<Tracefs>,
    /// Something came.
    settled: Condvar,
    /// Asks the process's controller.
    pub mailbox: Mailbox,
    /// Asks for what has happened.
    pub due: Due,
    /// No server is needed any more.
    pub over: AtomicBool,
    begun: AtomicBool,
    ended: AtomicBool,
    /// The requests that poll, by handle.
    polling: Mutex<HashMap<u64, PollNotifier>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processors that the system can have: clients look for a directory of each.
fn processors() -> usize {
    let is_processor =
        |name: &str| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u16>().is_ok());
    let names = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let count = names.filter(|entry| entry.file_name().to_str().is_some_and(is_processor)).count();
    if count > 0 { count } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

impl Server {
    /// Of a process.
    pub fn new(pid: u32) -> Server {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let processors = processors();
        Server {
            pid,
            tracefs: Mutex::new(Tracefs::new(processors, owner)),
            settled: Condvar::new(),
            mailbox: Mailbox::default(),
            due: Due::default(),
            over: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            polling: Mutex::new(HashMap::new()),
        }
    }

    /// The directory.
    pub fn tracefs(&self) -> MutexGuard<'_, Tracefs> {
        lock(&self.tracefs)
    }

    /// Everything was handed over: requests that wait for it may look.
    pub fn tell(&self) {
        self.begun.store(true, Release);
        self.settled.notify_all();
        let tracefs = self.tracefs();
        let mut polling = lock(&self.polling);
        let ready: Vec<u64> = polling.keys().copied().filter(|handle| tracefs.is_readable(*handle)).collect();
        let ready: Vec<PollNotifier> = ready.iter().filter_map(|handle| polling.remove(handle)).collect();
        drop((tracefs, polling));
        // A client that has gone needs no notice.
        ready.into_iter().for_each(|notifier| drop(notifier.notify()));
    }

    /// Waits until the process is attached to. False: it could not be.
    pub fn await_begin(&self) -> bool {
        let mut tracefs = self.tracefs();
        while !self.begun.load(Acquire) && !self.has_ended() {
            let waited = self.settled.wait_timeout(tracefs, Duration::from_millis(100));
            tracefs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.begun.load(Acquire)
    }

    /// Waits until everything is there that had happened when [`Due::ask`] gave that number.
    pub fn sync(&self, number: u64) {
        let start = Instant::now();
        let mut tracefs = self.tracefs();
        while !self.due.is_served(number) && !self.has_ended() && start.elapsed() < SYNC {
            // The number is served just after the last notice.
            let waited = self.settled.wait_timeout(tracefs, Duration::from_millis(1));
            tracefs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits a while for something to come.
    pub fn wait(&self, limit: Duration) {
        drop(self.settled.wait_timeout(self.tracefs(), limit));
    }

    /// The process has no controller any more.
    pub fn end(&self) {
        self.over.store(true, Release);
        self.ended.store(true, Release);
        self.mailbox.close();
        self.tracefs().end();
        self.tell_end();
    }

    fn tell_end(&self) {
        self.settled.notify_all();
        for (_, notifier) in lock(&self.polling).drain() {
            let _ = notifier.notify();
        }
    }

    /// Has it no controller any more?
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// A reader polls.
    pub fn poll(&self, handle: u64, notifier: PollNotifier) {
        lock(&self.polling).insert(handle, notifier);
    }

    /// A file was closed.
    pub fn forget_poll(&self, handle: u64) {
        lock(&self.polling).remove(&handle);
    }
}

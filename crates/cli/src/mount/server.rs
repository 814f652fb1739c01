//! The state that the threads of a directory share.

use calltap_session::{Due, Mailbox};
use calltap_tracefs::Tracefs;
use fuser::PollNotifier;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for events that have already happened, on the busiest machine. Without the wait,
/// older events would count as newer than a request.
const SYNC: Duration = Duration::from_secs(30);

/// A directory and its process.
pub struct Server {
    /// Process id.
    pub pid: u32,
    tracefs: Mutex<Tracefs>,
    /// Notified when events were added.
    settled: Condvar,
    /// Requests to the process's controller.
    pub mailbox: Mailbox,
    /// Requests for the events up to now.
    pub due: Due,
    /// Whether the server is to end.
    pub over: AtomicBool,
    begun: AtomicBool,
    ended: AtomicBool,
    /// The requests that poll, by handle.
    polling: Mutex<HashMap<u64, PollNotifier>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked leaves no half-changed value behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of processors that the system can have: clients look for a directory of each.
fn processors() -> usize {
    let is_processor =
        |name: &str| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u16>().is_ok());
    let names = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let count = names.filter(|entry| entry.file_name().to_str().is_some_and(is_processor)).count();
    if count > 0 { count } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

impl Server {
    /// Returns the server of a process.
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

    /// Locks the directory.
    pub fn tracefs(&self) -> MutexGuard<'_, Tracefs> {
        lock(&self.tracefs)
    }

    /// Wakes the requests that wait for events: all events up to now were added.
    pub fn tell(&self) {
        self.begun.store(true, Release);
        self.settled.notify_all();
        let tracefs = self.tracefs();
        let mut polling = lock(&self.polling);
        let ready: Vec<u64> = polling.keys().copied().filter(|handle| tracefs.is_readable(*handle)).collect();
        let ready: Vec<PollNotifier> = ready.iter().filter_map(|handle| polling.remove(handle)).collect();
        drop((tracefs, polling));
        // A client that has gone needs no notification.
        ready.into_iter().for_each(|notifier| drop(notifier.notify()));
    }

    /// Waits until the process is attached to. False if attaching failed.
    pub fn await_begin(&self) -> bool {
        let mut tracefs = self.tracefs();
        while !self.begun.load(Acquire) && !self.has_ended() {
            let waited = self.settled.wait_timeout(tracefs, Duration::from_millis(100));
            tracefs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.begun.load(Acquire)
    }

    /// Waits until all events are added that had happened when [`Due::ask`] returned this number.
    pub fn sync(&self, number: u64) {
        let start = Instant::now();
        let mut tracefs = self.tracefs();
        while !self.due.is_served(number) && !self.has_ended() && start.elapsed() < SYNC {
            // The number is served just after the last notification.
            let waited = self.settled.wait_timeout(tracefs, Duration::from_millis(1));
            tracefs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for new events, at most for `limit`.
    pub fn wait(&self, limit: Duration) {
        drop(self.settled.wait_timeout(self.tracefs(), limit));
    }

    /// Records that the process has no controller any more, and wakes all waiting requests.
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

    /// Whether the process has no controller any more.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// Registers a request that polls.
    pub fn poll(&self, handle: u64, notifier: PollNotifier) {
        lock(&self.polling).insert(handle, notifier);
    }

    /// Forgets the polling request of a closed file.
    pub fn forget_poll(&self, handle: u64) {
        lock(&self.polling).remove(&handle);
    }
}

//! Which threads still exist. A process's threads are listed once, however many are asked about.

use calltap_process::proc;
use std::collections::{HashMap, HashSet};
use std::fs;

/// The threads of processes, as they were when each process was first asked about.
#[derive(Default)]
pub struct Living {
    processes: HashMap<u32, HashSet<u32>>,
}

impl Living {
    /// Whether the thread exists. The kernel may leave threads out of the list while others end, so
    /// a thread that is not listed is looked up.
    pub fn has(&mut self, pid: u32, tid: u32) -> bool {
        // The first thread is listed as long as the process exists, though it may have ended.
        let listed = || proc::tasks(pid).into_iter().filter(|tid| *tid != pid).collect();
        self.processes.entry(pid).or_insert_with(listed).contains(&tid) || exists(pid, tid)
    }
}

/// Whether the system has such a thread, or cannot tell: without descriptors or with hidepid, an
/// error is no proof that there is none.
fn exists(pid: u32, tid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")) {
        // A zombie's directory exists, but it runs no more.
        Ok(text) => proc::state_of(&text).is_some_and(|state| !proc::is_end(state)),
        Err(error) => {
            let gone = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
            !(gone && fs::metadata("/proc/self").is_ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn threads_exist_until_joined() {
        let own = std::process::id();
        let (begun, tid) = mpsc::channel();
        let (end, ending) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            begun.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ending.recv();
        });
        let tid = tid.recv().unwrap();
        let mut living = Living::default();
        assert!(living.has(own, own) && living.has(own, tid));
        drop(end);
        other.join().unwrap();
        // The kernel wakes the joining thread before it takes the other out of the list.
        while fs::metadata(format!("/proc/self/task/{tid}")).is_ok() {
            thread::yield_now();
        }
        assert!(living.has(own, own), "the others live");
        assert!(!Living::default().has(own, tid));
    }

    #[test]
    fn a_process_that_is_gone_has_no_threads() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!Living::default().has(pid, pid));
    }
}

//! The worker of a directory: does operations in the order of their arrival. Some need the process,
//! and other requests do not wait for them.

use super::server::Server;
use calltap_process::clock::monotonic_ns;
use calltap_session::{Answer, Request};
use calltap_tracefs::{Effects, Refresh};
use rustix::io::Errno;
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

type Job = Box<dyn FnOnce(&Server) + Send>;

/// The thread that does the operations.
pub struct Worker(Sender<Job>);

impl Worker {
    /// Starts the worker of a server.
    pub fn new(server: &Arc<Server>) -> Worker {
        let (sender, jobs) = mpsc::channel::<Job>();
        let server = Arc::clone(server);
        thread::spawn(move || jobs.into_iter().for_each(|job| job(&server)));
        Worker(sender)
    }

    /// Queues an operation.
    pub fn send(&self, job: impl FnOnce(&Server) + Send + 'static) {
        // The worker ends with calltap.
        let _ = self.0.send(Box::new(job));
    }
}

/// Updates the directory, by asking the process, with the data that a file needs which is about to
/// be opened; without a file, with the functions that can be traced.
pub fn refresh(server: &Server, inode: Option<u64>) {
    let needed = match inode {
        Some(inode) => server.tracefs().refresh(inode),
        None => Some(Refresh::Functions),
    };
    let request = match needed {
        None => return,
        Some(Refresh::Functions) => Request::Selection,
        Some(Refresh::Profile) => Request::Profile,
    };
    // After the end of the process, files show its last state.
    match server.mailbox.ask(request) {
        Some(Answer::Selection(_, functions)) => server.tracefs().set_functions(functions),
        Some(Answer::Profile(profile)) => server.tracefs().set_profile(profile),
        _ => {}
    }
}

/// Reads the present names of the threads that a file shows.
pub fn rename(server: &Server, inode: u64) {
    let threads = server.tracefs().shown_threads(inode);
    for tid in threads {
        if let Ok(comm) = fs::read_to_string(format!("/proc/{}/task/{tid}/comm", server.pid)) {
            server.tracefs().rename_thread(tid, comm.trim_end());
        }
    }
}

/// Adds the threads of the process and its children to the directory, if new threads are to be
/// followed.
pub fn introduce(server: &Server) {
    if !server.tracefs().follows() {
        return;
    }
    let mut processes = vec![server.pid];
    while let Some(pid) = processes.pop() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for tid in tasks.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}"));
            if server.tracefs().is_stranger(tid)
                && let Ok(comm) = read("comm")
            {
                server.tracefs().introduce(tid, pid, comm.trim_end());
            }
            let children = read("children").unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
}

/// Applies an operation's effects to the process.
pub fn carry_out(server: &Server) -> Result<(), Errno> {
    let (effects, words) = {
        let mut tracefs = server.tracefs();
        let effects = tracefs.take_effects();
        if effects == Effects::default() {
            return Ok(());
        }
        (effects, tracefs.words())
    };
    let ask = |request| match server.mailbox.ask(request) {
        Some(Answer::Refused(why)) => {
            server.tracefs().log_failure(&why, monotonic_ns());
            Err(Errno::IO)
        }
        // A write succeeds in part, as the kernel's.
        Some(Answer::Set { notes, .. }) => {
            let (mut tracefs, now) = (server.tracefs(), monotonic_ns());
            notes.iter().for_each(|note| tracefs.log_failure(note, now));
            Ok(())
        }
        Some(_) => Ok(()),
        None => Err(Errno::NODEV),
    };
    // Each is requested even if another one is refused: it would be forgotten.
    let reset = if effects.resets_profile { ask(Request::ResetProfile) } else { Ok(()) };
    let selected = if effects.selects { ask(Request::Select(words)) } else { Ok(()) };
    if effects.ends_profile
        && let Some(Answer::Profile(profile)) = server.mailbox.ask(Request::Profile)
    {
        server.tracefs().set_profile(profile);
    }
    reset.and(selected)
}

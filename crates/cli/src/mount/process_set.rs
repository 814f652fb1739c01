//! `calltap tracefs mount DIR` without a process: a directory for every process that is attached
//! to.
//!
//! `mkdir DIR/PID` attaches, `rmdir DIR/PID` detaches. A process that another calltap has attached
//! to and left running (`calltap attach`) gets a directory with its present tracers and filters.
//! `error_log` says why a process could not be attached to.

use super::directories::{Directories, Directory};
use super::server::Server;
use super::{elsewhere, serve_process};
use calltap_analysis::units;
use calltap_selection::{Selection, TracerSelection};
use calltap_session::{Attached, SessionOutcome, Settings, attached, detach_process};
use calltap_trace::TracerKind;
use calltap_tracefs::control::TRACE;
use calltap_tracefs::{Attributes, Listing};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval between two looks for processes that another calltap has attached to.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Inode numbers of the set's own files: its directory and its log.
const ROOT: u64 = 1;
const LOG: u64 = 2;
const LOG_NAME: &str = "error_log";
/// Number of bytes after which the log is started again.
const MAX_LOG_LEN: usize = 1 << 16;

type ServerThread = JoinHandle<Result<SessionOutcome, String>>;
type Options = dyn Fn(u32, Selection) -> anyhow::Result<calltap_session::Options> + Send + Sync;

/// The processes of one mount, each with its directory.
pub struct ProcessSet {
    /// The processes' directories.
    pub directories: Arc<Directories>,
    options: Box<Options>,
    threads: Mutex<HashMap<u32, ServerThread>>,
    log: Mutex<String>,
    over: AtomicBool,
}

/// Whether an inode is the set's own, not one of a process's directory.
pub fn is_own(inode: u64) -> bool {
    inode <= LOG
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessSet {
    /// Returns an empty set. `options`: returns how a process is attached to.
    pub fn new(options: Box<Options>) -> Arc<ProcessSet> {
        let (directories, threads, log, over) = Default::default();
        Arc::new(ProcessSet { directories, options, threads, log, over })
    }

    // ---- The set's own files

    /// Returns the attributes of an entry by its name.
    pub fn lookup(&self, parent: u64, name: &str) -> Option<Attributes> {
        if parent != ROOT {
            return None;
        }
        if name == LOG_NAME {
            return Some(self.attributes(LOG));
        }
        // Only the canonical spelling is a process: `007` is not.
        let pid = name.parse::<u32>().ok().filter(|pid| pid.to_string() == name)?;
        root(self.directories.of(pid)?.as_ref()).ok()
    }

    /// Returns the attributes of one of the set's own files.
    pub fn attributes(&self, inode: u64) -> Attributes {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        match inode {
            LOG => Attributes { inode, is_dir: false, mode: 0o640, owner, links: 1 },
            _ => {
                let links = 2 + self.directories.listed().len() as u32;
                Attributes { inode: ROOT, is_dir: true, mode: 0o750, owner, links }
            }
        }
    }

    /// Returns the entries of the set's directory.
    pub fn list(&self) -> Vec<Listing> {
        let directories = self.directories.listed();
        let directories = directories.iter().filter_map(|directory| {
            let root = root(directory).ok()?;
            Some(Listing { name: directory.server.pid.to_string(), inode: root.inode, is_dir: true })
        });
        let log = Listing { name: LOG_NAME.into(), inode: LOG, is_dir: false };
        [log].into_iter().chain(directories).collect()
    }

    /// Opens the log, and clears it if the flags truncate.
    pub fn open(&self, flags: OFlags) {
        if flags.contains(OFlags::TRUNC) {
            lock(&self.log).clear();
        }
    }

    /// Reads the log.
    pub fn read(&self, offset: u64, size: usize) -> Vec<u8> {
        let log = lock(&self.log);
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(log.len());
        log.as_bytes()[from..from.saturating_add(size).min(log.len())].to_vec()
    }

    fn complain(&self, pid: u32, why: &str) {
        let mut log = lock(&self.log);
        let line = format!("{pid}: {}\n", units::one_line(why));
        if log.len() + line.len() > MAX_LOG_LEN {
            log.clear();
        }
        // A failure that repeats is logged once.
        if !log.ends_with(&line) {
            let _ = log.write_str(&line);
        }
    }

    // ---- The processes' directories

    /// `mkdir`: attaches to a process.
    pub fn add(self: &Arc<ProcessSet>, name: &str) -> Result<Attributes, Errno> {
        let pid: u32 = name.parse().map_err(|_| Errno::INVAL)?;
        if pid == 0 || pid.to_string() != name {
            return Err(Errno::INVAL);
        }
        root(self.enter(pid, None)?.as_ref())
    }

    /// `rmdir`: detaches from a process.
    pub fn remove(&self, name: &str) -> Result<(), Errno> {
        let pid = name.parse().map_err(|_| Errno::NOENT)?;
        let directory = self.directories.of(pid).ok_or(Errno::NOENT)?;
        if directory.is_open() {
            return Err(Errno::BUSY);
        }
        directory.server.over.store(true, Release);
        if let Some(thread) = { lock(&self.threads).remove(&pid) } {
            let _ = thread.join();
        }
        Ok(())
    }

    /// Attaches to a process, with `words` as its selection at first, and adds its directory.
    fn enter(self: &Arc<ProcessSet>, pid: u32, words: Option<Selection>) -> Result<Arc<Directory>, Errno> {
        // The lock admits one at a time: two requests for the same process would collide.
        let mut threads = lock(&self.threads);
        if self.over.load(Acquire) {
            return Err(Errno::NODEV);
        }
        if self.directories.of(pid).is_some() {
            return Err(Errno::EXIST);
        }
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return Err(Errno::SRCH);
        }
        if let Some(place) = elsewhere(pid) {
            self.complain(pid, &format!("its directory is mounted already: {}", place.display()));
            return Err(Errno::BUSY);
        }
        let words = words.unwrap_or_else(super::nothing);
        let options =
            (self.options)(pid, Selection { paused: false, ..words.clone() }).map_err(|_| Errno::INVAL)?;
        let server = Arc::new(Server::new(pid));
        server.tracefs().adopt(words);
        let (own, process_set) = (Arc::clone(&server), Arc::clone(self));
        let thread = std::thread::spawn(move || {
            let outcome = serve_process(&own, &options).map_err(|error| error.to_string());
            // Readers with open files get the end of the file.
            if let Some(directory) = process_set.directories.of(pid) {
                process_set.directories.leave(&directory);
            }
            outcome
        });
        if !server.await_begin() {
            let why = match thread.join() {
                Ok(Err(why)) => why,
                _ => "it ended".into(),
            };
            self.complain(pid, &why);
            return Err(Errno::PERM);
        }
        super::worker::refresh(&server, None);
        let directory = self.directories.add(&server, false);
        if server.has_ended() {
            self.directories.leave(&directory);
        }
        threads.insert(pid, thread);
        Ok(directory)
    }

    /// Takes over each process that another calltap has attached to and left running, until the set
    /// is closed.
    pub fn take_over_attached(self: &Arc<ProcessSet>) {
        while !self.over.load(Acquire) {
            for pid in attached() {
                let taken = Attached::find(pid).map(|attached| words_of(&attached.settings));
                let left = taken.and_then(|words| detach_process(pid).map(|_| words));
                match left {
                    // `enter` logs its errors itself.
                    Ok(words) => drop(self.enter(pid, Some(words))),
                    Err(error) => self.complain(pid, &error.to_string()),
                }
            }
            lock(&self.threads).retain(|_, thread| !thread.is_finished());
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Detaches from all processes.
    pub fn close(&self) {
        self.over.store(true, Release);
        let directories = self.directories.listed();
        directories.iter().for_each(|directory| directory.server.over.store(true, Release));
        let threads: Vec<ServerThread> = lock(&self.threads).drain().map(|(_, thread)| thread).collect();
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Returns the selection of a session, with the session's filters added to every tracer's own.
/// While the session is switched off, its tracers have no kind.
fn words_of(settings: &Settings) -> Selection {
    let mut words = settings.words.clone();
    if words.tracers.is_empty() {
        let (name, kind) = (TRACE.into(), Some(TracerKind::FunctionGraph));
        words.tracers.push(TracerSelection { name, kind, filter: Vec::new(), notrace: Vec::new() });
    }
    let (filter, notrace) = (std::mem::take(&mut words.filter), std::mem::take(&mut words.notrace));
    for tracer in &mut words.tracers {
        tracer.filter.extend_from_slice(&filter);
        tracer.notrace.extend_from_slice(&notrace);
        tracer.kind = tracer.kind.filter(|_| settings.on);
    }
    words
}

fn root(directory: &Directory) -> Result<Attributes, Errno> {
    let own = directory.server.tracefs().attributes(1)?;
    Ok(directory.attributes(own))
}

//! The directories of a mount: that of one process, or one for each of several.
//!
//! The kernel knows files by one inode number for the whole mount: its upper bits are the directory, the others the directory's own number.

use super::server::Server;
use super::waiting::Waiting;
use super::worker::{self, Worker};
use calltap_tracefs::Attributes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, PoisonError, RwLock};

const BITS: u32 = 40;

/// A process's directory, and the thread that serves it.
pub struct Directory {
    number: u64,
    /// What it shows.
    pub server: Arc<Server>,
    /// Does what may have to wait for the process.
    pub worker: Worker,
    /// Has the readers that wait.
    pub waiting: Arc<Waiting>,
    /// Files that are open.
    open: AtomicU64,
    /// It is there only for processes that have files of it open.
    gone: AtomicBool,
    /// The worker was told to look at the libraries.
    told: AtomicBool,
}

impl Directory {
    /// The mount's inode number for one of the directory's own.
    pub fn outer(&self, own: u64) -> u64 {
        self.number << BITS | own
    }

    /// The same of a file or directory.
    pub fn attributes(&self, own: Attributes) -> Attributes {
        Attributes { inode: self.outer(own.inode), ..own }
    }

    /// Is a file open?
    pub fn is_open(&self) -> bool {
        self.open.load(Acquire) > 0
    }

    /// Has filters that wait for a library find it, once it is there. Of one in which nothing is wanted no event tells.
    fn tend(self: &Arc<Directory>) {
        if self.server.tracefs().awaits_library() && !self.told.swap(true, AcqRel) {
            let own = Arc::clone(self);
            self.worker.send(move |server| {
                worker::refresh(server, None);
                // What could not be done is in `error_log`.
                let _ = worker::carry_out(server);
                own.told.store(false, Release);
            });
        }
    }

    /// A file is open from now on.
    pub fn open(&self) {
        self.open.fetch_add(1, AcqRel);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.waiting.close();
    }
}

/// All of them.
#[derive(Default)]
pub struct Directories {
    /// By number. The only one of a mount has 0, and its root is the mount's.
    directories: RwLock<BTreeMap<u64, Arc<Directory>>>,
}

impl Directories {
    /// One for a process. `alone`: it is the whole mount.
    pub fn add(&self, server: &Arc<Server>, alone: bool) -> Arc<Directory> {
        let (worker, waiting) = (Worker::new(server), Waiting::new(server));
        let mut directories = self.directories.write().unwrap_or_else(PoisonError::into_inner);
        let number = if alone { 0 } else { directories.keys().next_back().map_or(1, |last| last + 1) };
        let (open, gone, told) = Default::default();
        let directory =
            Arc::new(Directory { number, server: Arc::clone(server), worker, waiting, open, gone, told });
        directories.insert(number, Arc::clone(&directory));
        directory
    }

    fn all(&self) -> Vec<Arc<Directory>> {
        self.directories.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The directory of an inode number of the mount, and its number there.
    pub fn find(&self, outer: u64) -> Option<(Arc<Directory>, u64)> {
        let directories = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        Some((Arc::clone(directories.get(&(outer >> BITS))?), outer & ((1 << BITS) - 1)))
    }

    /// Those that can be entered.
    pub fn listed(&self) -> Vec<Arc<Directory>> {
        self.all().into_iter().filter(|directory| !directory.gone.load(Acquire)).collect()
    }

    /// What has to be looked after again and again.
    pub fn tend(&self) {
        self.listed().iter().for_each(Directory::tend);
    }

    /// The directory of a process.
    pub fn of(&self, pid: u32) -> Option<Arc<Directory>> {
        self.listed().into_iter().find(|directory| directory.server.pid == pid)
    }

    /// It is entered no more.
    pub fn leave(&self, directory: &Directory) {
        directory.gone.store(true, Release);
        self.tidy(directory);
    }

    /// A file of it was closed.
    pub fn close(&self, directory: &Directory) {
        directory.open.fetch_sub(1, AcqRel);
        self.tidy(directory);
    }

    fn tidy(&self, directory: &Directory) {
        if directory.gone.load(Acquire) && directory.open.load(Acquire) == 0 {
            self.directories.write().unwrap_or_else(PoisonError::into_inner).remove(&directory.number);
        }
    }
}

//! The directories of a mount: that of one process, or one for each of several.
//!
//! The kernel knows files by one inode number for the whole mount: its upper bits are the number of
//! the directory, the lower bits the inode number within the directory.

use super::server::Server;
use super::waiting::Waiting;
use super::worker::{self, Worker};
use calltap_tracefs::Attributes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, PoisonError, RwLock};

const BITS: u32 = 40;

/// A process's directory, and the threads that serve it.
pub struct Directory {
    number: u64,
    /// The directory's contents and the process's controller.
    pub server: Arc<Server>,
    /// The thread of operations that may have to wait for the process.
    pub worker: Worker,
    /// The requests that wait for an answer.
    pub waiting: Arc<Waiting>,
    /// Number of open files.
    open: AtomicU64,
    /// Whether the directory is unlinked, and remains only for processes with open files of it.
    gone: AtomicBool,
    /// Whether the worker has a pending order to look for libraries.
    told: AtomicBool,
}

impl Directory {
    /// Returns the mount's inode number for one of the directory's own.
    pub fn outer(&self, own: u64) -> u64 {
        self.number << BITS | own
    }

    /// Returns attributes of this directory's file or directory, with the mount's inode number.
    pub fn attributes(&self, own: Attributes) -> Attributes {
        Attributes { inode: self.outer(own.inode), ..own }
    }

    /// Whether a file of the directory is open.
    pub fn is_open(&self) -> bool {
        self.open.load(Acquire) > 0
    }

    /// Applies filters that wait for a library, once it is loaded. In a process where no function
    /// is wanted no event reports the library.
    fn tend(self: &Arc<Directory>) {
        if self.server.tracefs().awaits_library() && !self.told.swap(true, AcqRel) {
            let own = Arc::clone(self);
            self.worker.send(move |server| {
                worker::refresh(server, None);
                // A failure is in `error_log`.
                let _ = worker::carry_out(server);
                own.told.store(false, Release);
            });
        }
    }

    /// Counts a file as open.
    pub fn open(&self) {
        self.open.fetch_add(1, AcqRel);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.waiting.close();
    }
}

/// All directories of a mount.
#[derive(Default)]
pub struct Directories {
    /// The directories by number. The only one of a mount has number 0, and its root is the
    /// mount's.
    directories: RwLock<BTreeMap<u64, Arc<Directory>>>,
}

impl Directories {
    /// Adds a directory for a process. `alone`: it is the whole mount.
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

    /// Returns the directory of a mount's inode number, and the inode number within it.
    pub fn find(&self, outer: u64) -> Option<(Arc<Directory>, u64)> {
        let directories = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        Some((Arc::clone(directories.get(&(outer >> BITS))?), outer & ((1 << BITS) - 1)))
    }

    /// Returns the directories that can be entered.
    pub fn listed(&self) -> Vec<Arc<Directory>> {
        self.all().into_iter().filter(|directory| !directory.gone.load(Acquire)).collect()
    }

    /// Performs the periodic work of all directories.
    pub fn tend(&self) {
        self.listed().iter().for_each(Directory::tend);
    }

    /// Whether a file of any directory is open.
    pub fn are_open(&self) -> bool {
        self.all().iter().any(|directory| directory.is_open())
    }

    /// Returns the directory of a process.
    pub fn of(&self, pid: u32) -> Option<Arc<Directory>> {
        self.listed().into_iter().find(|directory| directory.server.pid == pid)
    }

    /// Unlinks a directory, and removes it once no file of it is open.
    pub fn leave(&self, directory: &Directory) {
        directory.gone.store(true, Release);
        self.tidy(directory);
    }

    /// Counts a file of a directory as closed.
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

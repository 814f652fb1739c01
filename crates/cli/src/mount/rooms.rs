//! The directories of a mount: that of one process, or of each of several a room of its own.
//!
//! The kernel knows files by one number for the whole mount: its upper bits say which room, the others are the room's own.

use super::server::Server;
use super::waiting::Waiting;
use super::worker::{self, Worker};
use calltap_tracefs::Attributes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, PoisonError, RwLock};

const BITS: u32 = 40;

/// A process's directory, and who attends to it.
pub struct Room {
    number: u64,
    /// What it shows.
    pub server: Arc<Server>,
    /// Does what may have to wait for the process.
    pub worker: Worker,
    /// Has those who wait.
    pub waiting: Arc<Waiting>,
    /// Files that are open.
    open: AtomicU64,
    /// It is there for those only who have files open.
    gone: AtomicBool,
    /// The worker was told to look at the libraries.
    told: AtomicBool,
}

impl Room {
    /// The number by which the kernel knows one of the room's own.
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

    /// Has filters that wait for a library find it, once it is there. (Of one in which nothing is wanted no event tells.)
    fn tend(self: &Arc<Room>) {
        if self.server.tracefs().awaits_library() && !self.told.swap(true, AcqRel) {
            let own = Arc::clone(self);
            self.worker.send(move |server| {
                worker::refresh(server, None);
                // (What could not be done is in `error_log`.)
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

impl Drop for Room {
    fn drop(&mut self) {
        self.waiting.close();
    }
}

/// All of them.
#[derive(Default)]
pub struct Rooms {
    /// By number. The only one of a mount has 0, and its root is the mount's.
    rooms: RwLock<BTreeMap<u64, Arc<Room>>>,
}

impl Rooms {
    /// One for a process. `alone`: it is the whole mount.
    pub fn add(&self, server: &Arc<Server>, alone: bool) -> Arc<Room> {
        let (worker, waiting) = (Worker::new(server), Waiting::new(server));
        let mut rooms = self.rooms.write().unwrap_or_else(PoisonError::into_inner);
        let number = if alone { 0 } else { rooms.keys().next_back().map_or(1, |last| last + 1) };
        let (open, gone, told) = Default::default();
        let room = Arc::new(Room { number, server: Arc::clone(server), worker, waiting, open, gone, told });
        rooms.insert(number, Arc::clone(&room));
        room
    }

    fn all(&self) -> Vec<Arc<Room>> {
        self.rooms.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The room that a number of the kernel's is about, and its own number.
    pub fn find(&self, outer: u64) -> Option<(Arc<Room>, u64)> {
        let rooms = self.rooms.read().unwrap_or_else(PoisonError::into_inner);
        Some((Arc::clone(rooms.get(&(outer >> BITS))?), outer & ((1 << BITS) - 1)))
    }

    /// Those that can be entered.
    pub fn listed(&self) -> Vec<Arc<Room>> {
        self.all().into_iter().filter(|room| !room.gone.load(Acquire)).collect()
    }

    /// What has to be looked after again and again.
    pub fn tend(&self) {
        self.listed().iter().for_each(Room::tend);
    }

    /// The room of a process.
    pub fn of(&self, pid: u32) -> Option<Arc<Room>> {
        self.listed().into_iter().find(|room| room.server.pid == pid)
    }

    /// It is entered no more.
    pub fn leave(&self, room: &Room) {
        room.gone.store(true, Release);
        self.tidy(room);
    }

    /// A file of it was closed.
    pub fn close(&self, room: &Room) {
        room.open.fetch_sub(1, AcqRel);
        self.tidy(room);
    }

    fn tidy(&self, room: &Room) {
        if room.gone.load(Acquire) && room.open.load(Acquire) == 0 {
            self.rooms.write().unwrap_or_else(PoisonError::into_inner).remove(&room.number);
        }
    }
}

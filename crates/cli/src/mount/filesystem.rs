//! Requests of the kernel's FUSE, handed to the directory.

use super::hall::{self, Hall};
use super::rooms::{Room, Rooms};
use super::server::Server;
use super::worker;
use calltap_session::monotonic_ns;
use calltap_tracefs::{Attributes, Listing, Read};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::io::Errno as Io;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

/// The kernel asks again each time: instances come and go.
const TTL: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

/// Directories as a file system: of one process, or of several in a hall.
pub struct Files {
    /// The directories.
    pub rooms: Arc<Rooms>,
    hall: Option<Arc<Hall>>,
    mounted: SystemTime,
}

fn errno(errno: Io) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

fn empty(reply: ReplyEmpty, done: Result<(), Io>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn utf8(name: &OsStr) -> Option<&str> {
    name.to_str()
}

impl Files {
    /// Of one process.
    pub fn of(server: &Arc<Server>) -> Files {
        let rooms = Arc::new(Rooms::default());
        rooms.add(server, true);
        Files { rooms, hall: None, mounted: SystemTime::now() }
    }

    /// Of those in a hall.
    pub fn of_all(hall: Arc<Hall>) -> Files {
        Files { rooms: Arc::clone(&hall.rooms), hall: Some(hall), mounted: SystemTime::now() }
    }

    /// The hall, if this is its own directory or file.
    fn hall(&self, inode: INodeNo) -> Option<&Arc<Hall>> {
        self.hall.as_ref().filter(|_| hall::is_own(inode.0))
    }

    fn room(&self, number: u64) -> Result<(Arc<Room>, u64), Errno> {
        self.rooms.find(number).ok_or(Errno::ENOENT)
    }

    fn attr(&self, attributes: Attributes) -> FileAttr {
        attr(attributes, self.mounted)
    }
}

fn attr(attributes: Attributes, time: SystemTime) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.inode),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: if attributes.is_dir { FileType::Directory } else { FileType::RegularFile },
        perm: attributes.mode,
        nlink: attributes.links,
        uid: attributes.owner.0,
        gid: attributes.owner.1,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Opening with `>` is what clears: a truncation later changes nothing, and the two must be told apart.
        config
            .add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC)
            .map_err(|_| io::Error::other("the kernel's FUSE cannot tell how a file is opened"))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(name) = utf8(name) else { return reply.error(Errno::ENOENT) };
        let found = match self.hall(parent) {
            Some(hall) => hall.lookup(parent.0, name).ok_or(Errno::ENOENT),
            None => self.room(parent.0).and_then(|(room, parent)| {
                let found = room.server.tracefs().lookup(parent, name);
                found.map(|own| room.attributes(own)).map_err(errno)
            }),
        };
        match found {
            Ok(attributes) => reply.entry(&TTL, &self.attr(attributes), GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = match self.hall(inode) {
            Some(hall) => Ok(hall.attributes(inode.0)),
            None => self.room(inode.0).and_then(|(room, inode)| {
                let found = room.server.tracefs().attributes(inode);
                found.map(|own| room.attributes(own)).map_err(errno)
            }),
        };
        match found {
            Ok(attributes) => reply.attr(&TTL, &self.attr(attributes)),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| (mode & 0o7777) as u16);
        if let Some(hall) = self.hall(inode) {
            // (Opening its log with `>` may come as a new size, too.)
            return match (mode, uid, gid) {
                (None, None, None) => reply.attr(&TTL, &self.attr(hall.attributes(inode.0))),
                _ => reply.error(Errno::EPERM),
            };
        }
        let changed = self.room(inode.0).and_then(|(room, inode)| {
            let changed = room.server.tracefs().set_attributes(inode, mode, (uid, gid));
            changed.map(|own| room.attributes(own)).map_err(errno)
        });
        match changed {
            Ok(attributes) => reply.attr(&TTL, &self.attr(attributes)),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = match self.hall(inode) {
            Some(hall) => Ok(hall.list()),
            None => self.room(inode.0).and_then(|(room, inode)| {
                let listed = room.server.tracefs().list(inode).map_err(errno)?;
                let outer = |own: Listing| Listing { inode: room.outer(own.inode), ..own };
                Ok(listed.into_iter().map(outer).collect::<Vec<Listing>>())
            }),
        };
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return reply.error(error),
        };
        let dots = [".", ".."].map(|name| (inode.0, true, name.to_owned()));
        let all = listed.into_iter().map(|entry| (entry.inode, entry.is_dir, entry.name));
        for (n, (inode, is_dir, name)) in dots.into_iter().chain(all).enumerate().skip(offset as usize) {
            let kind = if is_dir { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(inode), n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let Some(name) = utf8(name).map(str::to_owned) else { return reply.error(Errno::EINVAL) };
        let mounted = self.mounted;
        if let Some(hall) = self.hall(parent) {
            let hall = Arc::clone(hall);
            // (To come to a process may take a while.)
            thread::spawn(move || match hall.make_room(&name) {
                Ok(attributes) => reply.entry(&TTL, &attr(attributes, mounted), GENERATION),
                Err(error) => reply.error(errno(error)),
            });
            return;
        }
        let (room, parent) = match self.room(parent.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let (now, own) = (room.server.due.ask(), Arc::clone(&room));
        let asked = room.waiting.ask(request.pid(), Err(Io::INTR), move |made| match made {
            Ok(made) => reply.entry(&TTL, &attr(own.attributes(made), mounted), GENERATION),
            Err(error) => reply.error(errno(error)),
        });
        room.worker.send(move |server| {
            server.sync(now);
            if asked.begin() {
                let made = server.tracefs().make_directory(parent, &name);
                asked.answer(made);
            }
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Some(name) = utf8(name).map(str::to_owned) else { return reply.error(Errno::ENOENT) };
        if let Some(hall) = self.hall(parent) {
            let hall = Arc::clone(hall);
            thread::spawn(move || match hall.remove_room(&name) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            });
            return;
        }
        let (room, parent) = match self.room(parent.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let now = room.server.due.ask();
        let asked = room.waiting.ask(request.pid(), Err(Io::INTR), |removed| empty(reply, removed));
        room.worker.send(move |server| {
            server.sync(now);
            if !asked.begin() {
                return;
            }
            let removed = server.tracefs().remove_directory(parent, &name);
            asked.done(removed);
            asked.answer(removed.and_then(|()| worker::carry_out(server)));
        });
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &std::path::Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EACCES);
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::EACCES);
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags.0 as u32);
        if let Some(hall) = self.hall(inode) {
            hall.open(flags);
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        let (room, inode) = match self.room(inode.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        // (Those who come together wait together.)
        let (now, own) = (room.server.due.ask(), Arc::clone(&room));
        let asked = room.waiting.ask(request.pid(), Err(Io::INTR), move |opened| match opened {
            Ok(handle) => {
                own.open();
                // Sizes are 0, and every write shall come as it was made.
                reply.opened(FileHandle(own.outer(handle)), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(errno(error)),
        });
        room.worker.send(move |server| {
            server.sync(now);
            worker::refresh(server, Some(inode));
            worker::rename(server, inode);
            if asked.begin() {
                let opened = server.tracefs().open(inode, flags);
                asked.answer(opened);
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Some(hall) = self.hall(inode) {
            return reply.data(&hall.read(offset, size as usize));
        }
        let (room, handle) = match self.room(handle.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let waits = !OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::NONBLOCK);
        let read = room.server.tracefs().read(handle, offset, size as usize, waits);
        match read {
            Ok(Read::Data(data)) => {
                reply.data(&data);
                room.server.tracefs().read_ahead(handle, size as usize);
            }
            Ok(Read::Wait) if !waits => reply.error(Errno::EAGAIN),
            Ok(Read::Wait) => room.waiting.read(handle, size as usize, request.pid(), reply),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.hall(inode).is_some() {
            // (Opening it has cleared it, or not; whatever is written is taken.)
            return reply.written(data.len() as u32);
        }
        let (room, handle) = match self.room(handle.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let (_, inode) = match self.room(inode.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let (tid, now) = (request.pid(), monotonic_ns());
        let answer = |written: Result<usize, Io>| match written {
            Ok(taken) => reply.written(taken as u32),
            Err(error) => reply.error(errno(error)),
        };
        // The process itself may write there while it is being changed: then it must not wait for that.
        let is_mark = room.server.tracefs().is_marker(inode);
        if is_mark {
            let written = room.server.tracefs().write(handle, data, tid, &comm(tid), now);
            return answer(written);
        }
        let (data, due) = (data.to_vec(), room.server.due.ask());
        let asked = room.waiting.ask(tid, Err(Io::INTR), answer);
        room.worker.send(move |server| {
            server.sync(due);
            if !asked.begin() {
                return;
            }
            let written = server.tracefs().write(handle, &data, tid, "", now);
            asked.done(written);
            worker::introduce(server);
            asked.answer(written.and_then(|taken| worker::carry_out(server).map(|()| taken)));
        });
    }

    fn flush(&self, request: &Request, inode: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let found = if self.hall(inode).is_some() { None } else { self.rooms.find(handle.0) };
        let Some((room, handle)) = found else { return reply.ok() };
        if !room.server.tracefs().is_written(handle, request.pid()) {
            return reply.ok();
        }
        // (It is closed, whatever is answered.)
        let asked = room.waiting.ask(request.pid(), Ok(()), |flushed| empty(reply, flushed));
        room.worker.send(move |server| {
            let flushed = server.tracefs().flush(handle);
            asked.answer(flushed.and_then(|()| worker::carry_out(server)));
        });
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let found = if self.hall(inode).is_some() { None } else { self.rooms.find(handle.0) };
        let Some((room, handle)) = found else { return reply.ok() };
        room.server.forget_poll(handle);
        let (own, rooms) = (Arc::clone(&room), Arc::clone(&self.rooms));
        room.worker.send(move |server| {
            server.tracefs().release(handle);
            // Errors are reported to no process here.
            let _ = worker::carry_out(server);
            rooms.close(&own);
            reply.ok();
        });
    }

    fn poll(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        notifier: PollNotifier,
        events: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let found = if self.hall(inode).is_some() { None } else { self.rooms.find(handle.0) };
        let Some((room, handle)) = found else { return reply.poll(events) };
        let readable = room.server.tracefs().is_readable(handle);
        let reading = PollEvents::POLLIN | PollEvents::POLLRDNORM;
        if !readable && flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY) {
            room.server.poll(handle, notifier);
        }
        let ready = if readable { reading } else { PollEvents::empty() };
        reply.poll(events & (ready | PollEvents::POLLOUT | PollEvents::POLLWRNORM));
    }
}

fn comm(tid: u32) -> String {
    fs::read_to_string(format!("/proc/{tid}/comm")).map(|comm| comm.trim_end().to_owned()).unwrap_or_default()
}

//! The file system: passes the requests of the kernel's FUSE to the directories.

use super::directories::{Directories, Directory};
use super::process_set::{self, ProcessSet};
use super::server::Server;
use super::worker;
use calltap_process::clock::monotonic_ns;
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

/// No caching: the kernel asks again each time, as instances are made and removed.
const TTL: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

/// A mount's directories as a file system: that of one process, or those of a set.
pub struct Files {
    /// The directories.
    pub directories: Arc<Directories>,
    process_set: Option<Arc<ProcessSet>>,
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
    /// Returns the file system of one process.
    pub fn of(server: &Arc<Server>) -> Files {
        let directories = Arc::new(Directories::default());
        directories.add(server, true);
        Files { directories, process_set: None, mounted: SystemTime::now() }
    }

    /// Returns the file system of a set of processes.
    pub fn of_all(process_set: Arc<ProcessSet>) -> Files {
        Files {
            directories: Arc::clone(&process_set.directories),
            process_set: Some(process_set),
            mounted: SystemTime::now(),
        }
    }

    /// Returns the set, if the inode is its own directory or log.
    fn process_set(&self, inode: INodeNo) -> Option<&Arc<ProcessSet>> {
        self.process_set.as_ref().filter(|_| process_set::is_own(inode.0))
    }

    fn directory(&self, number: u64) -> Result<(Arc<Directory>, u64), Errno> {
        self.directories.find(number).ok_or(Errno::ENOENT)
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
        // Opening with `>` clears a file, a later truncation changes nothing: the two must be told
        // apart.
        config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC).map_err(|_| {
            io::Error::other(
                "the kernel's FUSE does not tell which O_TRUNC opens a file (FUSE_ATOMIC_O_TRUNC)",
            )
        })
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(name) = utf8(name) else { return reply.error(Errno::ENOENT) };
        let found = match self.process_set(parent) {
            Some(process_set) => process_set.lookup(parent.0, name).ok_or(Errno::ENOENT),
            None => self.directory(parent.0).and_then(|(directory, parent)| {
                let found = directory.server.tracefs().lookup(parent, name);
                found.map(|own| directory.attributes(own)).map_err(errno)
            }),
        };
        match found {
            Ok(attributes) => reply.entry(&TTL, &self.attr(attributes), GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = match self.process_set(inode) {
            Some(process_set) => Ok(process_set.attributes(inode.0)),
            None => self.directory(inode.0).and_then(|(directory, inode)| {
                let found = directory.server.tracefs().attributes(inode);
                found.map(|own| directory.attributes(own)).map_err(errno)
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
        if let Some(process_set) = self.process_set(inode) {
            // Opening the set's log with `>` may arrive as a change of size as well.
            return match (mode, uid, gid) {
                (None, None, None) => reply.attr(&TTL, &self.attr(process_set.attributes(inode.0))),
                _ => reply.error(Errno::EPERM),
            };
        }
        let changed = self.directory(inode.0).and_then(|(directory, inode)| {
            let changed = directory.server.tracefs().set_attributes(inode, mode, (uid, gid));
            changed.map(|own| directory.attributes(own)).map_err(errno)
        });
        match changed {
            Ok(attributes) => reply.attr(&TTL, &self.attr(attributes)),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = match self.process_set(inode) {
            Some(process_set) => Ok(process_set.list()),
            None => self.directory(inode.0).and_then(|(directory, inode)| {
                let listed = directory.server.tracefs().list(inode).map_err(errno)?;
                let outer = |own: Listing| Listing { inode: directory.outer(own.inode), ..own };
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
        if let Some(process_set) = self.process_set(parent) {
            let process_set = Arc::clone(process_set);
            // Attaching to a process may take a while, so a thread of its own does it.
            thread::spawn(move || match process_set.add(&name) {
                Ok(attributes) => reply.entry(&TTL, &attr(attributes, mounted), GENERATION),
                Err(error) => reply.error(errno(error)),
            });
            return;
        }
        let (directory, parent) = match self.directory(parent.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let (now, own) = (directory.server.due.ask(), Arc::clone(&directory));
        let asked = directory.waiting.ask(request.pid(), Err(Io::INTR), move |made| match made {
            Ok(made) => reply.entry(&TTL, &attr(own.attributes(made), mounted), GENERATION),
            Err(error) => reply.error(errno(error)),
        });
        directory.worker.send(move |server| {
            server.sync(now);
            if asked.begin() {
                let made = server.tracefs().make_directory(parent, &name);
                asked.answer(made);
            }
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Some(name) = utf8(name).map(str::to_owned) else { return reply.error(Errno::ENOENT) };
        if let Some(process_set) = self.process_set(parent) {
            let process_set = Arc::clone(process_set);
            thread::spawn(move || match process_set.remove(&name) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            });
            return;
        }
        let (directory, parent) = match self.directory(parent.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let now = directory.server.due.ask();
        let asked = directory.waiting.ask(request.pid(), Err(Io::INTR), |removed| empty(reply, removed));
        directory.worker.send(move |server| {
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
        if let Some(process_set) = self.process_set(inode) {
            process_set.open(flags);
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        let (directory, inode) = match self.directory(inode.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        // Requests that arrive together wait together.
        let (now, own) = (directory.server.due.ask(), Arc::clone(&directory));
        let asked = directory.waiting.ask(request.pid(), Err(Io::INTR), move |opened| match opened {
            Ok(handle) => {
                own.open();
                // All sizes are 0, and every write has to arrive as it was made: no page cache.
                reply.opened(FileHandle(own.outer(handle)), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(errno(error)),
        });
        directory.worker.send(move |server| {
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
        if let Some(process_set) = self.process_set(inode) {
            return reply.data(&process_set.read(offset, size as usize));
        }
        let (directory, handle) = match self.directory(handle.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let waits = !OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::NONBLOCK);
        let read = directory.server.tracefs().read(handle, offset, size as usize, waits);
        match read {
            Ok(Read::Data(data)) => {
                reply.data(&data);
                directory.server.tracefs().read_ahead(handle, size as usize);
            }
            Ok(Read::Wait) if !waits => reply.error(Errno::EAGAIN),
            Ok(Read::Wait) => directory.waiting.read(handle, size as usize, request.pid(), reply),
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
        if self.process_set(inode).is_some() {
            // Opening the log may have cleared it; written data are accepted and ignored.
            return reply.written(data.len() as u32);
        }
        let (directory, handle) = match self.directory(handle.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let (_, inode) = match self.directory(inode.0) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let (tid, now) = (request.pid(), monotonic_ns());
        let answer = |written: Result<usize, Io>| match written {
            Ok(taken) => reply.written(taken as u32),
            Err(error) => reply.error(errno(error)),
        };
        // The process itself may write the marker while its code is being changed, so this write
        // does not wait for the worker.
        let is_mark = directory.server.tracefs().is_marker(inode);
        if is_mark {
            let written = directory.server.tracefs().write(handle, data, tid, &comm(tid), now);
            return answer(written);
        }
        let (data, due) = (data.to_vec(), directory.server.due.ask());
        let asked = directory.waiting.ask(tid, Err(Io::INTR), answer);
        directory.worker.send(move |server| {
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
        let found = if self.process_set(inode).is_some() { None } else { self.directories.find(handle.0) };
        let Some((directory, handle)) = found else { return reply.ok() };
        if !directory.server.tracefs().is_written(handle, request.pid()) {
            return reply.ok();
        }
        // The file is closed whatever the answer is.
        let asked = directory.waiting.ask(request.pid(), Ok(()), |flushed| empty(reply, flushed));
        directory.worker.send(move |server| {
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
        let found = if self.process_set(inode).is_some() { None } else { self.directories.find(handle.0) };
        let Some((directory, handle)) = found else { return reply.ok() };
        directory.server.forget_poll(handle);
        let (own, directories) = (Arc::clone(&directory), Arc::clone(&self.directories));
        directory.worker.send(move |server| {
            server.tracefs().release(handle);
            // No process waits for an error here.
            let _ = worker::carry_out(server);
            directories.close(&own);
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
        let found = if self.process_set(inode).is_some() { None } else { self.directories.find(handle.0) };
        let Some((directory, handle)) = found else { return reply.poll(events) };
        let readable = directory.server.tracefs().is_readable(handle);
        let reading = PollEvents::POLLIN | PollEvents::POLLRDNORM;
        if !readable && flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY) {
            directory.server.poll(handle, notifier);
        }
        let ready = if readable { reading } else { PollEvents::empty() };
        reply.poll(events & (ready | PollEvents::POLLOUT | PollEvents::POLLWRNORM));
    }
}

fn comm(tid: u32) -> String {
    fs::read_to_string(format!("/proc/{tid}/comm")).map(|comm| comm.trim_end().to_owned()).unwrap_or_default()
}

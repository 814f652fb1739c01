//! Requests of the kernel's FUSE, handed to the directory.

use super::server::Server;
use super::waiting::Waiting;
use super::worker::{self, Worker};
use calltap_tracefs::{Attributes, Read};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

/// The kernel asks again each time: instances come and go.
const TTL: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

/// The directory as a file system.
pub struct Files {
    server: Arc<Server>,
    worker: Worker,
    waiting: Arc<Waiting>,
    mounted: SystemTime,
}

fn errno(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

fn utf8(name: &OsStr) -> Option<&str> {
    name.to_str()
}

impl Files {
    /// Of a server.
    pub fn new(server: Arc<Server>) -> Files {
        let (worker, waiting) = (Worker::new(&server), Waiting::new(&server));
        Files { server, worker, waiting, mounted: SystemTime::now() }
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

/// CLOCK_MONOTONIC.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Opening with `>` is what clears: a truncation later changes nothing, and the two must be told apart.
        config
            .add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC)
            .map_err(|_| io::Error::other("the kernel's FUSE cannot tell how a file is opened"))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = utf8(name).ok_or(rustix::io::Errno::NOENT);
        match found.and_then(|name| self.server.tracefs().lookup(parent.0, name)) {
            Ok(attributes) => reply.entry(&TTL, &self.attr(attributes), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.server.tracefs().attributes(inode.0) {
            Ok(attributes) => reply.attr(&TTL, &self.attr(attributes)),
            Err(error) => reply.error(errno(error)),
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
        match self.server.tracefs().set_attributes(inode.0, mode, (uid, gid)) {
            Ok(attributes) => reply.attr(&TTL, &self.attr(attributes)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.server.tracefs().list(inode.0);
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return reply.error(errno(error)),
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

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let Some(name) = utf8(name).map(str::to_owned) else { return reply.error(Errno::EINVAL) };
        let (mounted, now) = (self.mounted, self.server.due.ask());
        self.worker.send(move |server| {
            server.sync(now);
            let made = server.tracefs().make_directory(parent.0, &name);
            match made {
                Ok(attributes) => reply.entry(&TTL, &attr(attributes, mounted), GENERATION),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Some(name) = utf8(name).map(str::to_owned) else { return reply.error(Errno::ENOENT) };
        let now = self.server.due.ask();
        self.worker.send(move |server| {
            server.sync(now);
            let removed = server.tracefs().remove_directory(parent.0, &name);
            match removed.and_then(|()| worker::carry_out(server)) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
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

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // (Those who come together wait together.)
        let (flags, now) = (OFlags::from_bits_retain(flags.0 as u32), self.server.due.ask());
        self.worker.send(move |server| {
            server.sync(now);
            worker::refresh(server, Some(inode.0));
            worker::rename(server);
            let opened = server.tracefs().open(inode.0, flags);
            match opened {
                // Sizes are 0, and every write shall come as it was made.
                Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.server.tracefs().read(handle.0, offset, size as usize);
        match read {
            Ok(Read::Data(data)) => reply.data(&data),
            Ok(Read::Wait) if OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::NONBLOCK) => {
                reply.error(Errno::EAGAIN);
            }
            Ok(Read::Wait) => self.waiting.add(handle.0, size as usize, request.pid(), reply),
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
        let (data, tid, now) = (data.to_vec(), request.pid(), now_ns());
        let is_mark = self.server.tracefs().is_marker(inode.0);
        let asked = if is_mark { 0 } else { self.server.due.ask() };
        let write = move |server: &Server| {
            if !is_mark {
                server.sync(asked);
            }
            let comm = if is_mark { comm(tid) } else { String::new() };
            let written = server.tracefs().write(handle.0, &data, tid, &comm, now);
            let done =
                written.and_then(
                    |taken| if is_mark { Ok(taken) } else { worker::carry_out(server).map(|()| taken) },
                );
            match done {
                Ok(taken) => reply.written(taken as u32),
                Err(error) => reply.error(errno(error)),
            }
        };
        // The process itself may write there while it is being changed: then it must not wait for that.
        if is_mark { write(&self.server) } else { self.worker.send(write) }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // (A program that becomes another closes files while its memory is locked: whoever looks at it then waits for us.)
        if !self.server.tracefs().is_written(handle.0) {
            return reply.ok();
        }
        self.worker.send(move |server| {
            let flushed = server.tracefs().flush(handle.0);
            match flushed.and_then(|()| worker::carry_out(server)) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.server.forget_poll(handle.0);
        self.worker.send(move |server| {
            server.tracefs().release(handle.0);
            // (Nobody is told of errors here.)
            let _ = worker::carry_out(server);
            reply.ok();
        });
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        notifier: PollNotifier,
        events: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let readable = self.server.tracefs().is_readable(handle.0);
        let reading = PollEvents::POLLIN | PollEvents::POLLRDNORM;
        if !readable && flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY) {
            self.server.poll(handle.0, notifier);
        }
        let ready = if readable { reading } else { PollEvents::empty() };
        reply.poll(events & (ready | PollEvents::POLLOUT | PollEvents::POLLWRNORM));
    }
}

fn comm(tid: u32) -> String {
    fs::read_to_string(format!("/proc/{tid}/comm")).map(|comm| comm.trim_end().to_owned()).unwrap_or_default()
}

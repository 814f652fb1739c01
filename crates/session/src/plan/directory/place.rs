//! The places of session directories, and access to the files in them. Another user may own them,
//! and may have put anything under their names.

use crate::error::Error;
use calltap_process::target::Target;
use rustix::fs::{FlockOperation, Mode, OFlags, StatVfsMountFlags, flock, openat, statvfs};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// The ST_NOEXEC flag of statvfs.
const NOEXEC: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(8);
/// Free bytes that a place must have.
const MIN_FREE: u64 = 32 << 20;

/// A directory in which session directories may lie.
#[derive(Debug)]
pub(super) struct Base {
    /// Path through which calltap reaches it, even if its name changes.
    pub(super) via: PathBuf,
    /// Path in the view of the traced process.
    pub(super) inside: PathBuf,
    /// The directory in another root, kept open for `via`.
    _open: Option<File>,
}

impl Base {
    /// Returns a directory in calltap's own root.
    pub(super) fn own(path: PathBuf) -> Base {
        Base { via: path.clone(), inside: path, _open: None }
    }

    /// Clones this, with a descriptor of its own.
    pub(super) fn again(&self) -> io::Result<Base> {
        let open = self._open.as_ref().map(File::try_clone).transpose()?;
        let via = open.as_ref().map(|open| PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())));
        Ok(Base { via: via.unwrap_or_else(|| self.via.clone()), inside: self.inside.clone(), _open: open })
    }

    /// Returns the candidates in a process's root.
    ///
    /// The process's root is not trusted: each directory is opened in the one before, and a
    /// symbolic link is refused, as it would lead into calltap's own root. For a process that has
    /// changed its root, which may have none of these directories, that root is the last candidate.
    pub(super) fn of(target: &Target) -> impl Iterator<Item = Base> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(target.path(Path::new("/")), flags, Mode::empty()).ok();
        let all = [&["dev", "shm"][..], &["tmp"], &["var", "tmp"]].map(|names| {
            let step = |from: BorrowedFd<'_>, name: &str| {
                openat(from, name, flags | OFlags::NOFOLLOW, Mode::empty()).ok()
            };
            let (first, more) = names.split_first()?;
            let first = step(root.as_ref()?.as_fd(), first)?;
            let open = more.iter().try_fold(first, |from, name| step(from.as_fd(), name))?;
            let via = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
            let inside = [&["/"][..], names].concat().iter().collect();
            Some(Base { via, inside, _open: Some(open.into()) })
        });
        let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let inside = target.path(Path::new("/"));
        let is_own = fs::metadata(&inside).map(id).ok() == fs::metadata("/").map(id).ok();
        let changed = root.filter(|_| !is_own).map(|root| {
            let via = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
            Base { via, inside: "/".into(), _open: Some(root.into()) }
        });
        all.into_iter().flatten().chain(changed)
    }
}

/// Returns the first place that can be written to, allows execution, and has a name that LD_PRELOAD
/// can carry.
pub(super) fn usable(mut candidates: impl Iterator<Item = Base>, tried: &str) -> Result<Base, Error> {
    let mut is_foreign = false;
    let usable = |base: &Base| {
        let name = base.inside.as_os_str().as_encoded_bytes();
        !name.iter().any(|byte| matches!(byte, b':' | b' '))
            && rustix::fs::access(&base.via, rustix::fs::Access::WRITE_OK).is_ok()
            && statvfs(&base.via).is_ok_and(|fs| {
                !fs.f_flag.contains(NOEXEC) && fs.f_bavail.saturating_mul(fs.f_frsize) >= MIN_FREE
            })
            && {
                let is_here = has_no_id(base);
                is_foreign |= is_here;
                !is_here
            }
    };
    let found = candidates.find(usable);
    let why = match is_foreign {
        true => {
            "they are file systems of a user namespace in which this user has no id: enter that namespace first (nsenter --user --preserve-credentials --target PID)"
        }
        false => "none is writable, allows execution and has 32 MB free",
    };
    found.ok_or_else(|| Error::Directory {
        path: PathBuf::from("/dev/shm"),
        source: io::Error::other(format!("no directory for the session's files (tried {tried}): {why}")),
    })
}

/// Whether this user can own no file in a directory: a file system that was mounted in a user
/// namespace only has files of users who have an id there.
fn has_no_id(base: &Base) -> bool {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    matches!(rustix::fs::open(&base.via, flags, Mode::RUSR), Err(Errno::OVERFLOW))
}

/// Returns the end of a directory's name: random, so that no other user can take the name first.
pub(super) fn unforeseen() -> Result<String, Error> {
    let mut random = [0; 8];
    let source = "the system's random numbers";
    getrandom(&mut random, GetRandomFlags::empty()).map_err(|errno| Error::system(source, errno.into()))?;
    Ok(format!("{:016x}", u64::from_le_bytes(random)))
}

/// A session's directory, accessed through an open descriptor. It belongs to the traced process's
/// user, who is not trusted and may change what its name refers to.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    /// Path for removing it.
    pub(super) path: PathBuf,
    /// Path in the view of the traced process.
    pub(super) inside: PathBuf,
    /// Path through the open descriptor.
    pub(super) via: PathBuf,
    pub(super) directory: File,
    _base: Base,
}

/// Maximum size of a small file: an answer lists all functions of a program.
pub(super) const SMALL: u64 = 64 << 20;

impl OpenDirectory {
    /// Whether the directory was removed.
    pub(super) fn is_removed(&self) -> bool {
        self.directory.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Whether a process holds the directory's lock.
    pub(super) fn is_locked(&self) -> bool {
        let is_held = |lock: File| flock(lock, FlockOperation::NonBlockingLockExclusive).is_err();
        self.file("lock").is_ok_and(is_held)
    }

    pub(super) fn open(base: Base, name: &str) -> io::Result<OpenDirectory> {
        OpenDirectory::open_or(base, name, |_| ())
    }

    /// Opens a directory that was just made, and removes it if that fails, as without descriptors.
    pub(super) fn open_new(base: Base, name: &str) -> io::Result<OpenDirectory> {
        OpenDirectory::open_or(base, name, |path| drop(fs::remove_dir(path)))
    }

    fn open_or(base: Base, name: &str, otherwise: impl FnOnce(&Path)) -> io::Result<OpenDirectory> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let (path, inside) = (base.via.join(name), base.inside.join(name));
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let directory = directory.inspect_err(|_| otherwise(&path))?;
        let via = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        Ok(OpenDirectory { path, inside, via, directory, _base: base })
    }

    pub(super) fn error(&self, name: &str, source: io::Error) -> Error {
        Error::Directory { path: self.inside.join(name), source }
    }

    /// Opens a file for reading and writing.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        open_file(&self.via, name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{name}.new");
        let _ = fs::remove_file(self.via.join(&new));
        self.create(&new)?.write_all(bytes)?;
        fs::rename(self.via.join(new), self.via.join(name))
    }

    /// Creates a file that belongs to the directory's owner.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.via.join(name))?;
        let (own, owner) = (file.metadata()?, self.directory.metadata()?);
        if own.uid() != owner.uid() {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        Ok(file)
    }

    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        read_small(&self.via.join(name))
    }
}

/// Reads a small file, of which another user may have made anything.
pub(super) fn read_small(path: &Path) -> io::Result<String> {
    // Opening a pipe for reading would block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut text = String::new();
    file.take(SMALL).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file of a directory for reading and writing.
pub(super) fn open_file(directory: &Path, name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = options.read(true).write(true).custom_flags(flags).open(directory.join(name))?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from(io::ErrorKind::InvalidData)) }
}

/// Returns the process that holds the lock of a file, from the kernel's list: `1: FLOCK ADVISORY
/// WRITE 4711 00:1b:17 0 EOF`.
pub(super) fn holder(lock: &File) -> Option<u32> {
    let meta = lock.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<&str>>()[..] {
        [_, "FLOCK", _, _, pid, of, ..] if of == file => pid.parse().ok(),
        _ => None,
    })
}

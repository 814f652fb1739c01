//! Where directories of sessions lie, and the files in them. Another user may own them, and may have put anything under their names.

use crate::error::Error;
use calltap_process::target::Target;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, openat, statvfs};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// The ST_NOEXEC flag of statvfs.
const NOEXEC: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(8);
/// Bytes a place must have free to be used.
const ENOUGH: u64 = 32 << 20;

/// Where directories of sessions may lie.
#[derive(Debug)]
pub(super) struct Base {
    /// As calltap reaches it, whatever becomes of its name.
    pub(super) via: PathBuf,
    /// As the traced process sees it.
    pub(super) inside: PathBuf,
    /// Another's is kept open for that.
    _open: Option<File>,
}

impl Base {
    /// In calltap's own root.
    pub(super) fn own(path: PathBuf) -> Base {
        Base { via: path.clone(), inside: path, _open: None }
    }

    /// The same once more.
    pub(super) fn again(&self) -> io::Result<Base> {
        let open = self._open.as_ref().map(File::try_clone).transpose()?;
        let via = open.as_ref().map(|open| PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())));
        Ok(Base { via: via.unwrap_or_else(|| self.via.clone()), inside: self.inside.clone(), _open: open })
    }

    /// Those in a process's root. The process's root is not trusted: each directory is opened in the one before, and a symbolic link is refused, as it would lead into calltap's own root.
    ///
    /// A process that has changed its root may have none of them there: then it is that root.
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

/// The first place that can be written to, allows execution, and has a name that LD_PRELOAD can carry.
pub(super) fn usable(mut candidates: impl Iterator<Item = Base>, tried: &str) -> Result<Base, Error> {
    let usable = |base: &Base| {
        let name = base.inside.as_os_str().as_encoded_bytes();
        !name.iter().any(|byte| matches!(byte, b':' | b' '))
            && rustix::fs::access(&base.via, rustix::fs::Access::WRITE_OK).is_ok()
            && statvfs(&base.via).is_ok_and(|fs| {
                !fs.f_flag.contains(NOEXEC) && fs.f_bavail.saturating_mul(fs.f_frsize) >= ENOUGH
            })
    };
    candidates.find(usable).ok_or_else(|| Error::Directory {
        path: PathBuf::from("/dev/shm"),
        source: io::Error::other(format!(
            "no writable directory with 32 MB free that allows execution (tried {tried})"
        )),
    })
}

/// A session's directory. It belongs to the traced process's user, which is not trusted: whatever that user does to its name, this is the directory that was
/// looked at.
#[derive(Debug)]
pub(super) struct Place {
    /// To remove it.
    pub(super) path: PathBuf,
    /// As the traced process sees it.
    pub(super) inside: PathBuf,
    /// By way of the open file.
    pub(super) via: PathBuf,
    pub(super) directory: File,
    _base: Base,
}

/// Small files are no larger than this: an answer lists all functions of a program.
pub(super) const SMALL: u64 = 64 << 20;

impl Place {
    pub(super) fn open(base: Base, name: &str) -> io::Result<Place> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let (path, inside) = (base.via.join(name), base.inside.join(name));
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        let via = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        Ok(Place { path, inside, via, directory, _base: base })
    }

    pub(super) fn error(&self, name: &str, source: io::Error) -> Error {
        Error::Directory { path: self.inside.join(name), source }
    }

    /// Opens a file to read and write.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        open_file(&self.via, name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{name}.new");
        let _ = fs::remove_file(self.via.join(&new));
        self.create(&new)?.write_all(bytes)?;
        fs::rename(self.via.join(new), self.via.join(name))
    }

    /// A new file, of whom the directory belongs to.
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
    // Opening a pipe to read would wait for ever.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut text = String::new();
    file.take(SMALL).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file of a directory to read and write.
pub(super) fn open_file(directory: &Path, name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = options.read(true).write(true).custom_flags(flags).open(directory.join(name))?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from(io::ErrorKind::InvalidData)) }
}

//! The session directory: the files the agent finds beside itself.
//!
//! It lies on a file system in memory that allows execution, is private to the user, is held by a lock while the recorder lives, and is
//! removed at the end. What a killed recorder left behind is removed by the next one. For a process that runs already it lies where that process
//! can find it, and belongs to its user.

use crate::journal::Journal;
use crate::target::Target;
use crate::{Error, agent};
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

/// The ST_NOEXEC flag of statvfs.
const NOEXEC: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(8);
/// Bytes a place must have free to be used.
const ENOUGH: u64 = 32 << 20;

const PREFIX: &str = "calltap-";

/// A session's files; dropping it removes them (the program keeps what it has mapped).
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Its path as the traced process sees it.
    inside: PathBuf,
    agent: &'static str,
    /// Held for its lock.
    _lock: File,
    /// Rings and tables.
    pub control: File,
    /// Stubs and hops.
    pub code: File,
    /// What was done to the processes.
    pub journal: Journal,
}

impl Directory {
    /// Makes the directory, with a control file of `control_size` bytes, for a program that will be started.
    pub fn create(control_size: u64, code_size: u64) -> Result<Directory, Error> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let candidates = [Some("/dev/shm".into()), runtime, Some("/tmp".into()), Some("/var/tmp".into())];
        let place = place(candidates.into_iter().flatten(), "/dev/shm, XDG_RUNTIME_DIR, /tmp, /var/tmp")?;
        Directory::make(&place, &place, "agent.so", control_size, code_size)
    }

    /// Makes it for a running process.
    pub fn create_for(target: &Target, control_size: u64, code_size: u64) -> Result<Directory, Error> {
        let candidates = ["/dev/shm", "/tmp", "/var/tmp"].map(|inside| target.path(Path::new(inside)));
        let place = place(candidates.into_iter(), "the process's /dev/shm, /tmp, /var/tmp")?;
        let inside = Path::new("/").join(place.strip_prefix(target.path(Path::new("/"))).unwrap_or(&place));
        let directory = Directory::make(&place, &inside, "attached.so", control_size, code_size)?;
        let (uid, gid) =
            target.owner().map_err(|source| Error::Directory { path: directory.path.clone(), source })?;
        if uid != rustix::process::geteuid().as_raw() {
            for name in ["", "attached.so", "control", "code"] {
                let path = directory.path.join(name);
                chown(&path, Some(uid), Some(gid)).map_err(|source| Error::Directory { path, source })?;
            }
        }
        Ok(directory)
    }

    fn make(
        place: &Path,
        inside: &Path,
        agent: &'static str,
        control_size: u64,
        code_size: u64,
    ) -> Result<Directory, Error> {
        remove_stale(place);
        let own = rustix::process::getpid();
        let name = (0..1000u32)
            .map(|n| format!("{PREFIX}{own}-{n}"))
            .find(|name| DirBuilder::new().mode(0o700).create(place.join(name)).is_ok())
            .ok_or_else(|| Error::Directory {
                path: place.to_owned(),
                source: io::Error::from(io::ErrorKind::PermissionDenied),
            })?;
        let path = place.join(&name);
        let guard = RemoveOnError(Some(&path));
        let at = |name: &str| path.join(name);
        let file = |name: &str, mode: u32| {
            let open =
                || OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(at(name));
            open().map_err(|source| Error::Directory { path: at(name), source })
        };
        let lock = file("lock", 0o600)?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| Error::Directory { path: at("lock"), source: errno.into() })?;
        drop(file(agent, 0o700)?);
        fs::write(at(agent), agent::IMAGE).map_err(|source| Error::Directory { path: at(agent), source })?;
        let (control, code) = (file("control", 0o600)?, file("code", 0o700)?);
        let journal = Journal::new(file("journal", 0o600)?);
        let sized = |name, file: &File, size| {
            file.set_len(size).map_err(|source| Error::Directory { path: at(name), source })
        };
        sized("control", &control, control_size)?;
        sized("code", &code, code_size)?;
        guard.keep();
        let inside = inside.join(name);
        Ok(Directory { path, inside, agent, _lock: lock, control, code, journal })
    }

    /// Inode of the code file, as it appears in a process's mappings.
    pub fn code_inode(&self) -> u64 {
        self.code.metadata().map_or(0, |meta| meta.ino())
    }

    /// The agent, as the traced process finds it.
    pub fn agent(&self) -> PathBuf {
        self.inside.join(self.agent)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

struct RemoveOnError<'a>(Option<&'a Path>);

impl RemoveOnError<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for RemoveOnError<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// The first place that can be written to, allows execution, and has a name that LD_PRELOAD can carry.
fn place(candidates: impl Iterator<Item = PathBuf>, tried: &str) -> Result<PathBuf, Error> {
    let usable = |path: &PathBuf| {
        let name = path.as_os_str().as_encoded_bytes();
        !name.iter().any(|byte| matches!(byte, b':' | b' '))
            && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
            && statvfs(path).is_ok_and(|fs| {
                !fs.f_flag.contains(NOEXEC) && fs.f_bavail.saturating_mul(fs.f_frsize) >= ENOUGH
            })
    };
    let mut candidates = candidates;
    candidates.find(usable).ok_or_else(|| Error::Directory {
        path: PathBuf::from("/dev/shm"),
        source: io::Error::other(format!(
            "no writable directory with 32 MB free that allows execution (tried {tried})"
        )),
    })
}

/// Removes directories of our own whose lock nobody holds.
fn remove_stale(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = OpenOptions::new().read(true).write(true).open(path.join("lock")) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

//! The session directory: the files the agent finds beside itself.
//!
//! It lies on a file system in memory that allows execution, is private to the user, is held by a lock while the recorder lives, and is
//! removed at the end. What a killed recorder left behind is removed by the next one.

use crate::Error;
use crate::agent;
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
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
    /// Held for its lock.
    _lock: File,
    /// Rings and tables.
    pub control: File,
    /// Stubs and hops.
    pub code: File,
}

impl Directory {
    /// Makes the directory with a control file of `control_size` bytes.
    pub fn create(control_size: u64, code_size: u64) -> Result<Directory, Error> {
        let place = place()?;
        remove_stale(&place);
        let path = (0..1000u32)
            .map(|n| place.join(format!("{PREFIX}{}-{n}", rustix::process::getpid())))
            .find(|path| DirBuilder::new().mode(0o700).create(path).is_ok())
            .ok_or_else(|| Error::Directory {
                path: place.clone(),
                source: io::Error::from(io::ErrorKind::PermissionDenied),
            })?;
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
        drop(file("agent.so", 0o700)?);
        fs::write(at("agent.so"), agent::IMAGE)
            .map_err(|source| Error::Directory { path: at("agent.so"), source })?;
        let (control, code) = (file("control", 0o600)?, file("code", 0o700)?);
        let sized = |name, file: &File, size| {
            file.set_len(size).map_err(|source| Error::Directory { path: at(name), source })
        };
        sized("control", &control, control_size)?;
        sized("code", &code, code_size)?;
        guard.keep();
        Ok(Directory { path, _lock: lock, control, code })
    }

    /// The path that goes into LD_PRELOAD.
    pub fn agent(&self) -> PathBuf {
        self.path.join("agent.so")
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
fn place() -> Result<PathBuf, Error> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let candidates = [
        Some(PathBuf::from("/dev/shm")),
        runtime,
        Some(PathBuf::from("/tmp")),
        Some(PathBuf::from("/var/tmp")),
    ];
    let usable = |path: &PathBuf| {
        let name = path.as_os_str().as_encoded_bytes();
        !name.iter().any(|byte| matches!(byte, b':' | b' '))
            && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
            && statvfs(path).is_ok_and(|fs| {
                !fs.f_flag.contains(NOEXEC) && fs.f_bavail.saturating_mul(fs.f_frsize) >= ENOUGH
            })
    };
    candidates.into_iter().flatten().find(usable).ok_or_else(|| Error::Directory {
        path: PathBuf::from("/dev/shm"),
        source: io::Error::other(
            "no writable directory with 32 MB free that allows execution (tried /dev/shm, XDG_RUNTIME_DIR, /tmp, /var/tmp)",
        ),
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

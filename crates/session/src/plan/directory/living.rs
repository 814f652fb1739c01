//! Tells directories of living sessions and processes from stale directories, and removes stale
//! ones.

use super::place::{open_file, read_small};
use calltap_abi::{PROCESS_MAX, PROCESSES_AT, ProcessEntry};
use calltap_process::agent::{self, ATTACHED_FILE, FOLLOWED_FILE};
use calltap_process::proc;
use calltap_process::proc::SessionId;
use calltap_process::target::Target;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const PREFIX: &str = "calltap-";
/// Prefix of a directory's name before the id and the start time of a process that is attached to.
pub(super) const OF: &str = "calltap.";
/// Name of the file that identifies the process of a started program's session, whose directory's
/// name does not.
pub(super) const PROCESS: &str = "process";
/// Name of the file with the path of the first process's program.
pub(super) const PROGRAM: &str = "program";

/// Returns the first part of the name of a process's directory.
pub(super) fn prefix_of(target: &Target) -> String {
    format!("{OF}{}.{}.{}.", target.pid, target.start_time, pid_namespace())
}

/// Returns the inode of calltap's own pid namespace.
pub(super) fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

/// Whether the process lives that a directory of this name belongs to. A process about which
/// nothing can be read, as without a free descriptor, counts as living.
pub(super) fn is_of_living(name: &str) -> bool {
    let mut words = name.strip_prefix(OF).unwrap_or_default().split('.').map(str::parse::<u64>);
    match (words.next(), words.next(), words.next()) {
        // Processes of another container cannot be looked up.
        (Some(Ok(_)), Some(Ok(_)), Some(Ok(namespace))) if namespace != pid_namespace() => true,
        (Some(Ok(pid)), Some(Ok(start_time)), _) => match Target::of_child(pid as u32) {
            Some(target) => target.start_time == start_time && target.lives(),
            None => proc::place(pid as u32).try_exists().unwrap_or(true),
        },
        _ => false,
    }
}

/// Returns the processes that have a session in a place of calltap's own root. A process with
/// another root has its session there.
pub(crate) fn of_living() -> Vec<u32> {
    let places = ["/dev/shm", "/tmp", "/var/tmp"].into_iter().flat_map(fs::read_dir);
    let names = places.flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        if name.starts_with(PREFIX) { read_small(&entry.path().join(PROCESS)).ok() } else { Some(name) }
    });
    let own = names.filter(|name| is_of_living(name));
    own.filter_map(|name| name.strip_prefix(OF)?.split('.').next()?.parse().ok()).collect()
}

/// Whether a path is that of a session's file, even of an ended one: the agent stays loaded from
/// the directory of the first session.
pub(crate) fn is_session_file(path: &Path) -> bool {
    let name = |path: Option<&Path>| Some(path?.file_name()?.to_string_lossy().into_owned());
    let directory = name(path.parent()).unwrap_or_default();
    let file = name(Some(path)).unwrap_or_default();
    let files = [agent::PRELOADED_FILE, ATTACHED_FILE, FOLLOWED_FILE, "control", "code"];
    (directory.starts_with(OF) || directory.starts_with(PREFIX))
        && files.contains(&file.trim_end_matches(" (deleted)"))
}

/// Whether a process lives that has mapped the files of a session without controller: the first
/// process of a started program, or a forked child.
pub(super) fn has_living(inside: &Path, name: &str) -> bool {
    let control = match open_file(inside, "control") {
        Ok(control) => control,
        Err(error) => return error.kind() != ErrorKind::NotFound,
    };
    if read_small(&inside.join(PROCESS)).is_ok_and(|own| is_of_living(&own)) {
        return true;
    }
    let inode = control.metadata().map_or(0, |meta| meta.ino());
    let identity = SessionId { name: name.into(), control: inode };
    let mut pid = [0; 4];
    let pids = (0..PROCESS_MAX).map_while(|index| {
        let at = PROCESSES_AT + index * size_of::<ProcessEntry>();
        control.read_exact_at(&mut pid, at as u64).ok()?;
        Some(u32::from_le_bytes(pid)).filter(|pid| *pid != 0)
    });
    let pids: Vec<u32> = pids.collect();
    // A child that has called no traced function since its fork is not in the table.
    let program = read_small(&inside.join(PROGRAM)).ok().map(PathBuf::from);
    !agent::who_maps(&identity, &pids, program.as_deref()).is_empty()
}

/// Whether a file is so new that its creator may not have locked it yet.
pub(super) fn is_new(file: &File, creation: Duration) -> bool {
    let age = file.metadata().and_then(|meta| meta.modified()).ok().and_then(|made| made.elapsed().ok());
    age.is_none_or(|age| age < creation)
}

/// Removes directories of this user whose lock no process holds.
pub(super) fn remove_stale(place: &Path, creation: Duration) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(PREFIX) && !name.starts_with(OF) || is_of_living(&name) {
            continue;
        }
        // The open directory is the one that is inspected, even if its name is reused. Another user
        // may have put anything there.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        let Ok(directory) = options.open(entry.path()) else { continue };
        let inside = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let lock = open_file(&inside, "lock");
        // A directory without a lock file is stale if its creator has ended.
        let free = match &lock {
            // The creator of a new lock file is about to lock it.
            Ok(lock) => {
                !is_new(lock, creation) && flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            }
            Err(_) => name.starts_with(OF),
        };
        let free = free && !has_living(&inside, &name);
        // The lock is held until everything is gone: a creator that was only slow then sees that.
        if free {
            for file in fs::read_dir(&inside).into_iter().flatten().flatten() {
                let is_directory = file.file_type().is_ok_and(|kind| kind.is_dir());
                let remove = if is_directory { fs::remove_dir_all::<PathBuf> } else { fs::remove_file };
                let _ = remove(file.path());
            }
            // Another directory under this name is not empty, so that removing it fails.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

//! The session directory: the files that the agent finds beside itself.
//!
//! It lies on a file system in memory that allows execution, is private to the user, is locked
//! while the recorder lives, and is removed at the end. The next recorder removes what a killed one
//! left. For a running process it lies where that process can find it, and belongs to the process's
//! user.

mod absent;
mod channel;
mod living;
mod mapped;
mod place;

pub(crate) use channel::RequestChannel;
pub(crate) use living::{is_session_file, of_living};

use crate::error::Error;
use crate::plan::journal::Journal;
use crate::plan::reason::NotSeen;
use calltap_process::Reason;
use calltap_process::agent::{self, ATTACHED_FILE, FOLLOWED_FILE, Image, PRELOADED_FILE};
use calltap_process::proc::SessionId;
use calltap_process::target::Target;
use living::{PREFIX, PROCESS, PROGRAM, has_living, prefix_of, remove_stale};
use place::{Base, OpenDirectory, holder, unforeseen, usable};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FILES: [&str; 4] = ["lock", "control", "code", "journal"];
/// Time by when all files of a new directory exist.
const CREATION: Duration = Duration::from_millis(100);
/// How long to ask which process holds a held lock: on a busy machine, the directory may just be in
/// creation.
const LOCKING: Duration = Duration::from_secs(1);
/// How long a controller that attaches at the same moment may take to see this one and give way.
const GIVING_WAY: Duration = Duration::from_secs(1);
/// How often a directory is created again that was removed meanwhile.
const TRIES: usize = 100;
/// How long to wait for another controller to release a session.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// A session's files. Dropping it removes them; the program keeps its mappings.
#[derive(Debug)]
pub(crate) struct Directory {
    place: OpenDirectory,
    agent: &'static str,
    keep: bool,
    /// Open for its lock.
    _lock: File,
    /// Control file: rings and tables.
    pub control: File,
    /// Stubs and veneers.
    pub code: File,
    /// The changes made to the processes.
    pub journal: Journal,
}

impl Directory {
    /// Creates the directory, with a control file of `control_size` bytes, for a program to start.
    pub(crate) fn create(control_size: u64, code_size: u64) -> Result<Directory, Error> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let candidates = [Some("/dev/shm".into()), runtime, Some("/tmp".into()), Some("/var/tmp".into())];
        let candidates = candidates.into_iter().flatten().map(Base::own);
        let base = usable(candidates, "/dev/shm, XDG_RUNTIME_DIR, /tmp, /var/tmp")?;
        remove_stale(&base.via, CREATION);
        again(|| Directory::create_in(Base::own(base.inside.clone()), control_size, code_size))
    }

    fn create_in(base: Base, control_size: u64, code_size: u64) -> Result<Directory, Error> {
        let name = format!("{PREFIX}{}-{}", rustix::process::getpid(), unforeseen()?);
        DirBuilder::new()
            .mode(0o700)
            .create(base.via.join(&name))
            .map_err(|source| Error::Directory { path: base.inside.join(&name), source })?;
        Directory::fill(base, &name, (PRELOADED_FILE, &agent::PRELOADED), control_size, code_size)
    }

    /// Creates the directory for a running process, which must have [none](Directory::open_for)
    /// yet.
    pub(crate) fn create_for(target: &Target, control_size: u64, code_size: u64) -> Result<Directory, Error> {
        again(|| Directory::create_once_for(target, control_size, code_size))
    }

    fn create_once_for(target: &Target, control_size: u64, code_size: u64) -> Result<Directory, Error> {
        let base = usable(Base::of(target), "the process's /dev/shm, /tmp, /var/tmp")?;
        remove_stale(&base.via, CREATION);
        let name = prefix_of(target) + &unforeseen()?;
        DirBuilder::new()
            .mode(0o700)
            .create(base.via.join(&name))
            .map_err(|source| Error::Directory { path: base.inside.join(&name), source })?;
        let directory =
            Directory::fill(base, &name, (ATTACHED_FILE, &agent::ATTACHED), control_size, code_size)?;
        if let Some(other) = directory.give_way(target) {
            // The other one waits until this directory is gone.
            drop(directory);
            return Err(busy(target, &other));
        }
        directory.is_for_program_of(target).map_err(|source| directory.place.error(PROGRAM, source))?;
        let owner = target.owner().map_err(|source| directory.place.error("", source))?;
        directory.give_to(owner)?;
        Ok(directory)
    }

    /// Gives the directory of a running process to the user and group as which a thread opens the
    /// files.
    pub(crate) fn give_to(&self, (uid, gid): (u32, u32)) -> Result<(), Error> {
        let present = self.place.directory.metadata().map_err(|source| self.place.error("", source))?;
        let is_first = present.uid() == rustix::process::geteuid().as_raw();
        if present.uid() == uid && (is_first || present.gid() == gid) {
            return Ok(());
        }
        // By descriptors: the present owner may have put other files under these names. The
        // directory comes last: from then on the next owner can do so.
        let agent = self.place.file(self.agent).map_err(|source| self.place.error(self.agent, source))?;
        let metadata = agent.metadata().map_err(|source| self.place.error(self.agent, source))?;
        let is_agent = metadata.nlink() == 1 && metadata.uid() == present.uid();
        let agent = Some(&agent).filter(|_| is_agent);
        for file in agent.into_iter().chain([&self.control, &self.code]) {
            fchown(file, Some(uid), Some(gid)).map_err(|source| self.place.error("", source))?;
        }
        chown(&self.place.via, Some(uid), Some(gid)).map_err(|source| self.place.error("", source))?;
        Ok(())
    }

    /// Decides between two calltaps that attach at the same moment: both create a directory before
    /// they look for others, so at least one sees the other.
    ///
    /// The one with the lesser name goes on once the other has given way. If the other does not, it
    /// had looked before this directory was created. Returns the other's, if this one gives way.
    fn give_way(&self, target: &Target) -> Option<OpenDirectory> {
        let start = Instant::now();
        let is_other = |place: &OpenDirectory| place.inside != self.place.inside;
        while let Some(other) = Directory::places_for(target).find(is_other) {
            let is_next = self.place.inside.file_name() < other.inside.file_name();
            if !is_next || start.elapsed() > GIVING_WAY {
                return Some(other);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }

    /// Returns the directory of a process that was attached to, if there is one.
    fn place_for(target: &Target) -> Option<OpenDirectory> {
        Directory::places_for(target).next()
    }

    /// Returns all candidates for the directory of a process, except those that belong to another
    /// user, who is not trusted.
    fn places_for(target: &Target) -> impl Iterator<Item = OpenDirectory> + '_ {
        let prefix = prefix_of(target);
        let named = move |base: Base| {
            let names =
                fs::read_dir(&base.via).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let own =
                names.filter_map(|name| name.into_string().ok().filter(|name| name.starts_with(&prefix)));
            let own: Vec<String> = own.collect();
            own.into_iter().filter_map(move |name| OpenDirectory::open(base.again().ok()?, &name).ok())
        };
        Base::of(target).flat_map(named).filter(|place| mapped::is_trusted(place, target))
    }

    /// Returns the directory of a process that was attached to or started.
    fn place_of(target: &Target) -> Option<OpenDirectory> {
        Directory::place_for(target).or_else(|| mapped::of(target))
    }

    /// Reads a small file in the directory of a process, whether it has a controller or not.
    pub(crate) fn peek(target: &Target, name: &str) -> Option<String> {
        Directory::place_of(target)?.read(name).ok()
    }

    /// Records which process was started with the agent inside: the files stay as long as that
    /// process lives, even without this calltap.
    pub(crate) fn belongs_to(&self, target: &Target) -> io::Result<()> {
        self.is_for_program_of(target)?;
        self.place.write(PROCESS, prefix_of(target).as_bytes())
    }

    /// Records the program, by which children of the first process are found after its end.
    fn is_for_program_of(&self, target: &Target) -> io::Result<()> {
        let program = target.program.as_ref().map_or(&b""[..], |program| program.as_os_str().as_bytes());
        self.place.write(PROGRAM, program)
    }

    /// Opens the directory of a process, if it has one. Waits a little for its controller to
    /// release it.
    pub(crate) fn open_for(target: &Target) -> Result<Option<Directory>, Error> {
        again(|| Directory::open_once_for(target))
    }

    fn open_once_for(target: &Target) -> Result<Option<Directory>, Error> {
        match Directory::place_of(target) {
            Some(place) => Directory::open_at(target, place),
            None => Ok(None),
        }
    }

    /// Opens the directory of a session that a process has inherited by fork, if the first process
    /// of the session has ended.
    pub(crate) fn open_inherited(target: &Target) -> Result<Option<Directory>, Error> {
        match mapped::inherited(target) {
            Some((_, Some(of))) => Err(target.refuse(Reason::Child { of }).into()),
            Some((place, None)) => Directory::open_at(target, place),
            None => Ok(None),
        }
    }

    /// Whether a process is the first one of the session.
    pub(crate) fn is_of(&self, target: &Target) -> bool {
        let name = self.place.inside.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(PREFIX) || name.starts_with(&prefix_of(target))
    }

    fn open_at(target: &Target, place: OpenDirectory) -> Result<Option<Directory>, Error> {
        let agent = if place.via.join(PRELOADED_FILE).exists() { PRELOADED_FILE } else { ATTACHED_FILE };
        // Files are missing if a controller was killed before it did anything, or after it had
        // undone everything.
        let incomplete = || FILES.iter().chain([&agent]).any(|name| !place.via.join(name).exists());
        if incomplete() {
            std::thread::sleep(CREATION);
            if incomplete() {
                // On a busy machine its creator may only be slow.
                if place.is_locked() {
                    return Err(busy(target, &place));
                }
                let _ = fs::remove_dir_all(&place.path);
                return Ok(None);
            }
        }
        let open = |name: &str| place.file(name).map_err(|source| place.error(name, source));
        let lock = open("lock")?;
        let start = Instant::now();
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if start.elapsed() > RELEASE_TIMEOUT {
                return Err(busy(target, &place));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The session ended before it was locked.
        if lock.metadata().is_ok_and(|meta| meta.nlink() == 0) {
            return Err(place.error("lock", io::ErrorKind::NotFound.into()));
        }
        let (control, code) = (open("control")?, open("code")?);
        let journal = Journal::new(open("journal")?);
        Ok(Some(Directory { place, agent, keep: true, _lock: lock, control, code, journal }))
    }

    /// Sets whether the files stay when this is dropped, for the next controller.
    pub(crate) fn keep(&mut self, keep: bool) {
        self.keep = keep;
    }

    /// Writes a small file, so that readers see the old or the new one.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.place.write(name, text.as_bytes())
    }

    /// Reads a small file.
    pub(crate) fn read(&self, name: &str) -> io::Result<String> {
        self.place.read(name)
    }

    fn fill(
        base: Base,
        name: &str,
        (agent, image): (&'static str, &'static Image),
        control_size: u64,
        code_size: u64,
    ) -> Result<Directory, Error> {
        check_size(control_size.max(code_size))?;
        let inside = base.inside.join(name);
        let place = match OpenDirectory::open_new(base, name) {
            Ok(place) => place,
            Err(source) => return Err(Error::Directory { path: inside, source }),
        };
        let file = |name: &str, mode: u32| {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(mode).open(place.via.join(name));
            file.map_err(|source| place.error(name, source))
        };
        let lock = file("lock", 0o600).inspect_err(|_| drop(fs::remove_dir(&place.path)))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| place.error("lock", errno.into()))?;
        // Another calltap may have taken a slow creator for dead, locked the directory, and removed
        // everything.
        if lock.metadata().is_ok_and(|meta| meta.nlink() == 0) {
            return Err(place.error("lock", io::ErrorKind::NotFound.into()));
        }
        // Only from here on: before, the name may already belong to another session's directory.
        let guard = RemoveOnError(Some(&place.path));
        file(agent, 0o700)?.write_all(image.bytes()).map_err(|source| place.error(agent, source))?;
        let (control, code) = (file("control", 0o600)?, file("code", 0o700)?);
        let journal = Journal::new(file("journal", 0o600)?);
        let sized = |name, file: &File, size| file.set_len(size).map_err(|source| place.error(name, source));
        sized("control", &control, control_size)?;
        sized("code", &code, code_size)?;
        guard.keep();
        Ok(Directory { place, agent, keep: false, _lock: lock, control, code, journal })
    }

    /// Replaces the agent's file, which no process has loaded yet.
    pub(crate) fn replace_agent(&self, image: &[u8]) -> Result<(), Error> {
        self.place.write(self.agent, image).map_err(|source| self.place.error(self.agent, source))
    }

    /// Writes the agent that followed programs load.
    pub(crate) fn prepare_to_follow(&self) -> Result<(), Error> {
        let bytes = agent::PRELOADED.bytes();
        self.place.write(FOLLOWED_FILE, bytes).map_err(|source| self.place.error(FOLLOWED_FILE, source))
    }

    /// Returns the path of the agent that followed programs load, in the view of the traced
    /// processes.
    pub(crate) fn agent_to_preload(&self) -> PathBuf {
        self.place.inside.join(FOLLOWED_FILE)
    }

    /// Checks that a process can open the files.
    pub(crate) fn is_seen_by(&self, target: &Target) -> Result<(), NotSeen> {
        let place = |error: io::Error| NotSeen::Unknown { why: error.to_string() };
        let file = |path: PathBuf| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
        if file(target.path(&self.agent_to_preload())) != file(self.place.via.join(FOLLOWED_FILE)) {
            return Err(NotSeen::NoDirectory { path: self.place.inside.display().to_string() });
        }
        // The agent finds the dynamic linker's list of objects through /proc.
        if !target.path(Path::new("/proc/self")).exists() {
            return Err(NotSeen::NoProc);
        }
        let owner = self.place.directory.metadata().map_err(place)?.uid();
        match target.owner().map_err(place)?.0 {
            0 => Ok(()),
            user if user == owner => Ok(()),
            _ => Err(NotSeen::OtherUser { owner }),
        }
    }

    /// Returns the inode of the code file, as it appears in a process's mappings.
    pub(crate) fn code_inode(&self) -> u64 {
        self.code.metadata().map_or(0, |meta| meta.ino())
    }

    /// Returns the identity of the session in the mappings of a process.
    pub(crate) fn identity(&self) -> SessionId {
        let control = self.control.metadata().map_or(0, |meta| meta.ino());
        SessionId { name: self.place.inside.file_name().unwrap_or_default().to_owned(), control }
    }

    /// Returns the path of the directory in the view of the traced process.
    pub(crate) fn inside(&self) -> &Path {
        &self.place.inside
    }

    /// Returns the path of the agent in the view of the traced process.
    pub(crate) fn agent(&self) -> PathBuf {
        self.place.inside.join(self.agent)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A forked child may outlive a program that calltap has started.
        let name = || self.identity().name.to_string_lossy().into_owned();
        if !self.keep && !has_living(&self.place.via, &name()) {
            let _ = fs::remove_dir_all(&self.place.path);
        }
    }
}

/// Returns why the session of a process is not available: another calltap holds its lock.
fn busy(target: &Target, place: &OpenDirectory) -> Error {
    // A creator takes the lock right after creating the file.
    let start = Instant::now();
    let mut by = place.file("lock").ok().as_ref().and_then(holder);
    while by.is_none() && start.elapsed() < LOCKING && !place.is_removed() {
        std::thread::sleep(Duration::from_millis(5));
        by = place.file("lock").ok().as_ref().and_then(holder);
    }
    let by = by.map_or_else(|| "another calltap".to_owned(), |pid| format!("PID {pid} (calltap)"));
    target
        .refuse(match place.via.join(PROCESS).exists() {
            true => Reason::Started { by },
            false => Reason::Recorded { by },
        })
        .into()
}

/// Checks that a session's file is within the limit of file sizes.
fn check_size(size: u64) -> Result<(), Error> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let Some(limit) = limit.filter(|limit| *limit < size) else { return Ok(()) };
    let why = format!(
        "the limit of file sizes (RLIMIT_FSIZE) is {} MB, and the shared memory of a session takes {} MB: raise it (ulimit -f unlimited)",
        limit >> 20,
        size.div_ceil(1 << 20)
    );
    Err(Error::system("cannot trace", io::Error::other(why)))
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

/// Creates or opens a directory, again if another calltap removes it before it is locked.
fn again<T>(mut make: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let is_gone = |made: &Result<T, Error>| matches!(made, Err(Error::Directory { source, .. }) if source.kind() == io::ErrorKind::NotFound);
    let mut made = make();
    for _ in 0..TRIES {
        if !is_gone(&made) {
            break;
        }
        made = make();
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn files_of_sessions_that_are_over_are_known() {
        for directory in ["/dev/shm/calltap.7.9.4026531836.00ff", "/tmp/calltap-7-00ff"] {
            for file in [PRELOADED_FILE, ATTACHED_FILE, FOLLOWED_FILE, "control", "code"] {
                for deleted in ["", " (deleted)"] {
                    let path = format!("{directory}/{file}{deleted}");
                    assert!(is_session_file(Path::new(&path)), "{path}");
                }
            }
        }
        assert!(!is_session_file(Path::new("/usr/lib/calltap-plugin/libm.so.6")));
        assert!(!is_session_file(Path::new("/home/user/code")));
    }

    // On a loaded machine, a creator may be delayed for any time.
    #[test]
    fn creator_retries_when_its_unlocked_directory_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let (over, base) = (AtomicBool::new(false), || Base::own(place.path().to_owned()));
        std::thread::scope(|scope| {
            let maker = || {
                for _ in 0..300 {
                    let made = again(|| Directory::create_in(base(), 4096, 4096)).unwrap();
                    let all = ["lock", PRELOADED_FILE, "control", "code", "journal"];
                    assert!(all.iter().all(|name| made.place.via.join(name).exists()));
                }
            };
            let makers = [scope.spawn(maker), scope.spawn(maker)];
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    remove_stale(place.path(), Duration::ZERO);
                }
            });
            let made = makers.map(|maker| maker.join());
            over.store(true, Ordering::Relaxed);
            assert!(made.iter().all(Result::is_ok));
        });
    }
}

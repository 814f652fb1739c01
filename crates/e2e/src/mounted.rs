//! Programs with their control directory mounted.

use crate::attached::{Resident, changed_text};
use crate::compile;
use crate::compile::{GCC, Program};
use crate::run::{HANGS, Run, calltap_run};
use crate::skipped::skipped;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Whether directories can be mounted; reports a skipped test if not.
pub fn have_fuse() -> bool {
    let there = OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !there {
        skipped("no /dev/fuse here");
    }
    there
}

/// A program with its mounted directory.
pub struct Mounted {
    /// The program.
    pub resident: Resident,
    /// The mounted directory.
    pub place: MountPoint,
    _program: Program,
}

impl Deref for Mounted {
    type Target = MountPoint;

    fn deref(&self) -> &MountPoint {
        &self.place
    }
}

/// The mount point of a directory, unmounted on drop.
pub struct MountPoint(pub tempfile::TempDir);

impl Mounted {
    /// Starts the resident program with an argument, and mounts its directory.
    pub fn new(how: &str) -> Mounted {
        let program = compile(GCC, &["resident.c"], &[]);
        let resident = Resident::start(&program, &[how]);
        Mounted::of(program, resident)
    }

    /// Mounts the directory of a running program.
    pub fn of(program: Program, resident: Resident) -> Mounted {
        let place = MountPoint(tempfile::tempdir().expect("a directory"));
        let mounted = Mounted { resident, place, _program: program };
        let run = mounted.mount();
        assert!(run.status.success() && run.stderr.is_empty(), "{}", run.stderr);
        mounted
    }

    /// Mounts the directory.
    pub fn mount(&self) -> Run {
        calltap_run(&["mount", "-p", &self.resident.pid.to_string(), &self.root().to_string_lossy()])
    }

    /// Unmounts the directory, and checks that the program runs on unchanged.
    pub fn end(mut self) {
        self.unmount();
        let start = Instant::now();
        while !changed_text(self.resident.pid).is_empty() && start.elapsed() < HANGS {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(changed_text(self.resident.pid), [""; 0]);
        assert!(self.resident.runs());
        let (status, output, errors) = self.resident.end();
        assert!(status.success(), "{status}: {output}{errors}");
    }

    /// Returns the id of the process that serves the directory.
    pub fn server(&self) -> u32 {
        let own = format!("mount\0--foreground\0-p\0{}\0", self.resident.pid);
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let serves = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(&own))
        };
        ids.find(serves).expect("a process serves it")
    }
}

impl MountPoint {
    /// Returns the path of the directory.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// `cat FILE`: returns the contents of a file.
    pub fn cat(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// `echo TEXT > FILE`: writes a file, and returns its error.
    pub fn try_echo(&self, text: &str, name: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(name))?;
        file.write_all(format!("{text}\n").as_bytes())
    }

    /// `echo TEXT > FILE`: writes a file, which must succeed.
    pub fn echo(&self, text: &str, name: &str) {
        self.try_echo(text, name).unwrap_or_else(|error| panic!("{text} > {name}: {error}"));
    }

    /// Whether the directory is mounted.
    pub fn is_mounted(&self) -> bool {
        is_mounted(self.root())
    }

    /// Waits until the directory is not mounted any more.
    pub fn await_unmounted(&self) {
        let start = Instant::now();
        while self.is_mounted() && start.elapsed() < HANGS {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!self.is_mounted(), "still mounted");
    }

    /// Unmounts the directory.
    pub fn unmount(&self) {
        let unmounted = Command::new("umount").arg(self.root()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "umount");
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(self.root()).status();
        }
    }
}

/// Whether a file system is mounted on a path.
pub fn is_mounted(place: &Path) -> bool {
    let place = format!(" {} ", place.display());
    fs::read_to_string("/proc/self/mounts").unwrap_or_default().contains(&place)
}

/// Starts a reader of a file, which is open when this function returns.
pub fn reader(path: &Path) -> Child {
    let mut cat = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().expect("cat");
    await_open(&mut cat, path);
    cat
}

/// Waits until a program has opened a file.
pub fn await_open(child: &mut Child, path: &Path) {
    let files = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let start = Instant::now();
    loop {
        let mut links = fs::read_dir(&files).into_iter().flatten().flatten().map(|entry| entry.path());
        if links.any(|link| fs::read_link(link).is_ok_and(|to| to == path)) {
            return;
        }
        let ended = child.try_wait().expect("a child of this process");
        assert!(ended.is_none(), "{}: not opened, but {ended:?}", path.display());
        assert!(start.elapsed() < HANGS, "{}: never opened", path.display());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for a child, and returns its status if it ends in time.
pub fn ends_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            _ if start.elapsed() > limit => return None,
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Waits until a condition is true.
pub fn await_that(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < HANGS, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

//! Detects that a traced program executes another program, so that calltap can suggest `--follow`.
//!
//! A thread polls `/proc` and sees most programs, with the names of their files. The kernel records
//! all programs, by shorter names, where it allows it. Elsewhere the exit record of the process
//! (its name, and whether it had children) reveals those that ended between two polls.

use crate::plan::program::Program;
use calltap_collect::shm::Shared;
use calltap_names::printable;
use calltap_process::memory::text::MemoryWatch;
use calltap_process::proc::{self, Ended};
use calltap_sched::Execs;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(40);
/// Time between two looks after a start or a fork: wrappers execute a program at once.
const FIRST_LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Time after a start or a fork during which looks are frequent.
const EARLY: Duration = Duration::from_millis(60);
/// Maximum number of frequent looks.
const EARLY_LOOKS: u32 = 2000;

/// Maximum length of the name of a process.
const NAME: usize = 15;

/// Facts about the process while the program runs in it.
struct Own {
    exe: PathBuf,
    name: String,
    /// The memory of the program: an execve replaces it, also by the same program's.
    memory: MemoryWatch,
}

/// Watches the executables of a program and its children.
pub(crate) struct ExecWatch {
    program: String,
    /// File names among its arguments.
    arguments: Vec<String>,
    pid: u32,
    own: Option<Own>,
    /// The programs that the process and its descendants execute, where the kernel records them.
    execs: Option<Execs>,
    /// Whether other programs are followed.
    is_followed: bool,
    /// The sentence for the user, once another program was seen.
    seen: Option<String>,
}

impl Own {
    fn new(pid: u32) -> Option<Own> {
        Some(Own { exe: proc::program(pid)?, name: proc::name(pid)?, memory: MemoryWatch::open(pid).ok()? })
    }
}

impl ExecWatch {
    /// The process must have executed its program, and run none of its code.
    pub(crate) fn new(program: &Program, pid: u32, is_followed: bool) -> ExecWatch {
        let file_name = |word: &OsString| Some(Path::new(word).file_name()?.to_string_lossy().into_owned());
        ExecWatch {
            program: program.name.clone(),
            arguments: program.command.iter().skip(1).filter_map(file_name).collect(),
            pid,
            own: Own::new(pid),
            execs: if is_followed { None } else { Execs::of(pid).ok() },
            is_followed,
            seen: None,
        }
    }

    /// Looks until another program was seen or `ended` is set, by a thread that is unparked then.
    pub(crate) fn watch(mut self, shared: &Shared, ended: &AtomicBool) -> ExecWatch {
        if self.is_followed {
            return self;
        }
        let (mut processes, mut changed, mut early_looks) = (0, Instant::now(), 0);
        while !ended.load(Acquire) {
            self.seen = self.poll();
            if self.seen.is_some() {
                break;
            }
            let count = shared.processes().end;
            if count != processes {
                (processes, changed) = (count, Instant::now());
            }
            let is_early = changed.elapsed() < EARLY && early_looks < EARLY_LOOKS;
            early_looks += u32::from(is_early);
            thread::park_timeout(if is_early { FIRST_LOOK_INTERVAL } else { LOOK_INTERVAL });
        }
        self
    }

    /// Returns a sentence for the user if another program runs.
    fn poll(&mut self) -> Option<String> {
        let (program, own) = (&self.program, self.own.as_mut()?);
        let (exe, name) = (proc::program(self.pid), proc::name(self.pid));
        let is_gone = own.memory.is_gone();
        // A process that has just ended has no memory either.
        let is_replaced = is_gone && MemoryWatch::open(self.pid).is_ok_and(|new| !new.is_gone());
        // Facts read before the memory was seen to be gone may be of either program.
        let new = if is_replaced { Some(proc::program(self.pid)?) } else { None };
        if new.as_ref() == Some(&own.exe) {
            return Some(format!(
                "{program} executed itself again, and was not traced from then on: record --follow traces it too"
            ));
        }
        if !is_gone {
            // The program may change its name, and rename or remove its executable.
            own.exe = exe?;
            own.name = name?;
        }
        let children = proc::place(self.pid).join(format!("task/{}/children", self.pid));
        let children = fs::read_to_string(children).unwrap_or_default();
        let mut children = children.split_whitespace().filter_map(|pid| proc::program(pid.parse().ok()?));
        let other = new.or_else(|| children.find(|exe| *exe != own.exe))?;
        let other = printable(&other.file_name()?.to_string_lossy()).into_owned();
        Some(format!(
            "{program} ran another program, {other}, which was not traced: record --follow traces it too"
        ))
    }

    /// Returns a sentence for the user about other programs, which [`Self::watch`] has seen or the
    /// ended process tells of. `processes` is the number of processes with events.
    pub(crate) fn sentence(mut self, ended: Option<&Ended>, processes: u32) -> Option<String> {
        if self.is_followed || self.seen.is_some() {
            return self.seen;
        }
        let (program, ended) = (&self.program, ended?);
        if let Some(name) = self.execs.as_mut().and_then(Execs::first) {
            return Some(format!(
                "{program} executed a program named {name}, which was not traced: record --follow traces it too"
            ));
        }
        let name = printable(&ended.name);
        // A program may also change its own name. A wrapper executes one of its arguments.
        let is_name = |word: &String| *word == name || name.len() == NAME && word.starts_with(&*name);
        let is_argument = || self.arguments.iter().any(is_name);
        if ended.name != self.own.as_ref()?.name && is_argument() {
            return Some(format!(
                "{program} ended under the name {name}: if that is another program, it was not traced; record --follow \
                 traces it too"
            ));
        }
        // Children that have executed no other program have events, if the program has any.
        (ended.had_children && processes == 1).then(|| {
            format!(
                "{program} ran other processes, of which nothing was recorded: record --follow traces the programs that \
                 they execute"
            )
        })
    }
}

//! Notices that a program executes another one, so that the user learns of `--follow`.

use crate::options::Options;
use calltap_process::memory::text::MemoryWatch;
use calltap_process::proc;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(40);

/// Watches the executables of a program and its children.
pub(crate) struct ExecWatch {
    /// Executables that are not reported: the recorder's, which a child has before its execve, and
    /// the program's.
    known: Vec<PathBuf>,
    program: String,
    pid: u32,
    looked: Instant,
    /// The memory of the program: an execve replaces it, also by the same program's.
    memory: Option<MemoryWatch>,
    /// Whether to stop looking: the other program was reported, or followed.
    done: bool,
}

impl ExecWatch {
    pub(crate) fn new(options: &Options, pid: u32, program: &str) -> ExecWatch {
        let known = proc::program(std::process::id()).into_iter().collect();
        ExecWatch {
            known,
            program: program.to_owned(),
            pid,
            looked: Instant::now(),
            memory: None,
            done: options.follow,
        }
    }

    /// Returns a sentence for the user, once.
    pub(crate) fn look(&mut self) -> Option<String> {
        if self.done || self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        let own = proc::program(self.pid)?;
        if self.known.len() < 2 {
            if !self.known.contains(&own) {
                self.known.push(own);
                self.memory = MemoryWatch::open(self.pid).ok();
            }
            return None;
        }
        // A process that has just ended has no memory either.
        let is_gone = self.memory.as_ref().is_some_and(MemoryWatch::is_gone);
        let is_replaced = is_gone && MemoryWatch::open(self.pid).is_ok();
        if is_replaced && self.known.contains(&own) {
            self.done = true;
            let program = &self.program;
            return Some(format!(
                "{program} executed itself again, and was not traced from then on: record --follow traces it too"
            ));
        }
        let children = proc::place(self.pid).join(format!("task/{}/children", self.pid));
        let children = fs::read_to_string(children).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| proc::program(pid.parse().ok()?));
        let other = [own].into_iter().chain(children).find(|exe| !self.known.contains(exe))?;
        self.done = true;
        let (program, other) = (&self.program, other.file_name()?.to_string_lossy().into_owned());
        Some(format!(
            "{program} ran another program, {other}, which was not traced: record --follow traces it too"
        ))
    }
}

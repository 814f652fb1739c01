//! `--patch-mode breakpoint`: what has to be so before breakpoints may be written to a program's code, and who steps over them.
//!
//! The agent handles SIGTRAP from the first such batch until we leave, and knows the sites from a list in shared memory. Both outlive a controller that is killed, so
//! what he leaves harms nobody, and the next one takes it away. A site stays in the list for as long as its module is loaded: a child that was forked in the middle of a batch has
//! breakpoints of its own.
//!
//! The kernel kills whoever meets a breakpoint with SIGTRAP blocked, ignored or not handled. That can be seen, and is looked at before every batch; it cannot be kept
//! from becoming so meanwhile. `docs/safety.md` says what is left.

use crate::attach::Stops;
use crate::patient::{Patient, explain};
use crate::planner::{PatchMode, Planner};
use crate::target::Target;
use crate::threads::{self, shares_memory};
use crate::{maps, proc};
use calltap_abi::remote;
use calltap_abi::traps::answer;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

const SIGTRAP: u64 = 1 << 4;
/// A thread that begins, or begins another, blocks all signals for a moment, in which it runs nothing but the C library: it is looked at again until then.
const MOMENT: Duration = Duration::from_millis(300);

/// Why there may be no breakpoints in a process, as far as the kernel tells. `before_us`: nobody of us handles SIGTRAP in it yet.
pub fn obstacle(pid: u32, before_us: bool) -> Option<String> {
    let start = Instant::now();
    threads::list(pid).into_iter().find_map(|tid| {
        loop {
            match obstacle_in(pid, tid, before_us) {
                Some((_, true)) if start.elapsed() < MOMENT => std::thread::sleep(Duration::from_millis(1)),
                found => return found.map(|(why, _)| why),
            }
        }
    })
}

/// The same, as far as one thread's status tells; and whether that may pass.
fn obstacle_in(pid: u32, tid: u32, before_us: bool) -> Option<(String, bool)> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let has = |set| proc::signals(&status, set).is_none_or(|signals| signals & SIGTRAP != 0);
    let is_not = |name, nothing| proc::field(&status, name).is_some_and(|value| value != nothing);
    let lasting = match () {
        () if is_not("TracerPid", "0") => "a debugger is attached to it, which takes SIGTRAP",
        () if is_not("Seccomp", "0") => {
            "it runs under a seccomp filter, which may forbid what handling SIGTRAP takes"
        }
        () if has("SigIgn") => "it ignores SIGTRAP",
        () if before_us && has("SigCgt") => "it handles SIGTRAP itself",
        () if has("SigBlk") => return Some((format!("its thread {tid} blocks SIGTRAP"), true)),
        () => return None,
    };
    Some((lasting.to_owned(), false))
}

/// What the agent has answered.
fn say(answer: u32) -> Option<String> {
    match answer {
        answer::WORKS => None,
        answer::HANDLED => Some("it handles or ignores SIGTRAP itself".into()),
        answer::NONE => Some("its agent did not answer".into()),
        other => {
            let signal = other.wrapping_sub(answer::BLOCKED);
            Some(format!("its handler of signal {signal} runs with SIGTRAP blocked"))
        }
    }
}

impl Planner<'_> {
    /// Has the next batches in a process go through breakpoints, if they are to and would change code that may be running. Otherwise, why not.
    pub(crate) fn arm(&mut self, index: u32, target: &Target, stops: &mut Stops) -> Result<(), String> {
        self.armed = None;
        let Some(process) = self.processes.get(&index).filter(|_| self.mode == PatchMode::Breakpoint) else {
            return Ok(());
        };
        let running = process.modules.iter().filter(|module| !module.fresh && !module.is_made());
        let sites = running.flat_map(|module| module.changes()).filter_map(|change| change.site.breakpoint());
        let sites: Vec<u64> = sites.map(|at| at.0).collect();
        if sites.is_empty() {
            return Ok(());
        }
        if let Some(why) = obstacle(target.pid, false) {
            return Err(why);
        }
        self.list_traps(&sites).map_err(|error| format!("they cannot be listed: {error}"))?;
        let control = self.shared.control();
        control.trap_answer.store(answer::NONE, Relaxed);
        handle(target, stops).map_err(|error| error.to_string())?;
        // (A thread may have begun, or blocked it, meanwhile.)
        let told = say(control.trap_answer.load(Relaxed)).or_else(|| obstacle(target.pid, false));
        if let Some(why) = told.or_else(|| self.other_of_its_memory(target.pid)) {
            return Err(why);
        }
        if let Some(text) = self.processes.get_mut(&index).and_then(|process| process.text.as_mut()) {
            text.after_int3 = true;
        }
        self.armed = Some(index);
        Ok(())
    }

    /// A process that shares another's memory has handlers of its own: one that was there before ours has not got it.
    fn other_of_its_memory(&self, pid: u32) -> Option<String> {
        let sharing = proc::who_maps(&self.directory.identity(), &[pid]).into_iter();
        let mut others = sharing.filter(|other| *other != pid && shares_memory(pid, *other));
        others.next().map(|other| format!("process {other} shares its memory"))
    }

    /// Lists more sites; those of modules that are gone go.
    fn list_traps(&self, more: &[u64]) -> std::io::Result<()> {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        let known: HashSet<u64> = modules.flat_map(|module| module.breakpoints()).collect();
        let old = self.shared.traps().into_iter().flat_map(|traps| traps.all());
        let mut all: Vec<u64> = old.filter(|at| known.contains(at)).chain(more.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        self.shared.list_traps(&all)
    }

    /// Modules are gone, and what lies there now is nobody's site.
    pub(crate) fn forget_traps(&self) {
        if self.shared.has_traps() {
            // (It is never longer than it was.)
            let _ = self.list_traps(&[]);
        }
    }
}

/// Has the agent handle SIGTRAP.
fn handle(target: &Target, stops: &mut Stops) -> Result<(), crate::Error> {
    let mut patient = Patient::new(target)?;
    let mut thread = patient.any_thread()?;
    patient.regions = maps::read(target.pid).unwrap_or_default();
    let done = patient.remote(&mut thread, remote::TRAPS, Path::new(""));
    patient.put_back(&thread);
    stops.add(thread.release());
    done.map_err(|failed| explain(target, failed))
}

//! `--patch-mode breakpoint` and `--allow-int3`: the conditions for breakpoints in a program's
//! code, and the setup of the handler that steps over them.
//!
//! The agent handles SIGTRAP from the first batch with breakpoints until calltap detaches, and
//! finds the sites in a list in shared memory. Both outlive a killed controller, so that the
//! breakpoints that it leaves do no harm, and the next controller removes them. A site stays in the
//! list as long as its module is loaded: a child that was forked in the middle of a batch has
//! breakpoints of its own. Permanent breakpoints have another list, which the agent keeps in
//! private memory, for as long.
//!
//! The kernel kills a process if a thread executes a breakpoint with SIGTRAP blocked, ignored or
//! not handled. calltap checks this before every batch, but the state may change meanwhile.
//! `docs/explanation/safety.md` describes the remaining risk.

use crate::plan::loaded::ProcessModule;
use crate::plan::planner::{PatchMode, Planner};
use calltap_abi::plan::Phase;
use calltap_abi::remote;
use calltap_abi::traps::answer;
use calltap_collect::governor::Costly;
use calltap_collect::metadata::Metadata;
use calltap_process::NoBreakpoints;
use calltap_process::agent;
use calltap_process::injection::inferior::Inferior;
use calltap_process::memory::maps;
use calltap_process::proc;
use calltap_process::ptrace::followed::may_share_memory;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::status::Status;
use calltap_process::target::Target;
use calltap_trace::Record;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

const SIGTRAP: u64 = 1 << 4;
/// How long to check a passing obstacle again. A thread that starts, or starts another, blocks all
/// signals for a moment, in which it runs only the C library; and a child that shares its parent's
/// memory mostly executes another program soon.
const MOMENT: Duration = Duration::from_millis(300);

/// State of calltap in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ours {
    /// No agent handles SIGTRAP yet.
    Nothing,
    /// The agent is there, and reports itself how SIGTRAP is handled.
    Agent,
    /// The agent is there, and calltap is the program's tracer for a moment.
    Tracer,
}

/// Returns why a process may have no breakpoints, as far as the kernel shows.
pub(crate) fn obstacle(pid: u32, ours: Ours) -> Option<NoBreakpoints> {
    let start = Instant::now();
    proc::threads(pid).into_iter().find_map(|tid| {
        loop {
            match obstacle_in(pid, tid, ours) {
                Some((_, true)) if start.elapsed() < MOMENT => std::thread::sleep(Duration::from_millis(1)),
                found => return found.map(|(why, _)| why),
            }
        }
    })
}

/// Returns why there may be no breakpoints according to one thread's status, and whether that may
/// pass.
fn obstacle_in(pid: u32, tid: u32, ours: Ours) -> Option<(NoBreakpoints, bool)> {
    let status = Status::of_thread(pid, tid).ok()?;
    // An ended thread that its tracer has not reaped yet is still listed.
    proc::state(tid).filter(|state| !proc::is_end(*state))?;
    let has = |set| status.signals(set).is_none_or(|signals| signals & SIGTRAP != 0);
    let lasting = match () {
        // A thread that could not be stopped in time stays traced until the thread of calltap that
        // tried it ends.
        () if ours != Ours::Tracer && status.tracer().is_some() && !status.is_traced_by_us() => {
            NoBreakpoints::Debugger
        }
        () if status.is_filtered() => NoBreakpoints::SeccompFilter,
        () if has("SigIgn") => NoBreakpoints::Ignored,
        () if ours == Ours::Nothing && has("SigCgt") => NoBreakpoints::Handled,
        () if has("SigBlk") => return Some((NoBreakpoints::Blocked { thread: tid }, true)),
        () => return None,
    };
    Some((lasting, false))
}

/// Returns the reason that the agent's answer stands for; None if SIGTRAP is handled.
fn reason(answer: u32) -> Option<NoBreakpoints> {
    match answer {
        answer::WORKS => None,
        answer::HANDLED => Some(NoBreakpoints::HandledOrIgnored),
        answer::NONE => Some(NoBreakpoints::NoAnswer),
        answer::NO_MEMORY => Some(NoBreakpoints::NoTable),
        other => Some(NoBreakpoints::HandlerBlocks { signal: other.wrapping_sub(answer::BLOCKED) }),
    }
}

impl Planner<'_> {
    /// Makes the next batches in a process go through breakpoints, if the mode says so and they
    /// change code that may be running. Returns why it cannot.
    pub(crate) fn arm(
        &mut self,
        index: u32,
        target: &Target,
        stops: &mut Stops,
    ) -> Result<(), NoBreakpoints> {
        self.armed = None;
        let Some(process) = self.processes.get(&index).filter(|_| self.policy.mode == PatchMode::Breakpoint)
        else {
            return Ok(());
        };
        let running = process.modules.iter().filter(|module| !module.fresh && !module.is_made());
        let sites = running.flat_map(|module| module.changes()).filter_map(|change| change.site.breakpoint());
        let sites: Vec<u64> = sites.map(|at| at.0).collect();
        if sites.is_empty() {
            return Ok(());
        }
        self.list_traps(&sites).map_err(|error| NoBreakpoints::NotListed { why: error.to_string() })?;
        self.have_handled(target, stops, &self.kept_traps(index))?;
        if let Some(text) = self.processes.get_mut(&index).and_then(|process| process.text.as_mut()) {
            text.after_int3 = true;
        }
        self.armed = Some(index);
        Ok(())
    }

    /// Makes a running process handle SIGTRAP, with these permanent breakpoints. Returns why it
    /// cannot.
    fn have_handled(
        &self,
        target: &Target,
        stops: &mut Stops,
        kept: &[(u64, u64)],
    ) -> Result<(), NoBreakpoints> {
        if let Some(why) = obstacle(target.pid, Ours::Agent) {
            return Err(why);
        }
        self.list_kept(kept)?;
        handle(target, stops).map_err(no_handler)?;
        // Meanwhile a thread may have started, or blocked SIGTRAP.
        let answered = reason(self.shared.control().trap_answer.load(Relaxed));
        let found = answered.or_else(|| obstacle(target.pid, Ours::Agent));
        found.or_else(|| self.other_of_its_memory(target.pid)).map_or(Ok(()), Err)
    }

    /// Returns the permanent breakpoints of a process with their targets, in the order of
    /// addresses.
    fn kept_traps(&self, index: u32) -> Vec<(u64, u64)> {
        let modules = self.processes.get(&index).into_iter().flat_map(|process| &process.modules);
        let mut kept: Vec<(u64, u64)> = modules.flat_map(ProcessModule::traps).collect();
        kept.sort_unstable();
        kept
    }

    /// Returns the stubs that permanent breakpoints lead to.
    pub(crate) fn trap_stubs(&self) -> HashSet<u32> {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        modules.flat_map(ProcessModule::trap_stubs).collect()
    }

    /// Returns the stubs whose events cost more than others.
    pub(crate) fn costly_stubs(&self) -> Costly {
        Costly { traps: self.trap_stubs(), python: self.shared.python_sites_on().collect() }
    }

    /// Lists permanent breakpoints for the agent, and clears its answer.
    fn list_kept(&self, kept: &[(u64, u64)]) -> Result<(), NoBreakpoints> {
        let (header, maps) = self.shared.plan(kept.len()).ok_or(NoBreakpoints::TooMany)?;
        for (map, (site, target)) in maps.iter().zip(kept) {
            map.address.store(*site, Relaxed);
            map.offset.store(*target, Relaxed);
        }
        header.maps.store(maps.len() as u32, Release);
        self.shared.control().trap_answer.store(answer::NONE, Relaxed);
        Ok(())
    }

    /// Prepares the permanent breakpoints of a process, before its sites are switched. If `handle`
    /// fails to set the handler up, they stay disabled, with a note.
    fn keep_traps(
        &mut self,
        index: u32,
        pid: u32,
        handle: impl FnOnce(&mut Self, &[(u64, u64)]) -> Result<(), NoBreakpoints>,
        records: &mut Vec<Metadata>,
    ) {
        let modules = self.processes.get(&index).into_iter().flat_map(|process| &process.modules);
        let wanted: usize = modules.map(ProcessModule::wanted_traps).sum();
        if wanted == 0 {
            return;
        }
        let kept = self.kept_traps(index);
        let handled = handle(self, &kept);
        if let Some(process) = self.processes.get_mut(&index) {
            process.modules.iter_mut().for_each(|module| module.handle_traps(handled.is_ok()));
        }
        if let Err(why) = handled {
            let text = format!(
                "{wanted} functions of process {pid} are not traced: they need breakpoints, which would kill it: {why}"
            );
            if !self.warnings.contains(&text) {
                self.warnings.push(text.clone());
            }
            records.push(Record::Note { text }.into());
        }
    }

    /// Prepares the permanent breakpoints of a running process.
    pub(crate) fn keep_traps_running(
        &mut self,
        index: u32,
        target: &Target,
        stops: &mut Stops,
        records: &mut Vec<Metadata>,
    ) {
        let handle = |planner: &mut Self, kept: &[(u64, u64)]| planner.have_handled(target, stops, kept);
        self.keep_traps(index, target.pid, handle, records);
    }

    /// Prepares the permanent breakpoints of a process whose agent waits for calltap to write.
    pub(crate) fn keep_traps_waiting(&mut self, index: u32, pid: u32, records: &mut Vec<Metadata>) {
        let handle = |planner: &mut Self, kept: &[(u64, u64)]| {
            if let Some(why) = obstacle(pid, Ours::Agent) {
                return Err(why);
            }
            planner.list_kept(kept)?;
            if !planner.ask(index, pid, [Phase::Writing, Phase::Trapping], Phase::Writing) {
                return Err(NoBreakpoints::NoAnswer);
            }
            reason(planner.shared.control().trap_answer.load(Relaxed)).map_or(Ok(()), Err)
        };
        self.keep_traps(index, pid, handle, records);
    }

    /// Prepares the permanent breakpoints of a program that calltap holds before it runs its own
    /// code.
    pub(crate) fn keep_traps_held(
        &mut self,
        pid: u32,
        remote: &mut dyn FnMut(u32) -> Result<(), crate::error::Error>,
        records: &mut Vec<Metadata>,
    ) {
        let handle = |planner: &mut Self, kept: &[(u64, u64)]| {
            if let Some(why) = obstacle(pid, Ours::Tracer) {
                return Err(why);
            }
            planner.list_kept(kept)?;
            remote(remote::TRAPS).map_err(no_handler)?;
            reason(planner.shared.control().trap_answer.load(Relaxed)).map_or(Ok(()), Err)
        };
        self.keep_traps(0, pid, handle, records);
    }

    /// Returns why another process that shares the memory is an obstacle: its signal handlers are
    /// its own, and may lack the agent's.
    fn other_of_its_memory(&self, pid: u32) -> Option<NoBreakpoints> {
        let start = Instant::now();
        loop {
            let sharing = agent::who_maps(&self.directory.identity(), &[pid], None).into_iter();
            let mut others = sharing.filter(|other| *other != pid && may_share_memory(pid, *other));
            match others.next() {
                Some(_) if start.elapsed() < MOMENT => std::thread::sleep(Duration::from_millis(1)),
                found => return found.map(|other| NoBreakpoints::SharedMemory { other }),
            }
        }
    }

    /// Lists more sites, and drops those of modules that are gone.
    fn list_traps(&self, more: &[u64]) -> std::io::Result<()> {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        let known: HashSet<u64> = modules.flat_map(|module| module.breakpoints()).collect();
        let old = self.shared.traps().into_iter().flat_map(|traps| traps.all());
        let mut all: Vec<u64> = old.filter(|at| known.contains(at)).chain(more.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        self.shared.list_traps(&all)
    }

    /// Removes the sites of unloaded modules from the list.
    pub(crate) fn forget_traps(&self) {
        if self.shared.has_traps() {
            // The list never grows here, so it fits.
            let _ = self.list_traps(&[]);
        }
    }
}

fn no_handler(error: crate::error::Error) -> NoBreakpoints {
    NoBreakpoints::NoHandler { why: error.to_string() }
}

/// Makes the agent handle SIGTRAP.
fn handle(target: &Target, stops: &mut Stops) -> Result<(), crate::error::Error> {
    let mut inferior = Inferior::new(target)?;
    let mut thread = inferior.any_thread()?;
    inferior.regions = maps::read(target.pid).unwrap_or_default();
    let done = inferior.hijack(&mut thread).remote(remote::TRAPS, Path::new(""));
    stops.add(thread.release());
    done.map_err(|failed| target.refuse(failed).into())
}

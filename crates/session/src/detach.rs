//! Detach, driven by the journal alone: it works after the calltap that attached has died.
//!
//! 1. Sites are disabled while the process runs.
//! 2. All threads are stopped. Threads in calltap's code are let run until they have left it.
//! 3. Open calls get their return addresses back; sites that may only be written with all threads
//!    stopped get the file's bytes back.
//! 4. A thread unmaps calltap's mappings. The agent itself stays loaded, inert, for the next time.
//!
//! Everything runs in a thread that ends soon (see [`calltap_process::ptrace::threads`]).

mod obstacle;
mod one;
mod suspects;

use crate::plan::directory::Directory;
use crate::plan::journaled_changes::DetachNotes;
use calltap_collect::shm::Shared;
use calltap_process::Reason;
use calltap_process::agent;
use calltap_process::freezer::is_frozen;
use calltap_process::injection::inferior::{Injected, await_tidy};
use calltap_process::proc;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::ptrace::{in_tracer_thread, sharing};
use calltap_process::target::Target;
use one::{detach_one, has_executed};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;
use std::thread;
use std::time::{Duration, Instant};

/// How long to look for children that are forked while calltap detaches.
const FORKING: Duration = Duration::from_secs(60);

/// How often to look for children of a process that has ended, and the time between two looks.
const LOOKS: usize = 4;
const LOOK_INTERVAL: Duration = Duration::from_millis(4);

/// How long a process that is ending may take to end.
const ENDING: Duration = Duration::from_millis(200);

/// Result of detaching from a process, or from all processes of a session.
#[derive(Default, Debug)]
pub struct DetachOutcome {
    /// How long threads were stopped.
    pub stops: Stops,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Whether nothing of calltap's is left.
    pub whole: bool,
}

/// Detaches from a process and its children.
pub(crate) fn detach(target: &Target, directory: &Directory, shared: &Shared) -> DetachOutcome {
    in_thread(|| detach_all(target, directory, shared))
}

/// Removes the code of a calltap that was killed while it had the process read its clock, before
/// the session existed. `None` if there is none.
pub(crate) fn remove_injected(target: &Target) -> Option<DetachOutcome> {
    let mut injected = Injected::Absent;
    let left = in_thread(|| {
        injected = await_tidy(target);
        left_with(injected)
    });
    (injected != Injected::Absent || !left.whole).then_some(left)
}

fn in_thread(work: impl FnOnce() -> DetachOutcome + Send) -> DetachOutcome {
    let failed = |error: calltap_process::Error| DetachOutcome {
        notes: vec![error.to_string()],
        ..DetachOutcome::default()
    };
    in_tracer_thread(work).unwrap_or_else(failed)
}

fn left_with(injected: Injected) -> DetachOutcome {
    let whole = injected != Injected::Runs;
    let notes = if whole { Vec::new() } else { vec![Reason::StillRuns.to_string()] };
    DetachOutcome { whole, notes, ..DetachOutcome::default() }
}

fn detach_all(target: &Target, directory: &Directory, shared: &Shared) -> DetachOutcome {
    // From now on no request of the agent is answered.
    shared.control().listening.store(0, Release);
    if is_frozen(target.pid) {
        let notes = vec![target.refuse(Reason::Frozen).to_string()];
        return DetachOutcome { notes, ..DetachOutcome::default() };
    }
    // A thread that a killed calltap has hijacked may be about to load the agent and join this
    // session.
    let mut left = left_with(await_tidy(target));
    let (start, mut done, mut looks) = (Instant::now(), HashSet::new(), 0);
    loop {
        let mut new = processes_of(target, directory, shared);
        new.retain(|(found, _)| done.insert((found.pid, found.start_time)));
        for (found, index) in &new {
            let failed = |error| DetachNotes {
                ours: vec![format!("not detached: {error}")],
                ..DetachNotes::default()
            };
            let notes = detach_one(directory, shared, *index, found, &mut left.stops).unwrap_or_else(failed);
            left.notes.extend(notes.others);
            // A process that is ending may have lost parts already, and one that has executed
            // another program has lost all, so their errors do not count.
            if !notes.ours.is_empty() && !has_executed(found, directory) && !is_ending(found) {
                left.whole = false;
                left.notes.extend(notes.ours);
            }
        }
        // A process may have forked between the listing and its stop. One that forks and ends while
        // processes are listed, as a daemon's first ones do, may be missed with its child.
        looks = if new.is_empty() { looks + 1 } else { 0 };
        if looks == LOOKS || looks > 0 && target.lives() {
            return left;
        }
        if looks > 0 {
            thread::sleep(LOOK_INTERVAL);
        }
        if start.elapsed() > FORKING {
            left.whole = false;
            left.notes.push(format!(
                "process {}: its new child processes are still traced, as it forks faster than calltap detaches: end its forking, and detach again",
                target.pid
            ));
            return left;
        }
    }
}

/// Returns the processes that have the agent of a session, with their indices in its table.
fn processes_of(target: &Target, directory: &Directory, shared: &Shared) -> Vec<(Target, Option<u32>)> {
    let ids = proc::Ids::default();
    let entries = shared.processes().filter_map(|index| Some((ids.pid_of(shared.process(index)?), index)));
    let entries: Vec<(u32, u32)> = entries.collect();
    let registered: HashMap<u32, u32> = entries.iter().copied().collect();
    let (mut known, mut seen) = (vec![target.pid], HashSet::from([target.pid]));
    known.extend(entries.iter().map(|(pid, _)| *pid).filter(|pid| seen.insert(*pid)));
    // Children that have not called a traced function since their fork are in no table, and an id
    // may by now be another process's: the processes that map the session's files count.
    let mut all: Vec<u32> = Vec::new();
    for pid in agent::who_maps(&directory.identity(), &known, target.program.as_deref()) {
        // Of processes that share memory, one stands for all.
        if !all.iter().any(|other| sharing::known_to_share(*other, pid)) {
            all.push(pid);
        }
    }
    let is_first = |pid: u32| pid == target.pid && directory.is_of(target);
    let index = |pid: u32| registered.get(&pid).copied().or(is_first(pid).then_some(0));
    all.into_iter().filter_map(|pid| Some((Target::of_child(pid)?, index(pid)))).collect()
}

/// Whether a process, in which something went wrong, is ending.
fn is_ending(target: &Target) -> bool {
    let start = Instant::now();
    while target.lives() && start.elapsed() < ENDING {
        thread::sleep(Duration::from_millis(1));
    }
    !target.lives()
}

//! Detach, driven by the journal alone: it works after the calltap that attached has died.
//!
//! Sites are switched off while everything runs. Then all threads are stopped once: those in our code are let run until they have left it, calls that
//! are still open get their return addresses back, the file's bytes come back where that demands stillness, and what was
//! mapped is unmapped. The agent itself stays loaded, inert, for the next time.
//!
//! All of it runs in a thread that ends soon (see [`calltap_process::threads`]).

use crate::Error;
use crate::plan::directory::Directory;
use crate::plan::past::{Mark, Past, Told};
use crate::plan::planner::image_in;
use calltap_abi::plan::Phase;
use calltap_abi::{ProcessEntry, plan, remote, stub};
use calltap_collect::shm::{self, Shared};
use calltap_patch::{Avma, Demand, Text};
use calltap_process::agent;
use calltap_process::agent::Loaded;
use calltap_process::frames::{self, Stacks};
use calltap_process::go;
use calltap_process::inferior::{Inferior, Injected, STILL_RUNS, await_tidy, explain, longest, say};
use calltap_process::maps::{self, Region};
use calltap_process::pages;
use calltap_process::proc;
use calltap_process::sharing;
use calltap_process::stops::Stops;
use calltap_process::target::Target;
use calltap_process::text::{KeepMapped, Sync};
use calltap_process::threads::{Held, NotHeld};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::thread;
use std::time::{Duration, Instant};

/// How long it is tried to find all threads outside our code.
const TRY: Duration = Duration::from_secs(10);
/// What looks like unwinding for longer is something left over on a stack,
const UNWINDING: Duration = Duration::from_millis(1500);
/// where the thread waits for something else, or has used so much processor time since.
const UNWINDING_CPU: Duration = Duration::from_millis(200);
/// A thread that gets no processor is waited for so long.
const STARVING: Duration = Duration::from_secs(8);
/// A hook takes less than this,
const MOMENT: Duration = Duration::from_micros(50);
/// which a thread may need some rounds to get, on a busy machine.
const ROUNDS: usize = 20;
/// What was on its way through a hook is through it after this time, mostly.
const DRAIN: Duration = Duration::from_millis(2);
/// A handler that has interrupted a hook may take long: between two stops of all threads there is up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How long children are looked for that are forked while processes are left.
const FORKING: Duration = Duration::from_secs(60);

const OTHER_BUILD: &str = "the agent in it is not this build's, or its code was changed: use the 'calltap detach' of the build that attached";

const PAGE: u64 = 4096;
/// A process that ends takes no longer to do so, once it has begun.
const ENDING: Duration = Duration::from_millis(200);

/// What leaving a process, or all of a session's, came to.
#[derive(Default, Debug)]
pub struct Left {
    /// How long it was stopped for.
    pub stops: Stops,
    /// For people.
    pub notes: Vec<String>,
    /// Nothing of ours is left.
    pub whole: bool,
}

/// Detaches from a process and its children.
pub fn detach(target: &Target, directory: &Directory, shared: &Shared) -> Left {
    in_thread(|| leave_all(target, directory, shared))
}

/// Removes the code that a calltap has injected which was killed while it asked for the clock, before its session existed. `None` if there is none.
pub fn remove_injected(target: &Target) -> Option<Left> {
    let mut injected = Injected::Absent;
    let left = in_thread(|| {
        injected = await_tidy(target);
        left_with(injected)
    });
    (injected != Injected::Absent || !left.whole).then_some(left)
}

/// Works in a thread that ends: the kernel then lets go of all threads that are still held.
fn in_thread(work: impl FnOnce() -> Left + Send) -> Left {
    let failed = || Left { notes: vec![Error::thread().to_string()], ..Left::default() };
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| failed())
}

fn left_with(injected: Injected) -> Left {
    let whole = injected != Injected::Runs;
    let notes = if whole { Vec::new() } else { vec![STILL_RUNS.into()] };
    Left { whole, notes, ..Left::default() }
}

fn leave_all(target: &Target, directory: &Directory, shared: &Shared) -> Left {
    // From now on no request of the agent is answered.
    shared.control().listening.store(0, Release);
    // A thread that a killed calltap has sent there may be about to load the agent, and to join this session.
    let mut left = left_with(await_tidy(target));
    let (start, mut done) = (Instant::now(), HashSet::new());
    loop {
        let mut new = processes_of(target, directory, shared);
        new.retain(|(found, _)| done.insert((found.pid, found.start_time)));
        for (found, index) in &new {
            let failed = |error| Told { ours: vec![format!("not detached: {error}")], ..Told::default() };
            let told = detach_one(directory, shared, *index, found, &mut left.stops).unwrap_or_else(failed);
            left.notes.extend(told.others);
            // Of a process at its end, only some is there any more.
            if !told.ours.is_empty() && !ends(found) {
                left.whole = false;
                left.notes.extend(told.ours);
            }
        }
        // A process may have forked between the list and its stop.
        if new.is_empty() {
            return left;
        }
        if start.elapsed() > FORKING {
            left.whole = false;
            left.notes.push(format!(
                "process {}: processes that it forks are still traced, as it forks all the time: stop it, and detach again",
                target.pid
            ));
            return left;
        }
    }
}

/// The processes that have the agent of a session, with their numbers in its table.
fn processes_of(target: &Target, directory: &Directory, shared: &Shared) -> Vec<(Target, Option<u32>)> {
    let ids = proc::Ids::default();
    let entries = shared.processes().filter_map(|index| Some((ids.pid_of(shared.process(index)?), index)));
    let entries: Vec<(u32, u32)> = entries.collect();
    let registered: HashMap<u32, u32> = entries.iter().copied().collect();
    let (mut known, mut seen) = (vec![target.pid], HashSet::from([target.pid]));
    known.extend(entries.iter().map(|(pid, _)| *pid).filter(|pid| seen.insert(*pid)));
    // Children that have called nothing since they were forked are in no table. An id may be another process's by now: those count that map the session's files.
    let mut all: Vec<u32> = Vec::new();
    for pid in agent::who_maps(&directory.identity(), &known) {
        // One that shares the memory of another is left with it.
        if !all.iter().any(|other| sharing::share(*other, pid)) {
            all.push(pid);
        }
    }
    let index = |pid: u32| registered.get(&pid).copied().or((pid == target.pid).then_some(0));
    all.into_iter().filter_map(|pid| Some((Target::of_child(pid)?, index(pid)))).collect()
}

/// Is a process at its end, in which something went wrong?
fn ends(target: &Target) -> bool {
    let start = Instant::now();
    while target.lives() && start.elapsed() < ENDING {
        thread::sleep(Duration::from_millis(1));
    }
    !target.lives()
}

/// Detaches from one process of a session: number `index` of its table, if that is in use.
fn detach_one(
    directory: &Directory,
    shared: &Shared,
    index: Option<u32>,
    target: &Target,
    stops: &mut Stops,
) -> Result<Told, Error> {
    let mut told = Told::default();
    let process = index.and_then(|index| shared.process(index));
    let mut inferior = Inferior::new(target)?;
    // It may be another program by now; what was opened of it then belongs to no process any more.
    if !agent::has_mapped(target.pid, &directory.identity()) {
        return Err(target.refuse("it runs another program by now").into());
    }
    let agent = inferior.agent.ok_or_else(|| target.refuse(OTHER_BUILD))?;
    let entries = directory.journal.read().map_err(|error| target.refuse(&error.to_string()))?;
    inferior.text.after_int3 = shared.has_traps();
    let mut past = Past::new(entries, shared, index, &inferior.regions, directory.code_inode());
    // A forked child is registered with the kernel as its parent was.
    let can_sync =
        shared.process(0).is_some_and(|first| first.sync.load(Acquire) == plan::Sync::Works as u32);
    inferior.text.lease();
    let kept = process.map(|process| KeepMapped::new(process, &mut inferior.text));
    let live = can_sync && !matches!(kept, Some(None));
    if live {
        // What was unloaded since is forgotten.
        inferior.regions = maps::read(target.pid).unwrap_or_default();
        past = past.what_is_left(&inferior.regions);
        inferior.text.sync = Sync::Barrier;
        past.switch_off(|mark| !mark.needs_stop(), Demand::Outside, &mut inferior.text, &mut told);
        inferior.text.sync = Sync::Quiet;
    }
    drop(kept);
    // A forked child that is in no table has it as its parent has.
    let known = || image_in(shared, directory.code_inode(), &inferior.regions);
    let image = process.map(|process| &process.image).or_else(known);
    let stubs = image.map_or(0, |image| image.stubs.load(Acquire));
    let word = image.map_or(0, |image| image.thread_word.load(Relaxed));
    let stubs = (stubs, stubs.wrapping_add(stub::REGION as u64));
    let is_agent = |region: &&Region| region.start == agent.base;
    let mut ours: Vec<(u64, u64)> =
        inferior.regions.iter().find(is_agent).map(|region| (region.start, region.end)).into_iter().collect();
    // Not told: it never joined.
    ours.extend(Some(stubs).filter(|(start, _)| *start != 0));
    ours.extend(past.veneers.iter().map(|(start, length)| (*start, start + length)));
    ours.sort();
    let unwinders = frames::unwinders(target.pid, &inferior.regions);
    let (start, mut whole, mut pause) = (Instant::now(), true, DRAIN);
    let mut suspects = Suspects::default();
    loop {
        let mut last = None;
        process.into_iter().for_each(refuse_answer);
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        let needs_stop = |mark: &Mark| !live || mark.needs_stop();
        let plan = past.prepare(needs_stop, &mut inferior.text);
        let done = match Held::take_all(target.pid) {
            Ok(mut held) => {
                let began = longest(&held);
                let since = Instant::now();
                inferior.regions = maps::read(target.pid).unwrap_or_default();
                past = past.what_is_left(&inferior.regions);
                inferior.text.lease();
                past.switch_off_stopped(plan, needs_stop, &mut inferior.text, &mut told);
                let mut stacks = Stacks::read(&held, &mut inferior.text, &inferior.regions);
                // A thread has ended meanwhile: all are looked at again.
                let outside = match leave_hooks(target, &mut held, &mut stacks, &mut inferior, &ours) {
                    Err(NotHeld::Gone) => false,
                    other => other.map_err(|why| target.refuse(&say(why)))?,
                };
                whole = stacks.are_whole();
                // Threads that ran may have unmapped something, and it may have taken long.
                past = past.what_is_left(&inferior.regions);
                inferior.text.lease();
                let unwinding = stacks.unwinding(&unwinders).map(|n| &held[n]);
                let unwinding = suspects.unwind(target.pid, unwinding, start.elapsed());
                let left = outside
                    && whole
                    && !unwinding
                    && leave(
                        target,
                        &mut inferior,
                        &past,
                        (&held, &stacks),
                        (&agent, stubs, word),
                        &mut told.ours,
                    );
                drop(held);
                stops.add(began + since.elapsed());
                if left {
                    unmap(shared, target, &mut inferior, &past, stops, &mut told.ours);
                }
                left
            }
            Err(why @ (NotHeld::Stuck | NotHeld::Shared(_))) => {
                last = Some(why);
                false
            }
            Err(why) => return Err(target.refuse(&say(why)).into()),
        };
        if done {
            return Ok(told);
        }
        if !whole && start.elapsed() > UNWINDING {
            told.ours.push(format!(
                "process {}: a thread's stack is too large to be searched for calltap's code: what is mapped stays, and nothing leads to it any more",
                target.pid
            ));
            return Ok(told);
        }
        let limit = if matches!(last, Some(NotHeld::Shared(_))) { UNWINDING } else { TRY };
        if start.elapsed() > limit {
            let why = last.map_or_else(|| "threads are still in calltap's code".to_owned(), say);
            told.ours.push(format!(
                "process {}: {why}: what is mapped stays, and nothing new leads to it",
                target.pid
            ));
            return Ok(told);
        }
    }
}

/// Threads on whose stacks an unwinder was found, and the processor time that each had used then.
#[derive(Default)]
struct Suspects(HashMap<u32, Duration>);

impl Suspects {
    /// May one of these threads unwind, so long after the first look?
    fn unwind<'h>(&mut self, pid: u32, threads: impl Iterator<Item = &'h Held>, since: Duration) -> bool {
        let mut unwind = false;
        for thread in threads {
            let used = proc::cpu_of_thread(pid, thread.tid).unwrap_or_default();
            let before = *self.0.entry(thread.tid).or_insert(used);
            unwind |= may_unwind(since, thread.system_call.is_some(), used.saturating_sub(before));
        }
        unwind
    }
}

/// May a thread unwind that has looked so for this time? If it `waits` in a system call it does not, as unwinding does so for moments only.
fn may_unwind(since: Duration, waits: bool, used: Duration) -> bool {
    since < UNWINDING || !waits && used < UNWINDING_CPU && since < STARVING
}

/// A thread that has opened a library and asks for what is new to be traced goes on at once: no answer will come. Again and again, as it may have looked whether a controller listens
/// just before.
fn refuse_answer(process: &ProcessEntry) {
    let (asked, idle) = (Phase::Asked as u32, Phase::Idle as u32);
    if process.phase.compare_exchange(asked, idle, AcqRel, Acquire).is_ok() {
        shm::wake(&process.phase);
    }
}

/// Lets those threads run for a moment that are in the agent's code, until none is; the others stand still meanwhile. False if that does not help, as
/// where a signal handler runs that has interrupted a hook. Mappings, and the stacks of the threads that ran, are read again.
fn leave_hooks(
    target: &Target,
    held: &mut [Held],
    stacks: &mut Stacks,
    inferior: &mut Inferior<'_>,
    ours: &[(u64, u64)],
) -> Result<bool, NotHeld> {
    for _ in 0..ROUNDS {
        let inside: Vec<usize> = (0..held.len()).filter(|n| stacks.runs_in(*n, ours)).collect();
        if inside.is_empty() {
            return Ok(true);
        }
        for n in &inside {
            let thread = &mut held[*n];
            if !frames::find(ours, thread.regs.rip) {
                return Ok(false);
            }
            thread.run()?;
            thread::sleep(MOMENT);
            thread.halt()?;
        }
        // A thread that ran may have started others, which are not stopped.
        if !Held::are_all(target.pid, held) {
            return Ok(false);
        }
        inferior.regions = maps::read(target.pid).unwrap_or_default();
        stacks.read_again(&inside, held, &mut inferior.text, &inferior.regions);
    }
    Ok(false)
}

/// The last step with all threads stopped outside the agent's code: afterwards nothing leads there. False if a thread is in the way.
fn leave(
    target: &Target,
    inferior: &mut Inferior<'_>,
    past: &Past,
    (held, stacks): (&[Held], &Stacks),
    (agent, stubs, word): (&Loaded, (u64, u64), u64),
    notes: &mut Vec<String>,
) -> bool {
    // One of them will be borrowed.
    if !held.is_empty() && held.iter().all(|thread| !go::has_room(thread, &mut inferior.text)) {
        return false;
    }
    if !past.restore(&mut inferior.text, stacks, notes) {
        return false;
    }
    frames::close_calls(&mut inferior.text, target.pid, agent, stubs);
    for thread in held.iter().filter(|_| word != 0) {
        // A thread's pointer to its state.
        let _ = inferior.text.write(Avma(thread.regs.fs_base.wrapping_add(word)), &[0; 8]);
    }
    true
}

/// Has a thread unmap what nothing leads to any more, while the others run.
fn unmap(
    shared: &Shared,
    target: &Target,
    inferior: &mut Inferior<'_>,
    past: &Past,
    stops: &mut Stops,
    notes: &mut Vec<String>,
) {
    let ends = |mark: &Mark| [mark.site.address().0, mark.site.address().0 + mark.site.len() as u64 - 1];
    // Not where the thread will be.
    let own = inferior.place.range().0 / PAGE;
    let written = past.marks.iter().flat_map(ends).filter(|at| at / PAGE != own);
    let pages = pages::as_in_files(target, &mut inferior.text, &inferior.regions, written);
    let mut thread = match inferior.any_thread() {
        Ok(thread) => thread,
        Err(_) if !target.lives() => return,
        Err(why) => return notes.push(why.to_string()),
    };
    for (operation, ranges) in
        [(remote::UNMAP, &past.veneers[..]), (remote::GIVE_BACK, &pages), (remote::LEAVE, &[])]
    {
        if !list(shared, ranges) {
            continue;
        }
        if let Err(failed) = inferior.remote(&mut thread, operation, Path::new("")) {
            notes.push(explain(target, failed).to_string());
            break;
        }
    }
    inferior.put_back(&thread);
    stops.add(thread.release());
}

/// Names ranges (address, length) to the agent. False if that cannot be done: there is no memory for it.
fn list(shared: &Shared, ranges: &[(u64, u64)]) -> bool {
    let Some((header, maps)) = shared.plan(ranges.len()) else { return ranges.is_empty() };
    for (map, (start, length)) in maps.iter().zip(ranges) {
        map.address.store(*start, Relaxed);
        map.length.store(*length, Relaxed);
    }
    header.maps.store(maps.len() as u32, Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(since_ms: u64, waits: bool, used_ms: u64, expected: bool) {
        let [since, used] = [since_ms, used_ms].map(Duration::from_millis);
        assert_eq!(may_unwind(since, waits, used), expected, "{since:?}, waits: {waits}, {used:?}");
    }

    #[test]
    fn a_thread_that_got_no_processor_may_unwind_for_longer() {
        check(1000, true, 0, true);
        check(1000, false, 500, true);
        check(2000, true, 0, false);
        check(2000, false, 500, false);
        check(2000, false, 0, true);
        check(9000, false, 0, false);
    }
}

//! Detaches from one process of a session: disables sites, waits until no thread is in calltap's
//! code, restores, and unmaps.

use crate::detach::obstacle::Obstacle;
use crate::detach::suspects::{Suspects, UNWINDING};
use crate::error::Error;
use crate::plan::directory::Directory;
use crate::plan::journaled_changes::{DetachNotes, JournaledChanges, PatchedSite, SwitchOff};
use crate::plan::planner::image_in;
use calltap_abi::PAGE;
use calltap_abi::plan::Phase;
use calltap_abi::{ProcessEntry, plan, remote, stub};
use calltap_collect::shm::{self, Shared};
use calltap_patch::{Avma, Demand, Text};
use calltap_process::Reason;
use calltap_process::agent::{self, LoadedAgent};
use calltap_process::frames::{self, Stacks};
use calltap_process::go;
use calltap_process::injection::inferior::Inferior;
use calltap_process::memory::maps::{self, Mappings, Region};
use calltap_process::memory::text::{KeepMapped, ProcessText, Sync};
use calltap_process::pages;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::ptrace::threads::{NotHeld, StoppedThread, aside, has_ordinary};
use calltap_process::ptrace::urgent::is_background;
use calltap_process::target::Target;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

/// How long calltap tries to find all threads outside its code.
const TRY: Duration = Duration::from_secs(10);
/// How long a thread is let run to leave a hook.
const MOMENT: Duration = Duration::from_micros(50);
/// How often threads are let run to leave hooks before the next attempt, on a busy machine.
const ROUNDS: usize = 20;
/// First pause between two attempts, in which threads mostly leave the hooks.
const DRAIN: Duration = Duration::from_millis(2);
/// Longest pause between two attempts, as a handler that interrupted a hook may take long.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Detaches from one process of a session, of which `index` is the index in the table if it has
/// one.
pub(super) fn detach_one(
    directory: &Directory,
    shared: &Shared,
    index: Option<u32>,
    target: &Target,
    stops: &mut Stops,
) -> Result<DetachNotes, Error> {
    let mut detaching = Detaching::begin(directory, shared, index, target)?;
    let mut pause = DRAIN;
    loop {
        detaching.process.into_iter().for_each(refuse_answer);
        thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
        let last = match detaching.attempt(stops)? {
            Attempt::Detached => return Ok(detaching.notes),
            // The memory of an ended process is gone, whether its parent has waited for it or not.
            Attempt::Obstacle(_) if !target.lives() || has_executed(target, directory) => {
                return Ok(detaching.notes);
            }
            Attempt::Obstacle(why) => why,
        };
        if let Some(why) = detaching.gives_up(&last) {
            detaching.notes.ours.push(format!("process {}: {why}", target.pid));
            return Ok(detaching.notes);
        }
    }
}

/// Whether a process, in which something went wrong, has executed another program, so that nothing
/// of calltap's is left in it.
pub(super) fn has_executed(target: &Target, directory: &Directory) -> bool {
    let regions = maps::read(target.pid).unwrap_or_default();
    // In the middle of execve there are no mappings, and of unreadable ones nothing is known.
    !regions.is_empty() && !agent::is_joined(&regions, &directory.identity())
}

/// Result of an attempt.
enum Attempt {
    Detached,
    Obstacle(Obstacle),
}

/// A process that calltap is detaching from.
struct Detaching<'a> {
    shared: &'a Shared,
    target: &'a Target,
    process: Option<&'a ProcessEntry>,
    inferior: Inferior<'a>,
    agent: LoadedAgent,
    changes: JournaledChanges,
    /// Inode of the file with calltap's code.
    code: u64,
    /// Whether all sites that need no stop were written while the process ran.
    live: bool,
    /// Range of its stubs.
    stubs: (u64, u64),
    /// Offset from the thread pointer of a thread's pointer to its state; 0 if there is none.
    word: u64,
    /// Code that no thread may be in.
    ours: Vec<(u64, u64)>,
    /// Code that unwinds stacks.
    unwinders: Vec<(u64, u64)>,
    suspects: Suspects,
    /// Ends of the stacks whose calls still return to stubs, once the others do not.
    open_stacks: Option<Vec<u64>>,
    since: Instant,
    /// Whether all stacks could be searched the last time.
    whole: bool,
    notes: DetachNotes,
}

impl<'a> Detaching<'a> {
    /// Disables the sites that can be disabled while the process runs.
    fn begin(
        directory: &Directory,
        shared: &'a Shared,
        index: Option<u32>,
        target: &'a Target,
    ) -> Result<Detaching<'a>, Error> {
        let process = index.and_then(|index| shared.process(index));
        let mut inferior = Inferior::new(target)?;
        // The process may have executed another program since its memory was opened.
        if !agent::has_mapped(target.pid, &directory.identity()) {
            return Err(target.refuse(Reason::OtherProgram).into());
        }
        let agent = inferior.agent.ok_or_else(|| target.refuse(Reason::OtherBuild))?;
        let entries = directory.journal.read().map_err(|error| target.refuse(error))?;
        inferior.text.after_int3 = shared.has_traps();
        let changes =
            JournaledChanges::new(entries, shared, index, &inferior.regions, directory.code_inode());
        let mut detaching = Detaching {
            shared,
            target,
            process,
            inferior,
            agent,
            changes,
            code: directory.code_inode(),
            live: false,
            stubs: (0, 0),
            word: 0,
            ours: Vec::new(),
            unwinders: Vec::new(),
            suspects: Suspects::default(),
            open_stacks: None,
            since: Instant::now(),
            whole: true,
            notes: DetachNotes::default(),
        };
        detaching.switch_off_running();
        detaching.find_code();
        detaching.since = Instant::now();
        Ok(detaching)
    }

    fn switch_off_running(&mut self) {
        let Detaching { inferior, shared, .. } = self;
        // A forked child is registered with the kernel as its parent was.
        let can_sync =
            shared.process(0).is_some_and(|first| first.sync.load(Acquire) == plan::Sync::Works as u32);
        inferior.text.lease();
        let kept = self.process.map(|process| KeepMapped::new(process, &mut inferior.text));
        if can_sync && !matches!(kept, Some(None)) {
            // Modules that were unloaded since are forgotten.
            inferior.regions = maps::read(self.target.pid).unwrap_or_default();
            self.changes.forget_unmapped(&inferior.regions);
            inferior.text.sync = Sync::Barrier;
            let needs_none = |patched: &PatchedSite| !patched.needs_stop();
            let mut notes = DetachNotes::default();
            // If calltap got no processor until its lease had ended, the attempts write the sites.
            self.live = self.changes.switch_off(needs_none, Demand::Outside, &mut inferior.text, &mut notes);
            if self.live {
                self.notes = notes;
            }
            inferior.text.sync = Sync::Quiet;
        }
    }

    /// Finds calltap's code, and code that unwinds.
    fn find_code(&mut self) {
        let Detaching { shared, inferior, agent, changes, code, .. } = self;
        // A forked child that is in no table has the image where its parent has it.
        let known = || image_in(shared, *code, &inferior.regions);
        let image = self.process.map(|process| &process.image).or_else(known);
        let stubs = image.map_or(0, |image| image.stubs.load(Acquire));
        self.word = image.map_or(0, |image| image.thread_word.load(Relaxed));
        self.stubs = (stubs, stubs.wrapping_add(stub::REGION as u64));
        let library = inferior.regions.iter().find(|region| region.start == agent.base);
        self.ours.extend(library.map(|region| (region.start, region.end)));
        // Without an address of stubs, the agent never joined.
        self.ours.extend(Some(self.stubs).filter(|(start, _)| *start != 0));
        self.ours.extend(changes.veneers.iter().map(|(start, length)| (*start, start + length)));
        self.ours.sort();
        self.unwinders = frames::unwinders(self.target.pid, &inferior.regions);
    }

    /// Forgets modules that were unmapped, with all threads stopped.
    fn forget_unmapped(&mut self) {
        self.changes.forget_unmapped(&self.inferior.regions);
        self.inferior.text.need_no_lease();
    }

    /// Stops all threads, and detaches if none is in the way. The batch to write then is prepared
    /// before.
    fn attempt(&mut self, stops: &mut Stops) -> Result<Attempt, Error> {
        let live = self.live;
        self.inferior.text.look_for_faults();
        let plan = self.changes.prepare(|patched| !live || patched.needs_stop(), &mut self.inferior.text);
        let mut held = match StoppedThread::take_all(self.target.pid) {
            Ok(held) => held,
            Err(why @ (NotHeld::Stuck | NotHeld::Shared(_))) => {
                return Ok(Attempt::Obstacle(Obstacle::NotHeld { why }));
            }
            Err(why) => return Err(self.target.refuse(why).into()),
        };
        let obstacle = self.restore_stopped(&mut held, plan)?;
        stops.add(held.release());
        if let Some(why) = obstacle {
            return Ok(Attempt::Obstacle(why));
        }
        self.unmap(stops);
        Ok(Attempt::Detached)
    }

    /// Restores everything with all threads stopped. Returns the obstacle, if there is one.
    fn restore_stopped(
        &mut self,
        held: &mut [StoppedThread],
        plan: SwitchOff,
    ) -> Result<Option<Obstacle>, Error> {
        let live = self.live;
        self.inferior.regions = maps::code_and_files(self.target.pid).unwrap_or_default();
        self.forget_unmapped();
        let needs_stop = |patched: &PatchedSite| !live || patched.needs_stop();
        self.changes.switch_off_stopped(plan, needs_stop, &mut self.inferior.text, &mut self.notes);
        let Inferior { text, regions, .. } = &mut self.inferior;
        let mut stacks = Stacks::read(held, text, &Mappings::asked(self.target.pid, regions));
        let inside = match self.run_out_of_hooks(held, &mut stacks) {
            // A thread has ended meanwhile: the next attempt reads all stacks again.
            Err(NotHeld::Gone) => Some(Obstacle::OtherThreads),
            other => other.map_err(|why| self.target.refuse(why))?,
        };
        self.whole = stacks.are_whole();
        // Threads that ran may have unmapped modules, and the lease may have expired.
        self.forget_unmapped();
        let numbers = stacks.unwinding(&self.unwinders, self.stubs);
        let unwinding = numbers.iter().map(|n| &held[*n]);
        let unwinding = self.suspects.unwind(self.target.pid, unwinding, self.since.elapsed());
        let unsearched = || (!self.whole).then_some(Obstacle::StackNotSearched);
        Ok(match inside.or_else(unsearched) {
            Some(obstacle) => Some(obstacle),
            None if unwinding.is_none() => self.close(held, &stacks),
            // Threads that throw all the time are hardly ever outside an unwinder at once. What the
            // others unwind from now on holds no stub.
            None => self.close_others(&stacks.of_threads(&numbers)).or(unwinding),
        })
    }

    /// Restores the return addresses of open calls, except on these stacks, unless no others are
    /// left. Returns the obstacle, if there is one.
    fn close_others(&mut self, except: &[(u64, u64)]) -> Option<Obstacle> {
        let ends: Vec<u64> = except.iter().map(|(_, end)| *end).collect();
        let is_done = |open: &Vec<u64>| open.iter().all(|end| ends.contains(end));
        if self.open_stacks.as_ref().is_some_and(is_done) {
            return None;
        }
        let obstacle = self.close_calls(except);
        self.open_stacks = obstacle.is_none().then_some(ends);
        obstacle
    }

    /// Restores the return addresses of open calls, except on these stacks. Returns the obstacle,
    /// if there is one.
    fn close_calls(&mut self, except: &[(u64, u64)]) -> Option<Obstacle> {
        let text = &mut self.inferior.text;
        let closed = frames::close_calls(text, self.target.pid, &self.agent, self.stubs, except);
        closed.err().map(|why| Obstacle::CallsNotClosed { why })
    }

    /// Lets the threads in the agent's code run for a moment, one at a time, until none is there.
    /// Mappings, and the stacks of these threads, are then read again. Returns the obstacle, if
    /// there is one.
    fn run_out_of_hooks(
        &mut self,
        held: &mut [StoppedThread],
        stacks: &mut Stacks,
    ) -> Result<Option<Obstacle>, NotHeld> {
        let mut last = None;
        let mixed = has_ordinary(held);
        for _ in 0..ROUNDS {
            let inside: Vec<usize> = (0..held.len()).filter(|n| stacks.runs_in(*n, &self.ours)).collect();
            if inside.is_empty() {
                return Ok(None);
            }
            let mut has_run = false;
            for n in &inside {
                let (thread, at) = (held[*n].tid, held[*n].regs.rip);
                if !frames::find(&self.ours, at) {
                    return Ok(Some(Obstacle::Interrupted { thread }));
                }
                last = Some(Obstacle::Runs { thread, at });
                // On a busy machine it might not get a processor, with the others standing still.
                if mixed && is_background(thread) {
                    continue;
                }
                has_run = true;
                held[*n].run()?;
                thread::sleep(MOMENT);
                held[*n].halt()?;
            }
            if !has_run {
                return Ok(last);
            }
            // A thread that ran may have started others, which are not stopped.
            if !StoppedThread::are_all(self.target.pid, held) {
                return Ok(Some(Obstacle::OtherThreads));
            }
            let Inferior { text, regions, .. } = &mut self.inferior;
            *regions = maps::code_and_files(self.target.pid).unwrap_or_default();
            stacks.read_again(&inside, held, text, &Mappings::asked(self.target.pid, regions));
        }
        Ok(last)
    }

    /// Removes all references to calltap's code, with all threads stopped outside it. Returns the
    /// obstacle, if there is one.
    fn close(&mut self, held: &[StoppedThread], stacks: &Stacks) -> Option<Obstacle> {
        let text = &mut self.inferior.text;
        // Unmapping needs a thread to hijack.
        if !held.is_empty() && held.iter().all(|thread| !go::has_room(thread, text)) {
            return Some(Obstacle::NoRoom);
        }
        if !self.changes.restore(text, stacks, &mut self.notes.ours) {
            return Some(Obstacle::WillReturn);
        }
        if let Some(at) = self.changes.foreign(self.target.pid, &self.inferior.regions, text) {
            return Some(Obstacle::ForeignCode { at: at.0 });
        }
        let words: Vec<u64> = held.iter().map(|thread| thread.regs.fs_base.wrapping_add(self.word)).collect();
        let cleared = (self.word != 0).then(|| clear_words(words, text));
        // CPython may call the agent's profile function as soon as its threads run again.
        let gate = self.agent.symbol(agent::PYTHON_GATE).map(Avma);
        let shut = gate.map_or(Ok(()), |gate| text.write(gate, &[0; 8]));
        let closed = self.close_calls(&[]);
        cleared.into_iter().for_each(|cleared| cleared.finish(&mut self.inferior.text));
        closed.or_else(|| shut.err().map(|why| Obstacle::GateOpen { why: why.into() }))
    }

    /// Makes a thread unmap the memory that nothing refers to any more, while the others run.
    fn unmap(&mut self, stops: &mut Stops) {
        let Detaching { shared, target, inferior, agent, changes, code, stubs, notes, .. } = self;
        let ends = |patched: &PatchedSite| {
            [patched.site.address().0, patched.site.address().0 + patched.site.len() as u64 - 1]
        };
        // The page that the hijacked thread executes from is left out.
        let own = inferior.place.range().0 / PAGE;
        let written = changes.sites.iter().flat_map(ends).filter(|at| at / PAGE != own);
        let pages = pages::as_in_files(target, &mut inferior.text, &inferior.regions, written);
        let mut thread = match inferior.any_thread() {
            Ok(thread) => thread,
            Err(_) if !target.lives() => return,
            Err(why) if forbids_calls(&why) => {
                return notes
                    .others
                    .push(format!("{why}: calltap's mappings stay, and no code leads to them"));
            }
            Err(why) => return notes.ours.push(why.to_string()),
        };
        let stays = agent.is_preloaded() && is_noted(&inferior.regions);
        let (remove, veneers) = match stays {
            true => (remote::RESERVE, &veneers_in(&inferior.regions, *code, *stubs)),
            false => (remote::UNMAP, &changes.veneers),
        };
        let mut hijacked = inferior.hijack(&mut thread);
        for (operation, ranges) in [(remove, &veneers[..]), (remote::GIVE_BACK, &pages), (remote::LEAVE, &[])]
        {
            if !list(shared, ranges) {
                continue;
            }
            if let Err(failed) = hijacked.remote(operation, Path::new("")) {
                notes.ours.push(target.refuse(failed).to_string());
                break;
            }
        }
        drop(hijacked);
        stops.add(thread.release());
    }

    /// Returns the message with which to give up after enough attempts. `last` is the latest
    /// obstacle.
    fn gives_up(&self, last: &Obstacle) -> Option<String> {
        let limit = match last {
            Obstacle::ForeignCode { .. } => Duration::ZERO,
            Obstacle::NotHeld { why: NotHeld::Shared(_) } | Obstacle::UnwindsStopped { .. } => UNWINDING,
            _ if !self.whole => UNWINDING,
            _ => TRY,
        };
        let leads = match last {
            Obstacle::ForeignCode { .. } => "'calltap detach' removes them once that tool has detached",
            // No thread was stopped, so that not all sites could be restored.
            Obstacle::NotHeld { .. } => "so do its jumps, until 'calltap detach' can stop all threads",
            _ if self.whole => "no new call reaches it",
            _ => "no code leads to it",
        };
        (self.since.elapsed() > limit).then(|| format!("{last}: calltap's mappings stay, and {leads}"))
    }
}

/// Whether ThreadSanitizer has noted which files' code is mapped, in memory of a file of its own.
/// It takes that code for libraries that stay, and ends the program if a stack has their addresses
/// later.
fn is_noted(regions: &[Region]) -> bool {
    regions.iter().any(|region| region.name().starts_with("tsan.rodata."))
}

/// Returns the veneers, as address and length: all mappings of the code file but the stubs.
fn veneers_in(regions: &[Region], code: u64, stubs: (u64, u64)) -> Vec<(u64, u64)> {
    let is_veneer = |region: &&Region| {
        region.executable && region.file.1 == code && !(stubs.0..stubs.1).contains(&region.start)
    };
    regions.iter().filter(is_veneer).map(|region| (region.start, region.end - region.start)).collect()
}

/// Whether no thread may make the agent's system calls, now and later.
fn forbids_calls(error: &calltap_process::Error) -> bool {
    use Reason::{Dispatched, Seccomp, StrictSeccomp, UnreadSeccomp};
    matches!(
        error,
        calltap_process::Error::Attach {
            reason: Seccomp { .. } | UnreadSeccomp { .. } | StrictSeccomp | Dispatched,
            ..
        }
    )
}

/// Releases a thread that opened a library and waits for its functions to be traced: no answer will
/// come. Called repeatedly, as a thread may have read just before that a controller listens.
fn refuse_answer(process: &ProcessEntry) {
    let (asked, idle) = (Phase::Asked as u32, Phase::Idle as u32);
    if process.phase.compare_exchange(asked, idle, AcqRel, Acquire).is_ok() {
        shm::wake(&process.phase);
    }
}

/// Clears threads' pointers to their states; a thread that made no traced call has none. For many
/// threads, a second thread does it until this one calls [`Cleared::finish`].
fn clear_words(at: Vec<u64>, text: &ProcessText) -> Cleared {
    let (count, again) = (at.len(), at.clone());
    let told = text.shared().and_then(|mut text| aside(count, move || clear(&at, &mut text)));
    Cleared { at: again, told }
}

/// Words that another thread clears, or that are still to be cleared.
struct Cleared {
    at: Vec<u64>,
    told: Option<Receiver<()>>,
}

impl Cleared {
    /// Waits until the words are clear, or clears them.
    fn finish(self, text: &mut ProcessText) {
        if self.told.is_none_or(|told| told.recv().is_err()) {
            clear(&self.at, text);
        }
    }
}

fn clear(words: &[u64], text: &mut ProcessText) {
    let places: Vec<(u64, usize)> = words.iter().map(|at| (*at, size_of::<u64>())).collect();
    let now = text.read_many(&places);
    for (n, at) in words.iter().enumerate() {
        if now.get(n).is_none_or(|now| now != [0; 8]) {
            let _ = text.write(Avma(*at), &[0; 8]);
        }
    }
}

/// Lists ranges (address, length) for the agent. Returns false if there is no memory for the list.
fn list(shared: &Shared, ranges: &[(u64, u64)]) -> bool {
    let Some((header, maps)) = shared.plan(ranges.len()) else { return ranges.is_empty() };
    for (map, (start, length)) in maps.iter().zip(ranges) {
        map.address.store(*start, Relaxed);
        map.length.store(*length, Relaxed);
    }
    header.maps.store(maps.len() as u32, Release);
    true
}

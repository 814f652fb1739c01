//! An inferior: a process whose memory calltap reads and writes and whose threads make calls for
//! it, one at a time.

pub mod hijacked;

use crate::agent::LoadedAgent;
use crate::error::Error;
use crate::frames::Stacks;
use crate::freezer::is_frozen;
use crate::go;
use crate::injection::inject::CodeCave;
use crate::injection::linker::is_linker;
use crate::memory::maps::{self, Mappings, Region};
use crate::memory::text::{ProcessText, Sync};
use crate::proc;
use crate::ptrace::threads::{self, NotHeld, StoppedThread};
use crate::reason::{Inside, Reason};
use crate::seccomp;
use crate::target::{Target, TextSegment};
use calltap_patch::{Avma, Text};
use object::Endianness::{self, Little as LITTLE};
use object::elf::FileHeader64;
use object::read::ReadCache;
use object::read::elf::FileHeader;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time limit of an injected call.
pub const CALL: Duration = Duration::from_secs(5);
/// Time limit of the search for a thread that can make a call.
pub const TRY: Duration = Duration::from_secs(10);
/// How long a thread that has child processes is spared while there are others.
const SPARED: Duration = Duration::from_millis(100);

/// A process that calltap operates on.
pub struct Inferior<'a> {
    /// Identity of the process.
    pub target: &'a Target,
    /// Memory of the process.
    pub text: ProcessText,
    /// Mappings of the process.
    pub regions: Vec<Region>,
    /// Place of injected code and strings.
    pub place: CodeCave,
    /// The agent, if it is loaded.
    pub agent: Option<LoadedAgent>,
    /// Whether a thread has not returned from an injected call.
    late: bool,
}

impl<'a> Inferior<'a> {
    /// Reads the mappings, picks a place for injected code, and finds the agent. Waits until code
    /// that an earlier calltap injected and left is removed.
    pub fn new(target: &'a Target) -> Result<Self, Error> {
        if is_frozen(target.pid) {
            return Err(target.refuse(Reason::Frozen));
        }
        let (mut text, mut regions, mut places) = read_memory(target)?;
        // A thread in left-over code must not be hijacked: it would return into code that the new
        // call has overwritten.
        if places.iter().any(|place| place.is_left(&mut text)) {
            if await_tidy(target) == Injected::Runs {
                return Err(target.refuse(Reason::StillRuns));
            }
            (text, regions, places) = read_memory(target)?;
        }
        places.retain(|place| !place.is_used(&mut text));
        let place = places.into_iter().next().ok_or_else(|| target.refuse(Reason::NoPlace))?;
        let agent = LoadedAgent::find(&regions, &mut text);
        Ok(Inferior { target, text, regions, place, agent, late: false })
    }

    /// Stops any thread that has room on its stack and may make the agent's system calls.
    pub fn any_thread(&mut self) -> Result<StoppedThread, Error> {
        let mut last = Reason::from(NotHeld::Gone);
        for tid in threads::list_least_disturbed_first(self.target.pid) {
            match StoppedThread::take(self.target.pid, tid) {
                Ok(thread) if let Some(why) = unfit(&thread) => last = why,
                Ok(thread)
                    if thread.is_in_64_bit_code()
                        && go::has_room(&thread, &mut self.text)
                        && !threads::has_children(self.target.pid, tid) =>
                {
                    return Ok(thread);
                }
                // Another thread may serve, or the same one a moment later: a thread that reads a
                // page from a slow disk leaves the kernel, too.
                other @ (Ok(_) | Err(NotHeld::Stuck)) => {
                    drop(other);
                    return self.thread_outside(TRY, |_, _, _| None);
                }
                Err(why) => last = why.into(),
            }
        }
        Err(self.target.refuse(last))
    }

    /// Stops a thread for which `inside` returns None; tries all threads until `patience` has
    /// passed.
    pub fn thread_outside(
        &mut self,
        patience: Duration,
        mut inside: impl FnMut(&StoppedThread, &mut ProcessText, &[Region]) -> Option<Inside>,
    ) -> Result<StoppedThread, Error> {
        let start = Instant::now();
        let mut last = Reason::NoThread;
        while start.elapsed() < patience {
            let pid = self.target.pid;
            let tids = threads::list_least_disturbed_first(pid);
            let has_other =
                |tid| tids.iter().any(|other| *other != tid && !threads::has_children(pid, *other));
            let is_spared =
                |tid| start.elapsed() < SPARED && threads::has_children(pid, tid) && has_other(tid);
            let mut unfit_threads = 0;
            for tid in tids.iter().copied() {
                if is_spared(tid) {
                    last = Reason::Busy;
                    continue;
                }
                match StoppedThread::take(pid, tid) {
                    Ok(thread) if let Some(why) = unfit(&thread) => {
                        (last, unfit_threads) = (why, unfit_threads + 1)
                    }
                    Ok(thread) if !thread.is_in_64_bit_code() => last = Reason::CompatibilityMode,
                    Ok(thread) if !go::has_room(&thread, &mut self.text) => {
                        last = Reason::NoStack;
                    }
                    // The thread has started a child process since it was checked.
                    Ok(_) if is_spared(tid) => last = Reason::Busy,
                    Ok(thread) => match inside(&thread, &mut self.text, &self.regions) {
                        None => return Ok(thread),
                        Some(code) => last = Reason::Inside { code },
                    },
                    Err(NotHeld::Refused(errno)) => {
                        return Err(self.target.refuse(NotHeld::Refused(errno)));
                    }
                    Err(why) => last = why.into(),
                }
            }
            if !self.target.lives() {
                return Err(self.target.refuse(NotHeld::Gone));
            }
            if unfit_threads == tids.len() && unfit_threads > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(self.target.refuse(last))
    }
}

/// Returns why a thread cannot make the agent's system calls, if a filter or the program itself has
/// forbidden them since calltap attached: they might kill the program.
fn unfit(thread: &StoppedThread) -> Option<Reason> {
    if proc::handles_signal(thread.tid, libc::SIGSYS) && thread.dispatches_system_calls() {
        return Some(Reason::Dispatched);
    }
    if !proc::is_filtered(thread.tid) {
        return None;
    }
    match thread.seccomp_filters() {
        Ok(filters) => seccomp::forbids(&filters).map(|call| Reason::Seccomp { call }),
        Err(errno) => Some(Reason::UnreadSeccomp { errno }),
    }
}

/// Reads a process's memory, its mappings, and the places for code in them.
fn read_memory(target: &Target) -> Result<(ProcessText, Vec<Region>, Vec<CodeCave>), Error> {
    let refuse = |error: std::io::Error| target.refuse(error);
    let mut text = ProcessText::open(target.pid).map_err(refuse)?;
    text.sync = Sync::Quiet; // no thread runs the place until one is sent there
    let regions = maps::read(target.pid).map_err(refuse)?;
    let mut places = CodeCave::all(&regions, |region, size| match region.name() {
        VDSO => behind_vdso(&mut text, region, size),
        _ if region.file.1 != 0 => target.behind_text(region, size),
        _ => None,
    });
    places.sort_by_key(|place| !stays(target, &regions, place));
    Ok((text, regions, places))
}

/// Returns the executable mapping of the program itself.
pub(super) fn program<'r>(target: &Target, regions: &'r [Region]) -> Option<&'r Region> {
    let path = proc::program(target.pid)?;
    regions.iter().find(|region| region.executable && region.path == path)
}

/// Whether a place is in an object that is never unloaded. Code behind the text of another object
/// might be unmapped while a thread executes it.
fn stays(target: &Target, regions: &[Region], place: &CodeCave) -> bool {
    let Some(region) = maps::at(regions, place.range().0) else { return false };
    let is_program = || program(target, regions).is_some_and(|program| program.path == region.path);
    region.name() == VDSO || is_linker(region.name()) || is_program()
}

/// State of code that a killed calltap had injected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Injected {
    /// No such code was found.
    Absent,
    /// The code was removed.
    Removed,
    /// A thread still executes the code.
    Runs,
}

/// Removes code that a killed calltap injected. Waits up to [`TRY`] for the thread that was to run
/// it, which may not have been scheduled yet.
pub fn await_tidy(target: &Target) -> Injected {
    let (start, mut done) = (Instant::now(), Injected::Absent);
    while let Ok((mut text, regions, places)) = read_memory(target) {
        if !places.iter().any(|place| place.is_left(&mut text)) {
            return done;
        }
        if start.elapsed() > TRY {
            return Injected::Runs;
        }
        done = Injected::Removed;
        tidy(target, &mut text, &regions, &places);
        std::thread::sleep(Duration::from_millis(5));
    }
    done
}

/// Removes code that a killed calltap injected, unless a thread still runs it.
fn tidy(target: &Target, text: &mut ProcessText, regions: &[Region], places: &[CodeCave]) {
    let mut left: Vec<&CodeCave> = places.iter().filter(|place| place.is_left(text)).collect();
    if left.is_empty() {
        return;
    }
    left.sort_by_key(|place| place.range());
    let ranges: Vec<(u64, u64)> = left.iter().map(|place| place.range()).collect();
    let Ok(held) = StoppedThread::take_all(target.pid) else { return };
    // The scratch memory of a thread in the call holds the way back, so it is searched as well.
    let regions = maps::read(target.pid).unwrap_or_else(|_| regions.to_vec());
    let stacks = Stacks::read(&held, text, &Mappings::known(&regions));
    if !stacks.are_whole() {
        return;
    }
    let inside = stacks.words_in(&ranges);
    for place in left {
        let (start, end) = place.range();
        if !inside.iter().any(|word| (start..end).contains(word)) {
            place.restore(text);
        }
    }
}

/// Name of the kernel's library, which is mapped even in a program without any other.
const VDSO: &str = "[vdso]";

/// Returns the end of the vDSO's image, and the bytes expected there: zeros.
fn behind_vdso(text: &mut ProcessText, region: &Region, size: usize) -> Option<(u64, Vec<u8>)> {
    let mut image = vec![0; (region.end - region.start) as usize];
    text.read(Avma(region.start), &mut image).ok()?;
    let header = FileHeader64::<Endianness>::parse(&*image).ok()?;
    let sections = u64::from(header.e_shnum(LITTLE)) * u64::from(header.e_shentsize(LITTLE));
    let end = header.e_shoff(LITTLE).checked_add(sections)?.max(TextSegment::of(&*image)?.size);
    Some((region.start + end.next_multiple_of(16), vec![0; size]))
}

impl Target {
    /// Returns an error about this process. If the process has ended, that is the reason.
    pub fn refuse(&self, reason: impl Into<Reason>) -> Error {
        let reason = match self.lives() {
            true if proc::is_ending(self.pid) => Reason::Ending,
            true => crate::limits::explain(self, reason.into()),
            false => Reason::Ended,
        };
        Error::Attach { pid: self.pid, name: self.name.clone(), reason }
    }

    /// Returns where the text ends of the file that a region maps, and the bytes that the file has
    /// there. None if these bytes may be data of the program.
    fn behind_text(&self, region: &Region, size: usize) -> Option<(u64, Vec<u8>)> {
        let file = region.open(self.pid).ok()?;
        let text = TextSegment::of(&ReadCache::new(&file)).filter(|text| !text.has_data)?;
        let end = (text.offset + text.size).next_multiple_of(16);
        // The rest of a page beyond the end of the file is zero.
        let mut behind = vec![0; size];
        let mut read = 0;
        while let Ok(more @ 1..) = file.read_at(&mut behind[read..], end + read as u64) {
            read += more;
        }
        Some((end.checked_sub(region.offset)? + region.start, behind))
    }
}

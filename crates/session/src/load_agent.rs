//! Loads the agent into a running process: one hijacked thread loads it, and has it join the
//! session.
//!
//! If the C library can load it, the thread calls `dlopen` at a point where it holds no lock of the
//! allocator or the dynamic linker. Otherwise the agent is
//! [placed](calltap_process::injection::placed). In a process that was attached to before, the
//! agent is still loaded.

use crate::error::Error;
use crate::plan::directory::Directory;
use calltap_abi::{plan, remote};
use calltap_collect::shm::Shared;
use calltap_process::Reason;
use calltap_process::agent::{LoadedAgent, PRELOADED};
use calltap_process::clock::TimeOffsets;
use calltap_process::frames::Stacks;
use calltap_process::injection::call::Call;
use calltap_process::injection::guards::Guards;
use calltap_process::injection::inferior::{CALL, Inferior, TRY};
use calltap_process::injection::inject::Failed;
use calltap_process::injection::linker::first_objects;
use calltap_process::injection::placed::{Frames, Placement, owner_word};
use calltap_process::memory::maps::{self, Mappings};
use calltap_process::ptrace::in_tracer_thread;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::ptrace::threads::{NotHeld, StoppedThread};
use calltap_process::reason::Inside;
use calltap_process::target::{Symbols, Target, file_owner, is_libc};
use calltap_process::{limits, proc, seccomp};
use nix::errno::Errno;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Time limit for a thread to load the agent.
const LOAD: Duration = Duration::from_secs(5);
/// Time limit for the kernel to register the process, on a busy machine. No thread is stopped
/// meanwhile.
const REGISTRATION: Duration = Duration::from_secs(30);
/// Time by when a program has mostly loaded its libraries.
const STARTING: Duration = Duration::from_millis(200);
/// Patience with which every thread is looked at once.
const ONCE: Duration = Duration::from_millis(1);
/// How long to look for a thread that may call the dynamic linker if the agent can be placed
/// instead.
const UNLOCKED: Duration = Duration::from_secs(1);
/// Mask of the signal by which glibc has every thread change its user or group (SIGSETXID). The
/// thread that requests it waits for all others, and holds a lock that loading a library needs.
const SETXID: u64 = 1 << (33 - 1);
/// How often placing the agent is tried.
const PLACINGS: usize = 10;
const RTLD_NOW: u64 = 2;
/// Functions of the C library to call. The second is the name of the first before glibc 2.34.
const LIBC: [&str; 4] = ["dlopen", "__libc_dlopen_mode", "dlerror", "munmap"];

/// System calls that the agent makes only if all seccomp filters of a process allow them.
struct Allowed {
    /// Whether no thread has a filter.
    unfiltered: bool,
    /// Calls that read memory.
    reading: bool,
    /// The question whether a thread may read the time stamp counter.
    asking: bool,
}

/// Checks that neither a seccomp filter nor the program itself keeps the agent from making system
/// calls.
fn check_filters(target: &Target, stops: &mut Stops) -> Result<Allowed, Error> {
    let mut allowed = Allowed { unfiltered: true, reading: true, asking: true };
    // The kernel reports only of a stopped thread whether its system calls raise SIGSYS. A program
    // without a handler for that signal would not survive them.
    let may_dispatch = proc::handles_signal(target.pid, libc::SIGSYS);
    for tid in proc::threads(target.pid) {
        let is_filtered = proc::is_filtered(tid);
        allowed.unfiltered &= !is_filtered;
        if !may_dispatch && !is_filtered {
            continue;
        }
        let start = Instant::now();
        let taken = loop {
            match StoppedThread::take(target.pid, tid) {
                Err(NotHeld::Stuck) if start.elapsed() < TRY => continue,
                taken => break taken,
            }
        };
        let thread = match taken {
            Ok(thread) => thread,
            Err(NotHeld::Gone) => continue,
            Err(why) => return Err(target.refuse(why).into()),
        };
        let filters = if is_filtered { thread.seccomp_filters() } else { Ok(Vec::new()) };
        let is_dispatched = may_dispatch && thread.dispatches_system_calls();
        stops.add(thread.release());
        if is_dispatched {
            return Err(target.refuse(Reason::Dispatched).into());
        }
        allowed.reading &= filters.as_deref().is_ok_and(seccomp::allow_reading);
        allowed.asking &= filters.as_deref().is_ok_and(seccomp::allow_asking);
        let why = match filters.as_deref().map(seccomp::forbids) {
            Ok(None) => continue,
            Ok(Some(call)) => Reason::Seccomp { call },
            Err(errno) => Reason::UnreadSeccomp { errno: *errno },
        };
        return Err(target.refuse(why).into());
    }
    Ok(allowed)
}

/// Returns why calltap cannot attach to a process that has no place for a session's files. In a
/// sandbox without a usable file system, the seccomp filter is the reason if it forbids loading the
/// agent.
pub fn explain_no_place(target: &Target, no_place: Error) -> Error {
    let work = || check_filters(target, &mut Stops::default()).err();
    let filter = in_tracer_thread(work);
    // A process that is ending has no file system any more.
    let ending = || proc::is_ending(target.pid) || !target.lives();
    filter
        .ok()
        .flatten()
        .unwrap_or_else(|| if ending() { target.refuse(Reason::Ending).into() } else { no_place })
}

/// Loads the agent into a process, or finds it from an earlier attach, and has it join the session.
pub fn load(target: &Target, directory: &Directory, shared: &Shared) -> Result<Stops, Error> {
    let mut stops = Stops { threads: proc::threads(target.pid).len(), ..Stops::default() };
    let allowed = check_filters(target, &mut stops)?;
    shared.control().unreadable.store(u32::from(!allowed.reading), Relaxed);
    shared.control().unasked.store(u32::from(!allowed.asking), Relaxed);
    shared.control().unfiltered.store(u32::from(allowed.unfiltered), Relaxed);
    shared.control().locked.store(u32::from(target.locks_memory()), Relaxed);
    describe_process(target, shared);
    let start = Instant::now();
    loop {
        let mut inferior = Inferior::new(target);
        // A program that was only just started has not loaded its libraries yet.
        while inferior.is_err() && target.lives() && start.elapsed() < STARTING {
            std::thread::sleep(Duration::from_millis(5));
            inferior = Inferior::new(target);
        }
        let mut inferior = inferior?;
        let mut thread = match inferior.agent {
            // The agent's frames may still have to be registered with the unwinder.
            Some(agent) if agent.is_placed() => outside_unwinder(target, &mut inferior)?,
            Some(_) => inferior.any_thread()?,
            None => load_agent(target, directory, shared, &mut inferior)?,
        };
        give_to(directory, &thread);
        let joined = join(target, directory, shared, &mut inferior, &mut thread, None);
        inferior.put_back(&thread);
        // If the hijacked thread ended before it was done, another one is tried.
        let again = joined.is_err() && thread.has_ended() && target.lives() && start.elapsed() < LOAD;
        stops.add(thread.release());
        if !again {
            joined?;
            await_registration(target, shared, inferior.agent)?;
            return Ok(stops);
        }
    }
}

/// Gives a session's files to the user of a stopped thread, which opens them next: the process may
/// have changed its user since they were created. If that fails, so does the opening.
fn give_to(directory: &Directory, thread: &StoppedThread) {
    if let Ok(owner) = file_owner(thread.tid) {
        let _ = directory.give_to(owner);
    }
}

/// Loads the agent and returns the hijacked thread. An agent loaded by the dynamic linker has then
/// joined the session already.
fn load_agent(
    target: &Target,
    directory: &Directory,
    shared: &Shared,
    inferior: &mut Inferior<'_>,
) -> Result<StoppedThread, Error> {
    limits::check_mappings(target).map_err(|reason| target.refuse(reason))?;
    let first = first_objects(target.pid, &inferior.regions);
    let libc = Symbols::of(target.pid, &first, is_libc, |name| LIBC.contains(&name));
    let dlopen = libc
        .as_ref()
        .filter(|_| proc::has_dynamic_linker(target.pid))
        .and_then(|libc| libc.address("dlopen").or(libc.address("__libc_dlopen_mode")));
    let (thread, done) = match dlopen {
        Some(dlopen) => open_or_place(target, directory, shared, inferior, (libc.as_ref(), dlopen)),
        None => place(target, directory, inferior),
    }?;
    if let Err(error) = done {
        inferior.put_back(&thread);
        return Err(error);
    }
    Ok(thread)
}

/// A hijacked thread, and the result of its work.
type Hijacked = (StoppedThread, Result<(), Error>);

/// The functions by which the dynamic linker loads the agent.
struct DynamicLinker<'a> {
    libc: Option<&'a Symbols>,
    /// Address.
    dlopen: u64,
    /// Whether [another object](Guards::has_other_allocators) than the C library defines the
    /// allocator.
    has_other_allocators: bool,
}

/// Loads the agent by the dynamic linker; places it, which takes no lock, if no thread that holds
/// no lock is found soon.
fn open_or_place(
    target: &Target,
    directory: &Directory,
    shared: &Shared,
    inferior: &mut Inferior<'_>,
    (libc, dlopen): (Option<&Symbols>, u64),
) -> Result<Hijacked, Error> {
    let guards = Guards::new(target.pid, &inferior.regions);
    // If the frames of a placed agent cannot be registered with the unwinder, only the dynamic
    // linker can load it.
    let can_place = Frames::of(target, &inferior.regions).is_ok();
    let linker = DynamicLinker { libc, dlopen, has_other_allocators: guards.has_other_allocators() };
    if can_place && linker.has_other_allocators && knows_owner_word(target, inferior)? {
        return place(target, directory, inferior);
    }
    let patience = if can_place { UNLOCKED } else { TRY };
    let mut find = |patience| {
        inferior.thread_outside(patience, |thread, text, regions| guards.inside(thread, text, regions))
    };
    let mut found = find(ONCE);
    if found.is_err() && target.lives() {
        guards.read_unwinder(&maps::read(target.pid).unwrap_or_default());
        found = find(patience);
    }
    let thread = match found {
        Err(_) if can_place && target.lives() => return place(target, directory, inferior),
        found => not_in_group_stop(target, found?)?,
    };
    open(target, directory, shared, inferior, linker, thread)
}

/// Whether a process's threads have a word by which hooks find them. A placed agent has no other
/// way.
fn knows_owner_word(target: &Target, inferior: &mut Inferior<'_>) -> Result<bool, Error> {
    let thread = inferior.any_thread()?;
    Ok(owner_word(target, &thread, &mut inferior.text).is_ok())
}

/// Makes a thread that holds no lock load the agent by the dynamic linker.
fn open(
    target: &Target,
    directory: &Directory,
    shared: &Shared,
    inferior: &mut Inferior<'_>,
    linker: DynamicLinker<'_>,
    mut thread: StoppedThread,
) -> Result<Hijacked, Error> {
    match owner_word(target, &thread, &mut inferior.text) {
        Ok(word) => shared.control().owner_word.store(word, Release),
        // If the word is in use or the thread library unknown, threads find their states by a
        // thread-local variable.
        Err(_) => directory.replace_agent(PRELOADED.bytes())?,
    }
    give_to(directory, &thread);
    let address = |name: &str| linker.libc.and_then(|libc| libc.address(name));
    let path = directory.agent();
    let call = Call {
        function: linker.dlopen,
        arguments: [inferior.place.string_address(), RTLD_NOW],
        string: path.as_os_str().as_encoded_bytes(),
        complaint: address("dlerror").unwrap_or(0),
        let_in: SETXID,
        // An allocator of the program may use restartable sequences, which an opener has none of.
        opens_files: !linker.has_other_allocators,
    };
    if let Err(failed) = inferior.call(&mut thread, &call, LOAD) {
        return Ok((thread, Err(target.refuse(failed).into())));
    }
    let around = |address| maps::around(target.pid, address).ok().flatten();
    let complaint = inferior.place.complaint(&mut inferior.text, around);
    if let (Some((_, scratch)), Some(munmap)) = (&complaint, address("munmap")) {
        let call = Call::new(munmap, *scratch);
        let _ = inferior.call(&mut thread, &call, CALL);
    }
    let refused = |why| target.refuse(Reason::Linker { why });
    Ok((thread, complaint.map_or(Ok(()), |(why, _)| Err(refused(why).into()))))
}

/// Places the agent in a process without a dynamic linker that could load it.
fn place(target: &Target, directory: &Directory, inferior: &mut Inferior<'_>) -> Result<Hijacked, Error> {
    let mut thread = outside_unwinder(target, inferior)?;
    let done = place_by(target, directory, inferior, &mut thread);
    Ok((thread, done))
}

/// Stops a thread that holds no lock of the unwinder.
fn outside_unwinder(target: &Target, inferior: &mut Inferior<'_>) -> Result<StoppedThread, Error> {
    let frames = Frames::of(target, &inferior.regions).map_err(|why| target.refuse(why))?;
    let thread = inferior.thread_outside(TRY, |thread, text, regions| {
        let stack = Stacks::read(std::slice::from_ref(thread), text, &Mappings::known(regions));
        (!stack.words_in(&frames.locking).is_empty()).then_some(Inside::Unwinder)
    });
    not_in_group_stop(target, thread?)
}

/// Refuses a thread of a process that was stopped by a signal meanwhile: a call that takes locks
/// would wait for threads that do not run.
fn not_in_group_stop(target: &Target, thread: StoppedThread) -> Result<StoppedThread, Error> {
    if thread.is_in_group_stop() {
        return Err(target.refuse(Reason::StoppedMeanwhile).into());
    }
    Ok(thread)
}

/// Places the agent, by a thread that holds no lock.
fn place_by(
    target: &Target,
    directory: &Directory,
    inferior: &mut Inferior<'_>,
    thread: &mut StoppedThread,
) -> Result<(), Error> {
    give_to(directory, thread);
    // Another thread may map something at the same address in the same moment.
    for _ in 0..PLACINGS {
        map_agent(target, directory, inferior, thread)?;
        if inferior.agent.is_some() {
            break;
        }
    }
    inferior.agent.map(drop).ok_or_else(|| target.refuse(Reason::AgentNotMapped).into())
}

/// Registers the agent's frames with the program's unwinder, if there is one, unless they are
/// registered: a calltap that placed the agent may have been killed before.
fn make_frames_known(
    target: &Target,
    inferior: &mut Inferior<'_>,
    thread: &mut StoppedThread,
) -> Result<(), Error> {
    let frames = Frames::of(target, &inferior.regions).map_err(|why| target.refuse(why))?;
    let Some((function, arguments)) = inferior.agent.and_then(|agent| frames.registration(&agent)) else {
        return Ok(());
    };
    if frames.are_known(arguments, &mut inferior.text) {
        return Ok(());
    }
    let search = inferior.agent.and_then(|agent| frames.search(&agent));
    for (function, arguments) in search.into_iter().chain([(function, arguments)]) {
        let call = Call::new(function, arguments);
        inferior.call(thread, &call, CALL).map_err(|failed| target.refuse(failed))?;
    }
    if frames.are_known(arguments, &mut inferior.text) {
        return Ok(());
    }
    Err(target.refuse(Reason::UnwinderIgnoresFrames).into())
}

/// Places the agent in a program that has only just begun, and has it join the session. Returns the
/// thread, still held.
pub fn start(
    target: &Target,
    directory: &Directory,
    shared: &Shared,
    inferior: &mut Inferior<'_>,
    mut thread: StoppedThread,
    owner_word: u64,
) -> Result<StoppedThread, Error> {
    describe_process(target, shared);
    let done = place_by(target, directory, inferior, &mut thread)
        .and_then(|()| join(target, directory, shared, inferior, &mut thread, Some(owner_word)));
    inferior.put_back(&thread);
    done?;
    await_registration(target, shared, inferior.agent)?;
    Ok(thread)
}

/// Makes a thread map the agent where there is room for it. Another mapping may have taken the
/// place.
fn map_agent(
    target: &Target,
    directory: &Directory,
    inferior: &mut Inferior<'_>,
    thread: &mut StoppedThread,
) -> Result<(), Error> {
    let no_room = || target.refuse(Reason::NoRange);
    let placement = Placement::near(target, &inferior.regions).ok_or_else(no_room)?;
    directory.replace_agent(&placement.file)?;
    let path = directory.agent();
    let (function, arguments, string) =
        inferior.place.mapping_call(path.as_os_str().as_encoded_bytes(), &placement.mappings);
    let call = Call { string: &string, opens_files: true, ..Call::new(function, arguments) };
    let mapped = inferior.call(thread, &call, CALL);
    inferior.regions = maps::read(target.pid).unwrap_or_default();
    inferior.agent = LoadedAgent::find(&inferior.regions, &mut inferior.text);
    match mapped.map_err(|failed| target.refuse(failed))? as i64 {
        refused @ -4095..=-1 => {
            let errno = Errno::from_raw(-refused as i32);
            Err(target.refuse(Reason::AgentNotOpened { errno }).into())
        }
        _ => Ok(()),
    }
}

/// Makes the agent join the session, unless it has, and register the process with the kernel.
fn join(
    target: &Target,
    directory: &Directory,
    shared: &Shared,
    inferior: &mut Inferior<'_>,
    thread: &mut StoppedThread,
    known_owner_word: Option<u64>,
) -> Result<(), Error> {
    let has_joined = || shared.process(0).is_some_and(|process| process.pid.load(Acquire) != 0);
    let explained = |failed: Failed| target.refuse(failed);
    if inferior.agent.is_none() && !has_joined() {
        // The agent's initialiser finds its files through /proc, which a process that has changed
        // its user may not read.
        inferior.regions = maps::code_and_files(target.pid).unwrap_or_default();
        inferior.agent = LoadedAgent::find(&inferior.regions, &mut inferior.text);
    }
    if let Some(agent) = inferior.agent {
        if agent.needs_owner_word() {
            let found = || owner_word(target, thread, &mut inferior.text).map_err(|why| target.refuse(why));
            let word = known_owner_word.map_or_else(found, Ok)?;
            shared.control().owner_word.store(word, Release);
        }
        if agent.is_placed() {
            make_frames_known(target, inferior, thread)?;
        }
        inferior.remote(thread, remote::JOIN, &directory.agent()).map_err(explained)?;
    }
    if !has_joined() {
        return Err(target.refuse(Reason::AgentNoMemory).into());
    }
    // An agent that the dynamic linker loaded has joined by itself.
    if inferior.agent.is_none() {
        inferior.regions = maps::code_and_files(target.pid).unwrap_or_default();
        inferior.agent = LoadedAgent::find(&inferior.regions, &mut inferior.text);
    }
    // A thread that outlives the stop would make the program's own `unshare` and `setns` fail,
    // which the kernel refuses to a process of several threads.
    let register = if proc::has_one_thread(target.pid) { remote::REGISTER_ALONE } else { remote::REGISTER };
    inferior.remote(thread, register, Path::new("")).map_err(|failed| explained(failed).into())
}

/// Writes what the process may be unable to read about itself to shared memory.
fn describe_process(target: &Target, shared: &Shared) {
    let control = shared.control();
    if let Some((headers, count)) = proc::program_headers(target.pid) {
        control.header_count.store(count, Relaxed);
        control.headers.store(headers, Relaxed);
    }
    control.pid_namespace.store(proc::pid_namespace(target.pid), Relaxed);
    let ahead = TimeOffsets::of(target.pid).monotonic;
    control.tsc_line.ahead_ns.store(ahead.cast_unsigned(), Relaxed);
}

/// Waits until the kernel has registered the process.
fn await_registration(target: &Target, shared: &Shared, agent: Option<LoadedAgent>) -> Result<(), Error> {
    let Some(process) = shared.process(0) else { return Ok(()) };
    let start = Instant::now();
    while process.sync.load(Acquire) == plan::Sync::Pending as u32 && start.elapsed() < REGISTRATION {
        std::thread::sleep(Duration::from_millis(1));
        // The process is checked only if it takes long.
        if start.elapsed() < CALL / 20 {
            continue;
        }
        let regions = maps::read(target.pid).unwrap_or_default();
        if !target.lives() {
            return Err(target.refuse(NotHeld::Gone).into());
        }
        if !agent.is_some_and(|agent| agent.is_in(&regions)) {
            return Err(target.refuse(Failed::NoAgent).into());
        }
    }
    Ok(())
}

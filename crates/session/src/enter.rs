//! Into a running process: one thread is borrowed to bring the agent in, and to have it join the session.
//!
//! Where the C library can load it, by `dlopen`, at a point where the thread holds no lock of the allocator or the dynamic linker; else it is
//! [placed](crate::placed). In a process that was attached to before, it is there still.

use crate::agent::Loaded;
use crate::attach::Stops;
use crate::directory::Directory;
use crate::frames::Stacks;
use crate::guards::Guards;
use crate::inject::{Call, Failed};
use crate::maps;
use crate::patient::{CALL, Patient, TRY, explain, say};
use crate::placed::{Frames, Placement, owner_word};
use crate::shm::Shared;
use crate::target::{Symbols, Target, is_libc};
use crate::threads::{self, Held, NotHeld};
use crate::{Error, proc, seccomp};
use calltap_abi::{plan, remote};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How long a thread may take to load the agent.
const LOAD: Duration = Duration::from_secs(5);
/// How long the kernel may take to register the process, on a busy machine. No thread is stopped meanwhile.
const REGISTRATION: Duration = Duration::from_secs(30);
/// A program has loaded its libraries after this time, mostly.
const STARTING: Duration = Duration::from_millis(200);
/// Every thread is looked at once.
const ONCE: Duration = Duration::from_millis(1);
/// How long a thread is looked for that may call the dynamic linker, where the agent can be placed instead.
const UNLOCKED: Duration = Duration::from_secs(1);
/// The signal by which glibc has every thread change its user or group (SIGSETXID): the thread that asks for it waits for all others, with a lock held that
/// loading a library needs.
const SETXID: u64 = 1 << (33 - 1);
/// How often it is tried to place it.
const PLACINGS: usize = 10;
const RTLD_NOW: u64 = 2;
/// What is called of the C library; the second is how it was called before 2.34.
const LIBC: [&str; 4] = ["dlopen", "__libc_dlopen_mode", "dlerror", "munmap"];

/// Sees to it that no seccomp filter forbids a system call of the agent, but for reading memory: whether that is allowed.
fn check_filters(target: &Target, stops: &mut Stops) -> Result<bool, Error> {
    let mut readable = true;
    for tid in threads::list(target.pid).into_iter().filter(|tid| proc::is_filtered(*tid)) {
        let start = Instant::now();
        let taken = loop {
            match Held::take(target.pid, tid) {
                Err(NotHeld::Stuck) if start.elapsed() < TRY => continue,
                taken => break taken,
            }
        };
        let thread = match taken {
            Ok(thread) => thread,
            Err(NotHeld::Gone) => continue,
            Err(why) => return Err(target.refuse(&say(why))),
        };
        let filters = thread.seccomp_filters();
        stops.add(thread.release());
        readable &= filters.as_deref().is_ok_and(seccomp::allow_reading);
        let why = match filters.as_deref().map(seccomp::forbids) {
            Ok(None) => continue,
            Ok(Some(call)) => format!("its seccomp filter does not allow {call}, which the agent needs"),
            Err(errno) => format!(
                "it runs under a seccomp filter that may forbid what the agent does, and that cannot be read ({errno}): root can read it"
            ),
        };
        return Err(target.refuse(&why));
    }
    Ok(readable)
}

/// May the process read the time stamp counter, as far as one of its threads says? Threads have it from the one that has begun them. Under a seccomp
/// filter, which might kill it for being asked, it is taken to.
pub fn may_read_tsc(target: &Target) -> bool {
    let forbidden = || {
        let mut patient = Patient::new(target).ok()?;
        let mut thread = patient.any_thread().ok()?;
        let call = patient.place.tsc_call();
        let answer = patient.call(&mut thread, &call, CALL);
        patient.put_back(&thread);
        Some(answer == Ok(libc::PR_TSC_SIGSEGV as u64))
    };
    let ask = || std::thread::scope(|scope| scope.spawn(forbidden).join()).unwrap_or_default();
    proc::is_filtered(target.pid) || ask() != Some(true)
}

/// Why a process that has no place for a session's files cannot be attached to. A sandboxed one has no file system to speak of, and what it lacks first is
/// the right to load anything: its filter is the reason then.
pub fn explain_no_place(target: &Target, no_place: Error) -> Error {
    let work = || check_filters(target, &mut Stops::default()).err();
    // In a thread that ends: the kernel then lets go of whatever is still held.
    let filter = std::thread::scope(|scope| scope.spawn(work).join());
    // (One that is ending has no file system any more.)
    let ending = || proc::is_ending(target.pid) || !target.lives();
    filter.ok().flatten().unwrap_or_else(|| if ending() { target.refuse("it is ending") } else { no_place })
}

/// Loads the agent into a process, or finds it there from an earlier time, and has it join the session.
pub fn load(target: &Target, directory: &Directory, shared: &Shared) -> Result<Stops, Error> {
    let mut stops = Stops { threads: threads::list(target.pid).len(), ..Stops::default() };
    let readable = check_filters(target, &mut stops)?;
    shared.control().unreadable.store(u32::from(!readable), Relaxed);
    shared.control().locked.store(u32::from(target.locks_memory()), Relaxed);
    let start = Instant::now();
    loop {
        let mut patient = Patient::new(target);
        // A program that was only just started has not loaded its libraries yet.
        while patient.is_err() && target.lives() && start.elapsed() < STARTING {
            std::thread::sleep(Duration::from_millis(5));
            patient = Patient::new(target);
        }
        let mut patient = patient?;
        let mut thread = match patient.agent {
            // (The unwinder may have to be told still.)
            Some(agent) if agent.is_placed() => outside_unwinder(target, &mut patient)?,
            Some(_) => patient.any_thread()?,
            None => bring_in(target, directory, &mut patient)?,
        };
        let joined = join(target, directory, shared, &mut patient, &mut thread, None);
        patient.put_back(&thread);
        // What the thread that was borrowed has not done before it ended, another does.
        let again = joined.is_err() && thread.has_ended() && target.lives() && start.elapsed() < LOAD;
        stops.add(thread.release());
        if !again {
            joined?;
            await_registration(target, shared, patient.agent)?;
            return Ok(stops);
        }
    }
}

/// Brings the agent in. Where a dynamic linker has loaded it, it has joined the session already. The thread that was borrowed.
fn bring_in(target: &Target, directory: &Directory, patient: &mut Patient<'_>) -> Result<Held, Error> {
    let libc = Symbols::of(target.pid, &patient.regions, is_libc, |name| LIBC.contains(&name));
    let dlopen = libc
        .as_ref()
        .filter(|_| proc::has_dynamic_linker(target.pid))
        .and_then(|libc| libc.address("dlopen").or(libc.address("__libc_dlopen_mode")));
    let (thread, done) = match dlopen {
        Some(dlopen) => open_or_place(target, directory, patient, libc.as_ref(), dlopen),
        None => place(target, directory, patient),
    }?;
    if let Err(error) = done {
        patient.put_back(&thread);
        return Err(error);
    }
    Ok(thread)
}

/// A thread that was borrowed, and what came of it.
type Borrowed = (Held, Result<(), Error>);

/// Has the dynamic linker load the agent; or places it, which takes no lock, if no thread is soon found that holds none.
fn open_or_place(
    target: &Target,
    directory: &Directory,
    patient: &mut Patient<'_>,
    libc: Option<&Symbols>,
    dlopen: u64,
) -> Result<Borrowed, Error> {
    let guards = Guards::new(target.pid, &patient.regions);
    // An unwinder that cannot be told of a placed agent's frames leaves only the dynamic linker.
    let can_place = Frames::of(target, &patient.regions).is_ok();
    let patience = if can_place { UNLOCKED } else { TRY };
    let mut find = |patience| {
        patient.thread_outside(patience, |thread, text, regions| guards.inside(thread, text, regions))
    };
    let mut found = find(ONCE);
    if found.is_err() && target.lives() {
        guards.read_unwinder(&maps::read(target.pid).unwrap_or_default());
        found = find(patience);
    }
    let thread = match found {
        Err(_) if can_place && target.lives() => return place(target, directory, patient),
        found => found?,
    };
    open(target, directory, patient, libc, dlopen, thread)
}

/// Has the dynamic linker load the agent, by a thread that holds no lock.
fn open(
    target: &Target,
    directory: &Directory,
    patient: &mut Patient<'_>,
    libc: Option<&Symbols>,
    dlopen: u64,
    mut thread: Held,
) -> Result<Borrowed, Error> {
    let address = |name: &str| libc.and_then(|libc| libc.address(name));
    let path = directory.agent();
    let call = Call {
        function: dlopen,
        arguments: [patient.place.string_address(), RTLD_NOW],
        string: path.as_os_str().as_encoded_bytes(),
        complaint: address("dlerror").unwrap_or(0),
        let_in: SETXID,
    };
    if let Err(failed) = patient.call(&mut thread, &call, LOAD) {
        return Ok((thread, Err(explain(target, failed))));
    }
    let complaint = patient.place.complaint(&mut patient.text);
    if let (Some((_, scratch)), Some(munmap)) = (&complaint, address("munmap")) {
        let call = Call { function: munmap, arguments: *scratch, string: &[], complaint: 0, let_in: 0 };
        let _ = patient.call(&mut thread, &call, CALL);
    }
    let refused = |why| target.refuse(&format!("its dynamic linker did not load the agent: {why}"));
    Ok((thread, complaint.map_or(Ok(()), |(why, _)| Err(refused(why)))))
}

/// Places the agent in a process without a dynamic linker that could load it.
fn place(target: &Target, directory: &Directory, patient: &mut Patient<'_>) -> Result<Borrowed, Error> {
    let mut thread = outside_unwinder(target, patient)?;
    let done = place_by(target, directory, patient, &mut thread);
    Ok((thread, done))
}

/// A thread that holds no lock of the unwinder.
fn outside_unwinder(target: &Target, patient: &mut Patient<'_>) -> Result<Held, Error> {
    let frames = Frames::of(target, &patient.regions).map_err(|why| target.refuse(why))?;
    patient.thread_outside(TRY, |thread, text, regions| {
        let stack = Stacks::read(std::slice::from_ref(thread), text, regions);
        (!stack.words_in(&frames.unwinder).is_empty()).then_some("the unwinder")
    })
}

/// The same by a thread that holds no lock.
fn place_by(
    target: &Target,
    directory: &Directory,
    patient: &mut Patient<'_>,
    thread: &mut Held,
) -> Result<(), Error> {
    // Another thread may map something there in the same moment.
    for _ in 0..PLACINGS {
        map_agent(target, directory, patient, thread)?;
        if patient.agent.is_some() {
            break;
        }
    }
    patient.agent.map(drop).ok_or_else(|| target.refuse("the agent could not be mapped"))
}

/// Tells the program's unwinder of the agent's frames, if it has one that was not told yet: the calltap that placed the agent may have been killed before.
fn make_frames_known(target: &Target, patient: &mut Patient<'_>, thread: &mut Held) -> Result<(), Error> {
    let frames = Frames::of(target, &patient.regions).map_err(|why| target.refuse(why))?;
    let Some((function, arguments)) = patient.agent.and_then(|agent| frames.registration(&agent)) else {
        return Ok(());
    };
    if frames.are_known(arguments, &mut patient.text) {
        return Ok(());
    }
    let call = Call { function, arguments, string: &[], complaint: 0, let_in: 0 };
    patient.call(thread, &call, CALL).map_err(|failed| explain(target, failed))?;
    if frames.are_known(arguments, &mut patient.text) {
        return Ok(());
    }
    Err(target.refuse("its unwinder did not take notice of the agent's frames (LLVM's does not)"))
}

/// Brings the agent into a program that has only just begun, and has it join the session. The thread is still held.
pub fn start(
    target: &Target,
    directory: &Directory,
    shared: &Shared,
    patient: &mut Patient<'_>,
    mut thread: Held,
    owner_word: u64,
) -> Result<Held, Error> {
    let done = place_by(target, directory, patient, &mut thread)
        .and_then(|()| join(target, directory, shared, patient, &mut thread, Some(owner_word)));
    patient.put_back(&thread);
    done?;
    await_registration(target, shared, patient.agent)?;
    Ok(thread)
}

/// Has a thread map the agent where there is room for it. Then it is there, or another mapping is.
fn map_agent(
    target: &Target,
    directory: &Directory,
    patient: &mut Patient<'_>,
    thread: &mut Held,
) -> Result<(), Error> {
    let no_room = || target.refuse("there is no free address range near it for the agent");
    let placement = Placement::near(target, &patient.regions).ok_or_else(no_room)?;
    directory.replace_agent(&placement.file)?;
    let path = directory.agent();
    let (function, arguments, string) =
        patient.place.mapping_call(path.as_os_str().as_encoded_bytes(), &placement.mappings);
    let mapped =
        patient.call(thread, &Call { function, arguments, string: &string, complaint: 0, let_in: 0 }, CALL);
    patient.regions = maps::read(target.pid).unwrap_or_default();
    patient.agent = Loaded::find(&patient.regions, &mut patient.text);
    mapped.map(drop).map_err(|failed| explain(target, failed))
}

/// Has the agent join the session, if it has not yet, and register the process with the kernel.
fn join(
    target: &Target,
    directory: &Directory,
    shared: &Shared,
    patient: &mut Patient<'_>,
    thread: &mut Held,
    known_owner_word: Option<u64>,
) -> Result<(), Error> {
    let has_joined = || shared.process(0).is_some_and(|process| process.pid.load(Acquire) != 0);
    let explained = |failed: Failed| explain(target, failed);
    describe_process(target, shared);
    if patient.agent.is_none() && !has_joined() {
        // Its initialiser finds its files by way of /proc, which a process that has changed its user may not read.
        patient.regions = maps::read(target.pid).unwrap_or_default();
        patient.agent = Loaded::find(&patient.regions, &mut patient.text);
    }
    if let Some(agent) = patient.agent {
        if agent.is_placed() {
            let found = || owner_word(target, thread, &mut patient.text).map_err(|why| target.refuse(why));
            let word = known_owner_word.map_or_else(found, Ok)?;
            shared.control().owner_word.store(word, Release);
            make_frames_known(target, patient, thread)?;
        }
        patient.remote(thread, remote::JOIN, &directory.agent()).map_err(explained)?;
    }
    if !has_joined() {
        return Err(target.refuse("the agent could not map its memory"));
    }
    patient.regions = maps::read(target.pid).unwrap_or_default();
    patient.agent = Loaded::find(&patient.regions, &mut patient.text);
    patient.remote(thread, remote::REGISTER, Path::new("")).map_err(explained)
}

/// Tells the agent what its process may be unable to read of itself.
fn describe_process(target: &Target, shared: &Shared) {
    let control = shared.control();
    if let Some((headers, count)) = proc::program_headers(target.pid) {
        control.header_count.store(count, Relaxed);
        control.headers.store(headers, Relaxed);
    }
    control.pid_namespace.store(proc::pid_namespace(target.pid), Relaxed);
}

/// Waits until the kernel has registered the process.
fn await_registration(target: &Target, shared: &Shared, agent: Option<Loaded>) -> Result<(), Error> {
    let Some(process) = shared.process(0) else { return Ok(()) };
    let start = Instant::now();
    while process.sync.load(Acquire) == plan::Sync::Pending as u32 && start.elapsed() < REGISTRATION {
        std::thread::sleep(Duration::from_millis(1));
        // (Only looked at when it takes long.)
        if start.elapsed() < CALL / 20 {
            continue;
        }
        let regions = maps::read(target.pid).unwrap_or_default();
        if !target.lives() {
            return Err(explain(target, Failed::Thread(NotHeld::Gone)));
        }
        if !agent.is_some_and(|agent| agent.is_in(&regions)) {
            return Err(explain(target, Failed::NoAgent));
        }
    }
    Ok(())
}

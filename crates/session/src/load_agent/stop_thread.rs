//! Decides how the agent gets into a process, and stops a thread that can load it so.

use crate::error::Error;
use crate::load_agent::STARTING;
use calltap_abi::{CHUNKS_AT, stub};
use calltap_process::frames::{Stack, find};
use calltap_process::injection::guards::{Guards, UNWOUND, may_allocate};
use calltap_process::injection::inferior::{Inferior, TRY};
use calltap_process::injection::linker::first_objects;
use calltap_process::injection::placed::{Frames, owner_word};
use calltap_process::memory::maps::{self, Mappings};
use calltap_process::ptrace::threads::StoppedThread;
use calltap_process::reason::{Inside, Reason};
use calltap_process::target::{Symbols, Target, is_libc};
use calltap_process::unwind::Unwinder;
use calltap_process::{free_memory, limits, proc};
use std::time::{Duration, Instant};

/// Patience with which every thread is looked at once.
const ONCE: Duration = Duration::from_millis(1);
/// How long to look for a thread that may call the dynamic linker if the agent can be placed
/// instead.
const UNLOCKED: Duration = Duration::from_secs(1);
/// Least memory that a process with a session maps. Most of its own memory are shadow stacks.
const MEMORY: limits::Memory =
    limits::Memory { address_space: (3 * stub::REGION + stub::VENEERS + CHUNKS_AT) as u64, data: 40 << 20 };
/// Functions of the C library to call. Before glibc 2.34, `dlopen` and `dlclose` have the names
/// behind them.
const LIBC: [&str; 6] = ["dlopen", "__libc_dlopen_mode", "dlclose", "__libc_dlclose", "dlerror", "munmap"];

/// How the agent gets into a process.
pub(super) enum Way {
    /// An earlier attach has loaded the agent.
    Loaded,
    /// The dynamic linker opens the agent.
    Opened(DynamicLinker),
    /// System calls alone [place](calltap_process::injection::placed) the agent.
    Placed,
}

/// Functions of the C library by which the dynamic linker loads the agent.
pub(super) struct DynamicLinker {
    /// Address of `dlopen`.
    pub(super) dlopen: u64,
    /// Address of `dlclose`.
    pub(super) dlclose: Option<u64>,
    /// Address of `dlerror`.
    pub(super) dlerror: Option<u64>,
    /// Address of `munmap`.
    pub(super) munmap: Option<u64>,
    /// Whether [another object](Guards::has_other_allocators) than the C library defines the
    /// allocator.
    pub(super) has_other_allocators: bool,
}

/// A stopped thread, and how it gets the agent into its process.
type Chosen = (StoppedThread, Way);

/// Stops a thread that can load the agent, or join the session if the agent is loaded.
pub(super) fn stop_thread(inferior: &mut Inferior<'_>) -> Result<Chosen, Error> {
    match inferior.agent {
        // The agent's frames may still have to be registered with the unwinder.
        Some(agent) if agent.is_placed() => Ok((outside_unwinder(inferior)?, Way::Loaded)),
        Some(_) => Ok((inferior.any_thread()?, Way::Loaded)),
        None => loading_thread(inferior),
    }
}

/// Stops a thread that can load the agent.
fn loading_thread(inferior: &mut Inferior<'_>) -> Result<Chosen, Error> {
    let target = inferior.target;
    limits::check_mappings(target)
        .and_then(|()| limits::check_memory(target, MEMORY))
        .and_then(|()| free_memory::check_target(target))
        .map_err(|reason| target.refuse(reason))?;
    let first = first_objects(target.pid, &inferior.regions);
    let libc = Symbols::of(target.pid, &first, is_libc, |name| LIBC.contains(&name))
        .filter(|_| proc::has_dynamic_linker(target.pid));
    let address = |name: &str| libc.as_ref().and_then(|libc| libc.address(name));
    let Some(dlopen) = address("dlopen").or_else(|| address("__libc_dlopen_mode")) else {
        return placing_thread(inferior);
    };
    let guards = Guards::new(target.pid, &inferior.regions);
    let linker = DynamicLinker {
        dlopen,
        dlclose: address("dlclose").or_else(|| address("__libc_dlclose")),
        dlerror: address("dlerror"),
        munmap: address("munmap"),
        has_other_allocators: guards.has_other_allocators(),
    };
    opening_thread(inferior, &guards, linker)
}

/// Stops a thread that can call the dynamic linker; if no thread that holds no lock is found soon,
/// one that places the agent, which takes no lock.
fn opening_thread(
    inferior: &mut Inferior<'_>,
    guards: &Guards,
    linker: DynamicLinker,
) -> Result<Chosen, Error> {
    let target = inferior.target;
    // If the frames of a placed agent cannot be registered with the unwinder, only the dynamic
    // linker can load it.
    let can_place = Frames::of(target, &inferior.regions).is_ok();
    if can_place && linker.has_other_allocators && knows_owner_word(inferior)? {
        return placing_thread(inferior);
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
    match found {
        Err(_) if can_place && target.lives() => placing_thread(inferior),
        found => Ok((not_in_group_stop(target, found?)?, Way::Opened(linker))),
    }
}

/// Whether a process's threads have a word by which hooks find them. A placed agent has no other
/// way.
fn knows_owner_word(inferior: &mut Inferior<'_>) -> Result<bool, Error> {
    let thread = inferior.any_thread()?;
    Ok(owner_word(inferior.target, &thread, &mut inferior.text).is_ok())
}

/// Stops a thread that can place the agent.
fn placing_thread(inferior: &mut Inferior<'_>) -> Result<Chosen, Error> {
    Ok((outside_unwinder(inferior)?, Way::Placed))
}

/// Stops a thread that holds no lock of the unwinder or of the allocator, and has a control block
/// unless the program has been without one for some time.
fn outside_unwinder(inferior: &mut Inferior<'_>) -> Result<StoppedThread, Error> {
    let target = inferior.target;
    let frames = Frames::of(target, &inferior.regions).map_err(|why| target.refuse(why))?;
    let allocating = frames.allocating(target, &inferior.regions);
    let start = Instant::now();
    let mut stop = |patience, unwinder: Option<&Unwinder>| {
        inferior.thread_outside(patience, |thread, text, regions| {
            let may_start = start.elapsed() < STARTING && proc::has_one_thread(target.pid);
            if may_start && owner_word(target, thread, text) == Err(Reason::UnknownThreads) {
                return Some(Inside::Start);
            }
            let stack = Stack::read(thread, UNWOUND, text, &Mappings::known(regions));
            if find(&frames.locking, thread.regs.rip) || stack.leads_into(&frames.locking) {
                return Some(Inside::Unwinder);
            }
            may_allocate(thread, &stack, &allocating, unwinder).then_some(Inside::Allocator)
        })
    };
    let mut found = stop(UNLOCKED, None);
    if found.is_err() && target.lives() {
        // Reading the unwinding information takes long, so no thread is stopped meanwhile.
        let read = || Unwinder::new(target.pid, &maps::read(target.pid).unwrap_or_default());
        let unwinder = (!allocating.is_empty()).then(read);
        found = stop(TRY, unwinder.as_ref());
    }
    not_in_group_stop(target, found?)
}

/// Refuses a thread of a process that was stopped by a signal meanwhile: a call that takes locks
/// would wait for threads that do not run.
fn not_in_group_stop(target: &Target, thread: StoppedThread) -> Result<StoppedThread, Error> {
    if thread.is_in_group_stop() {
        return Err(target.refuse(Reason::StoppedMeanwhile).into());
    }
    Ok(thread)
}

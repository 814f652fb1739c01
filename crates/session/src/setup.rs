//! Setup of every session: shared memory, a clock, the kernel's events, and a planner that answers
//! the agents.

use crate::error::Error;
use crate::options::{Options, Subject};
use crate::plan::directory::Directory;
use crate::plan::planner::{Planner, Policy, check_selection};
use crate::{load_agent, started};
use calltap_abi::plan::{Phase, Trouble};
use calltap_abi::{CHUNK_SIZE, Clock, MAGIC, PATH_MAX, PROCESS_MAX, VERSION, stub};
use calltap_collect::collector::Totals;
use calltap_collect::metadata::Metadata;
use calltap_collect::shm::{self, Shared};
use calltap_collect::waits::kernel::Tracepoints;
use calltap_process::Reason;
use calltap_process::clock;
use calltap_process::proc;
use calltap_process::target::Target;
use calltap_sched::{NoFunctions, Refused, Sched};
use calltap_selection::{Candidates, ParsedSelection, chooser};
use calltap_sites::Discovery;
use calltap_trace::Session;
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{PoisonError, Weak};
use std::time::Duration;
use std::{env, fs, thread};

/// Size of the code file, bytes.
pub const CODE_SIZE: u64 = (stub::REGION + stub::VENEERS) as u64;

/// Bytes of ring memory that few threads may use, unless the user says otherwise.
const BY_FEW: u64 = 256 << 20;
/// Bytes of rings that keep a process's newest events without a controller. Each thread adds
/// [`KEPT_OF_EACH`]: with one chunk, a thread cannot keep its newest events.
const KEPT: u64 = 64 << 20;
const KEPT_OF_EACH: u64 = (NEWEST as usize * CHUNK_SIZE) as u64;
const NEWEST: u32 = 2;
/// Maximum bytes that threads add.
const MOST_KEPT: u64 = 512 << 20;
/// Number of threads of a starting program that may add a chunk each.
const PROGRAM_THREADS: u32 = 12 << 10;
/// Number of threads of a running process from which it may use two more chunks for each thread.
const MANY_THREADS: u32 = 64;

/// Returns the number of chunks that the control file has space for. They take address space of the
/// program and of the recorder, and count towards the file size limit.
pub fn chunks(options: &Options) -> u32 {
    let is_limited = [Resource::As, Resource::Fsize].into_iter().any(|of| getrlimit(of).current.is_some());
    let threads = match options.subject {
        _ if options.buffer_size.is_some() || is_limited => 0,
        Subject::Process { pid, .. } => match proc::threads(pid).len() as u32 {
            0..MANY_THREADS => 0,
            threads => 2 * threads,
        },
        Subject::Program(_) => PROGRAM_THREADS,
    };
    by_few(options).saturating_add(threads)
}

/// Returns the number of chunks that may be used however few threads there are.
fn by_few(options: &Options) -> u32 {
    let bytes = options.buffer_size.unwrap_or(BY_FEW);
    u32::try_from((bytes / CHUNK_SIZE as u64).max(4)).unwrap_or(u32::MAX)
}

/// Returns the bytes of ring memory for a process without a controller.
pub fn kept_size(pid: u32) -> u64 {
    let threads = proc::count_threads(pid).unwrap_or(0) as u64;
    KEPT + (threads * KEPT_OF_EACH).min(MOST_KEPT)
}

/// Provides all chunks at once, and reserves [`NEWEST`] for each thread. Returns a note if there
/// are too few.
pub fn provide_kept(shared: &Shared, pid: u32) -> Option<String> {
    shared.provide_all();
    let threads = u32::try_from(proc::count_threads(pid).unwrap_or(0)).unwrap_or(u32::MAX);
    let control = shared.control();
    control.reserved.store(threads.saturating_mul(NEWEST), Relaxed);
    let served = control.chunk_count.load(Relaxed) / NEWEST;
    (served < threads).then(|| {
        let megabytes = (u64::from(threads) * KEPT_OF_EACH).div_ceil(1 << 20);
        format!(
            "the rings have room for {served} of {threads} threads: the calls of the other threads are lost; --buffer-size {megabytes}M has room for all, and needs that much free memory"
        )
    })
}

/// Maps the memory that is shared with the agents.
pub fn map(directory: &Directory, options: &Options) -> Result<Shared, Error> {
    let room = directory.control.metadata().map_or(0, |meta| shm::chunks_in(meta.len()));
    let shared = Shared::map(&directory.control, room, by_few(options)).and_then(|shared| {
        if options.discovery == Discovery::FirstCall {
            shared.provide_first()?;
        }
        let words = &options.selection.words;
        if words.traces_python() {
            shared.select_python(&words.python, words.futures, 0)?;
            shared.read_python(&words.python_arguments)?;
        }
        Ok(shared)
    });
    shared.map_err(|source| Error::system("the session's shared memory", source))
}

/// Returns the requested clock, or its substitute and the reason if the time stamp counter cannot
/// be trusted.
pub fn usable_clock(wanted: Clock) -> (Clock, Option<String>) {
    match (wanted, clock::tsc_distrust()) {
        (Clock::Tsc | Clock::Sparse, Some(why)) => (Clock::Coarse, Some(why)),
        _ => (wanted, None),
    }
}

/// Returns the clock for a running process, which may have forbidden itself to read the time stamp
/// counter.
pub fn usable_clock_of(target: &Target, wanted: Clock) -> (Clock, Option<String>) {
    match usable_clock(wanted) {
        (Clock::Tsc | Clock::Sparse, _) if !load_agent::may_read_tsc(target) => (
            Clock::Coarse,
            Some("the process forbids itself to read the time stamp counter (PR_SET_TSC)".into()),
        ),
        usable => usable,
    }
}

/// Writes the options to shared memory. From then on an agent may join.
pub fn prepare(shared: &Shared, directory: &Directory, options: &Options, clock: Clock, wait: Duration) {
    let control = shared.control();
    // The last byte stays 0.
    let path = directory.agent();
    let places = control.agent_path.iter().take(PATH_MAX - 1);
    for (place, byte) in places.zip(path.as_os_str().as_encoded_bytes()) {
        place.store(*byte, Relaxed);
    }
    control.clock.store(clock as u32, Relaxed);
    control.recording.store(1, Relaxed);
    control.listening.store(1, Relaxed);
    control.overwrite.store(u32::from(options.overwrite), Relaxed);
    control.wait_us.store(u32::try_from(wait.as_micros()).unwrap_or(u32::MAX), Relaxed);
    control.tick.store(clock::monotonic_ns(), Relaxed);
    control.counter.store(1, Relaxed);
    control.version.store(VERSION, Relaxed);
    control.magic.store(MAGIC, Release);
}

/// Returns the session record of the trace.
pub fn session(options: &Options, command: Vec<String>, clock: Clock, clock_note: Option<String>) -> Session {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Session {
        calltap: options.version.to_owned(),
        command,
        host: line("/proc/sys/kernel/hostname"),
        kernel: format!("{} {}", line("/proc/sys/kernel/osrelease"), env::consts::ARCH),
        cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
        start_realtime_ns: clock::realtime_ns(),
        start_monotonic_ns: clock::monotonic_ns(),
        clock: clock::kind(clock),
        clock_note,
        tracers: options.selection.tracers.clone(),
    }
}

/// Sources of kernel events that are recorded, and notes for the user.
pub struct FromKernel {
    /// When threads run and wait; None if not requested.
    pub sched: Option<Result<Sched, Refused>>,
    /// Wakings of threads, and their system calls.
    pub tracepoints: Tracepoints,
    /// Globs of the recorded functions of the kernel.
    pub functions: Option<String>,
    /// Why requested events are missing.
    pub notes: Vec<String>,
}

/// Begins to record a process's kernel events. With a clock without time, they would say nothing,
/// so none are recorded.
pub fn from_kernel(options: &Options, clock: Clock, pid: u32) -> FromKernel {
    let has_time = clock != Clock::Counter;
    let sched = (options.sched && has_time).then(|| calltap_sched::switches(pid, options.follow));
    let tracepoints = Tracepoints {
        wakings: (options.wakings && has_time).then(|| calltap_sched::wakings(pid)),
        system_calls: (options.system_calls && has_time)
            .then(|| calltap_sched::system_calls(pid, options.follow)),
        incidents: (options.incidents && has_time).then(|| calltap_sched::incidents(pid, options.follow)),
    };
    let refused = [
        sched.as_ref().and_then(|sched| sched.as_ref().err()),
        tracepoints.wakings.as_ref().and_then(|wakings| wakings.as_ref().err()),
        tracepoints.system_calls.as_ref().and_then(|calls| calls.as_ref().err()),
        tracepoints.incidents.as_ref().and_then(|incidents| match incidents {
            Ok(incidents) => incidents.signals.as_ref(),
            Err(refused) => Some(refused),
        }),
    ];
    let refused = refused.into_iter().flatten().filter(|refused| !refused.is_gone());
    let mut notes: Vec<String> = refused.map(ToString::to_string).collect();
    let functions = watch_functions(options, clock, pid).unwrap_or_else(|refused| {
        notes.push(refused.to_string());
        None
    });
    FromKernel { sched, tracepoints, functions, notes }
}

/// Begins to record functions of the kernel that a process's threads run. Returns their globs, if
/// some were requested.
fn watch_functions(options: &Options, clock: Clock, pid: u32) -> Result<Option<String>, NoFunctions> {
    let Some(functions) = options.kernel.as_ref().and_then(Weak::upgrade) else { return Ok(None) };
    if clock != Clock::Tsc {
        return Err(NoFunctions::OtherClock);
    }
    let mut functions = functions.lock().unwrap_or_else(PoisonError::into_inner);
    functions.watch(pid)?;
    Ok(Some(functions.globs().to_owned()))
}

/// Advances the coarse clock.
pub fn tick(shared: &Shared, stop: &AtomicBool) {
    while !stop.load(Acquire) {
        shared.control().tick.store(clock::monotonic_ns(), Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

/// How long work takes before the user is told.
const LONG: Duration = Duration::from_secs(2);

/// Returns the message about a program that waits until its traceable functions are known.
pub fn waiting(name: &str) -> String {
    format!("{name} is held until calltap has decoded its functions")
}

/// Runs `work`, and reports `text` to the user if it takes long.
pub fn tell_if_long<T>(options: &Options, text: String, work: impl FnOnce() -> T) -> T {
    let tell = options.tell;
    thread::scope(|scope| {
        let (done, waiting) = mpsc::channel::<()>();
        scope.spawn(move || {
            if waiting.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                tell(&text);
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// A guard: agents are answered until it is dropped; then waiting ones go on.
struct Answering<'s>(&'s Shared);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.control().listening.store(0, Release);
    }
}

/// Calls `work` with a planner for the requested tracers and filters. `accepted` is called once
/// they are valid for the traceable functions.
pub fn with_planner<T>(
    shared: &Shared,
    directory: &Directory,
    options: &Options,
    name: &str,
    accepted: &(dyn Fn() + Send + Sync),
    work: impl FnOnce(&mut Planner<'_>) -> T,
) -> T {
    let _answering = Answering(shared);
    let check = |candidates: &Candidates| {
        // Functions that are found later cannot be checked now.
        if options.discovery == Discovery::FirstCall || options.follow {
            return Ok(());
        }
        if candidates.traceable().next().is_none() {
            return Err(no_sites(name, candidates));
        }
        check_selection(&options.selection.selector, candidates)
    };
    let ParsedSelection { selector, words, .. } = &options.selection;
    let policy = Policy {
        choose: Box::new(chooser(&options.selection, true)),
        reach: Box::new(|candidates| selector.reach(candidates)),
        selector: Some(selector),
        check: &check,
        accepted,
        mode: options.patch_mode,
        quiet: matches!(options.subject, Subject::Program(_)) || options.follow,
        discovery: options.discovery,
        futures: words.polls(),
        libcalls: words.libcalls,
        int3: words.int3,
    };
    work(&mut Planner::new(shared, directory, policy))
}

/// Answers the agents' requests until `ended`, and calls `meanwhile` between them.
pub fn answer_all(
    planner: &mut Planner<'_>,
    options: &Options,
    name: &str,
    shared: &Shared,
    records: &Sender<Metadata>,
    ended: &AtomicBool,
    meanwhile: &mut dyn FnMut(&mut Planner<'_>),
) -> Result<(), Error> {
    let control = shared.control();
    let mut known = 0;
    while !ended.load(Acquire) {
        meanwhile(planner);
        let bell = control.doorbell.load(Acquire);
        shared.check()?;
        for index in shared.processes() {
            let Some(process) = shared.process(index) else { break };
            // An answer may take seconds, and there may be thousands of entries.
            if ended.load(Acquire) || process.pid.load(Acquire) == 0 {
                break; // told to end, or being filled in
            }
            if index >= known {
                known = index + 1;
                match process.parent.load(Relaxed).checked_sub(1) {
                    Some(parent) => planner.fork(parent, index),
                    None => planner.enter(index),
                }
            }
            if process.phase.load(Acquire) == Phase::Asked as u32 {
                tell_if_long(options, waiting(name), || {
                    planner.answer(index, &mut |record| drop(records.send(record)))
                })?;
                started::tell(options, planner);
            }
        }
        shm::wait(&control.doorbell, bell, Duration::from_millis(20));
    }
    Ok(())
}

fn no_sites(program: &str, candidates: &Candidates) -> Error {
    let functions = candidates.functions().count();
    let advice = format!(
        "none of its {functions} functions has room for tracing; compile with -fpatchable-function-entry=5 \
         (gcc, clang), -Z patchable-function-entry=5 (rustc), or -pg"
    );
    Error::NoSites { program: program.to_owned(), advice }
}

/// Returns notes about problems of the agents, for the user.
pub fn trouble(shared: &Shared, program: &str, totals: Totals) -> Vec<String> {
    let mut notes = Vec::new();
    let unmapped = shared.control().unmapped.load(Relaxed);
    if unmapped > 0 {
        let those = if unmapped == 1 { "a process".to_owned() } else { format!("{unmapped} processes") };
        notes.push(format!("{program}: {those} ran untraced: {}", Reason::AgentNoMemory));
    } else if totals.processes == 0 {
        notes.push(format!("{program}: the program ran untraced: the dynamic linker did not load the agent"));
    }
    if totals.processes as usize >= PROCESS_MAX {
        notes.push(format!("calltap records at most {PROCESS_MAX} processes: later ones were not recorded"));
    }
    let all = (0..totals.processes).filter_map(|index| shared.process(index));
    let bits = all.fold(0, |bits, process| bits | process.trouble.load(Relaxed));
    let mut add = |trouble: Trouble, text: &str| {
        if bits & trouble as u32 != 0 {
            notes.push(text.to_owned());
        }
    };
    add(
        Trouble::NoShadowStack,
        "there was no memory for the shadow stacks of some stacks: calls on them are counted as lost",
    );
    add(Trouble::NoAnswer, "the recorder did not answer in time: some modules were not traced");
    notes.extend(shared.python_trouble());
    notes
}

/// Ends [answering](answer_all) of requests.
pub fn end_planning(shared: &Shared, ended: &AtomicBool) {
    ended.store(true, Release);
    shared.control().doorbell.fetch_add(1, AcqRel);
    shm::wake(&shared.control().doorbell);
}

/// A guard that sets a flag when it is dropped, even by a panic, so that no thread waits for the
/// flag for ever.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

//! The memory that a session shares with its agents: its size, its mapping, its first contents.

use crate::error::Error;
use crate::options::{PlanOptions, RingOptions, Subject};
use crate::plan::directory::Directory;
use calltap_abi::{CHUNK_SIZE, Clock, MAGIC, PATH_MAX, VERSION, stub};
use calltap_collect::shm::{self, Shared};
use calltap_process::clock::TimeOffsets;
use calltap_process::{clock, proc};
use calltap_sites::Discovery;
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::Ordering::*;

/// Size of the code file, bytes.
pub(crate) const CODE_SIZE: u64 = (stub::REGION + stub::VENEERS) as u64;

/// Bytes of ring memory that few threads may use, unless the user says otherwise.
const BY_FEW: u64 = 256 << 20;
/// Bytes of rings that keep a process's newest events without a controller. Each thread adds
/// [`KEPT_OF_EACH`]: with one chunk, a thread cannot keep its newest events.
const KEPT: u64 = 64 << 20;
const KEPT_OF_EACH: u64 = (NEWEST as usize * CHUNK_SIZE) as u64;
const NEWEST: u32 = 2;
/// Maximum bytes that threads add.
const MAX_KEPT: u64 = 512 << 20;
/// Number of threads of a starting program that may add a chunk each.
const PROGRAM_THREADS: u32 = 12 << 10;
/// Number of threads of a running process from which it may use two more chunks for each thread.
const MANY_THREADS: u32 = 64;

/// Returns the number of chunks that the control file has space for. They take address space of the
/// program and of the recorder, and count towards the file size limit.
pub(crate) fn chunks(buffer_size: Option<u64>, subject: &Subject) -> u32 {
    let is_limited = [Resource::As, Resource::Fsize].into_iter().any(|of| getrlimit(of).current.is_some());
    let threads = match *subject {
        _ if buffer_size.is_some() || is_limited => 0,
        Subject::Process { pid, .. } => match proc::threads(pid).len() as u32 {
            0..MANY_THREADS => 0,
            threads => 2 * threads,
        },
        Subject::Program(_) => PROGRAM_THREADS,
    };
    by_few(buffer_size).saturating_add(threads)
}

/// Returns the number of chunks that may be used however few threads there are.
fn by_few(buffer_size: Option<u64>) -> u32 {
    let bytes = buffer_size.unwrap_or(BY_FEW);
    u32::try_from((bytes / CHUNK_SIZE as u64).max(4)).unwrap_or(u32::MAX)
}

/// Returns the bytes of ring memory for a process without a controller.
pub fn kept_size(pid: u32) -> u64 {
    let threads = proc::count_threads(pid).unwrap_or(0) as u64;
    KEPT + (threads * KEPT_OF_EACH).min(MAX_KEPT)
}

/// Provides all chunks at once, and reserves [`NEWEST`] for each thread. Returns a note if there
/// are too few.
pub(crate) fn provide_kept(shared: &Shared, pid: u32) -> Option<String> {
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
pub(crate) fn map(
    directory: &Directory,
    buffer_size: Option<u64>,
    plan: &PlanOptions,
) -> Result<Shared, Error> {
    let room = directory.control.metadata().map_or(0, |meta| shm::chunks_in(meta.len()));
    let shared = Shared::map(&directory.control, room, by_few(buffer_size)).and_then(|shared| {
        if plan.discovery == Discovery::FirstCall {
            shared.provide_first()?;
        }
        let words = &plan.selection.words;
        if words.traces_python() {
            shared.select_python(&words.python, words.futures, 0)?;
            shared.read_python(&words.python_arguments)?;
        }
        Ok(shared)
    });
    shared.map_err(|source| Error::system("the session's shared memory", source))
}

/// Writes the options to shared memory. From then on an agent may join.
pub(crate) fn prepare(shared: &Shared, directory: &Directory, clock: Clock, rings: &RingOptions) {
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
    control.overwrite.store(u32::from(rings.overwrite), Relaxed);
    control.wait_us.store(u32::try_from(rings.wait.as_micros()).unwrap_or(u32::MAX), Relaxed);
    control.tick.store(clock::monotonic_ns(), Relaxed);
    let (ticks, now_ns) = clock::raw_pair();
    control.tsc_line.begin(ticks, now_ns);
    control.tsc_line.ahead_ns.store(TimeOffsets::of("self").monotonic.cast_unsigned(), Relaxed);
    control.counter.store(1, Relaxed);
    control.version.store(VERSION, Relaxed);
    control.magic.store(MAGIC, Release);
}

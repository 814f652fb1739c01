//! Loads the agent into a running process: one hijacked thread loads it, and has it join the
//! session.
//!
//! If the C library can load it, the thread calls `dlopen` at a point where it holds no lock of the
//! allocator or the dynamic linker. Otherwise the agent is
//! [placed](calltap_process::injection::placed). In a process that was attached to before, the
//! agent is still loaded.

pub(crate) mod check_filters;
mod loading_thread;
mod stop_thread;

use crate::error::Error;
use crate::plan::directory::Directory;
use calltap_abi::plan;
use calltap_collect::shm::Shared;
use calltap_process::agent::LoadedAgent;
use calltap_process::clock::TimeOffsets;
use calltap_process::injection::inferior::{CALL, Inferior};
use calltap_process::injection::inject::Failed;
use calltap_process::memory::maps;
use calltap_process::proc;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::ptrace::threads::{NotHeld, StoppedThread};
use calltap_process::target::Target;
use check_filters::check_filters;
use loading_thread::{LOAD, LoadingThread};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use stop_thread::stop_thread;

/// Time limit for the kernel to register the process, on a busy machine. No thread is stopped
/// meanwhile.
const REGISTRATION: Duration = Duration::from_secs(30);
/// Time by when a program has mostly loaded its libraries.
const STARTING: Duration = Duration::from_millis(200);

/// A process that the agent is loaded into, and the session that the process joins.
#[derive(Clone, Copy)]
pub(crate) struct Loading<'a> {
    pub(crate) target: &'a Target,
    pub(crate) directory: &'a Directory,
    pub(crate) shared: &'a Shared,
}

impl<'a> Loading<'a> {
    /// Loads the agent into the process, or finds it from an earlier attach, and has it join the
    /// session. Returns how long threads were stopped.
    pub(crate) fn load(self) -> Result<Stops, Error> {
        let Loading { target, shared, .. } = self;
        let mut stops = Stops { threads: proc::threads(target.pid).len(), ..Stops::default() };
        check_filters(target, &mut stops)?.store(shared);
        shared.control().locked.store(u32::from(target.locks_memory()), Relaxed);
        self.describe_process();
        let start = Instant::now();
        loop {
            let mut inferior = self.inferior(start)?;
            let (mut thread, way) = stop_thread(&mut inferior)?;
            let joined = {
                let mut loading = self.hijack(&mut inferior, &mut thread);
                loading.load(&way)?;
                loading.join(None)
            };
            // If the hijacked thread ended before it was done, another one is tried.
            let again = joined.is_err() && thread.has_ended() && target.lives() && start.elapsed() < LOAD;
            stops.add(thread.release());
            if !again {
                joined?;
                self.await_registration(inferior.agent)?;
                return Ok(stops);
            }
        }
    }

    /// Places the agent in a program that has only just begun, and has it join the session. Returns
    /// the thread, still held.
    pub(crate) fn start(
        self,
        inferior: &mut Inferior<'a>,
        mut thread: StoppedThread,
        owner_word: u64,
    ) -> Result<StoppedThread, Error> {
        self.describe_process();
        {
            let mut loading = self.hijack(inferior, &mut thread);
            loading.place()?;
            loading.join(Some(owner_word))?;
        }
        self.await_registration(inferior.agent)?;
        Ok(thread)
    }

    /// Prepares a stopped thread of the process to load the agent.
    fn hijack<'h>(
        self,
        inferior: &'h mut Inferior<'a>,
        thread: &'h mut StoppedThread,
    ) -> LoadingThread<'h, 'a> {
        let Loading { directory, shared, .. } = self;
        LoadingThread { directory, shared, hijacked: inferior.hijack(thread), close: None }
    }

    /// Prepares operations on the process. A program that was only just started at `start` has not
    /// loaded its libraries yet.
    fn inferior(self, start: Instant) -> Result<Inferior<'a>, Error> {
        let mut inferior = Inferior::new(self.target);
        while inferior.is_err() && self.target.lives() && start.elapsed() < STARTING {
            std::thread::sleep(Duration::from_millis(5));
            inferior = Inferior::new(self.target);
        }
        Ok(inferior?)
    }

    /// Writes what the process may be unable to read about itself to shared memory.
    fn describe_process(self) {
        let (pid, control) = (self.target.pid, self.shared.control());
        if let Some((headers, count)) = proc::program_headers(pid) {
            control.header_count.store(count, Relaxed);
            control.headers.store(headers, Relaxed);
        }
        control.pid_namespace.store(proc::pid_namespace(pid), Relaxed);
        let ahead = TimeOffsets::of(pid).monotonic;
        control.tsc_line.ahead_ns.store(ahead.cast_unsigned(), Relaxed);
    }

    /// Waits until the kernel has registered the process.
    fn await_registration(self, agent: Option<LoadedAgent>) -> Result<(), Error> {
        let Loading { target, shared, .. } = self;
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
}

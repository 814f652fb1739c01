//! Checks, before the agent is loaded, which of its system calls the process allows.

use crate::error::Error;
use calltap_collect::shm::Shared;
use calltap_process::Reason;
use calltap_process::injection::inferior::TRY;
use calltap_process::memory::maps;
use calltap_process::ptrace::in_tracer_thread;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::ptrace::threads::{NotHeld, StoppedThread};
use calltap_process::target::Target;
use calltap_process::{proc, seccomp};
use std::sync::atomic::Ordering::*;
use std::time::Instant;

/// System calls that the agent makes only if all seccomp filters of a process allow them.
pub(super) struct Allowed {
    /// Whether no thread has a filter.
    unfiltered: bool,
    /// Calls that read memory.
    reading: bool,
    /// The question whether a thread may read the time stamp counter.
    asking: bool,
}

impl Allowed {
    /// Writes to shared memory which system calls the agent may make.
    pub(super) fn store(&self, shared: &Shared) {
        let control = shared.control();
        control.unreadable.store(u32::from(!self.reading), Relaxed);
        control.unasked.store(u32::from(!self.asking), Relaxed);
        control.unfiltered.store(u32::from(self.unfiltered), Relaxed);
    }
}

/// Checks that neither a seccomp filter nor the program itself keeps the agent from making system
/// calls.
pub(super) fn check_filters(target: &Target, stops: &mut Stops) -> Result<Allowed, Error> {
    let mut allowed = Allowed { unfiltered: true, reading: true, asking: true };
    // The kernel reports only of a stopped thread whether its system calls raise SIGSYS. A program
    // without a handler for that signal would not survive them.
    let may_dispatch = proc::handles_signal(target.pid, libc::SIGSYS);
    // Loading the agent allocates memory, for the first time in a process without a heap.
    let has_heap = maps::read(target.pid).is_ok_and(|regions| maps::has_heap(&regions));
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
        let forbids = |filters: &[Vec<_>]| {
            let allocating = if has_heap { None } else { seccomp::forbids_allocating(filters) };
            seccomp::forbids(filters).or(allocating)
        };
        let why = match filters.as_deref().map(forbids) {
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
pub(crate) fn explain_no_place(target: &Target, no_place: Error) -> Error {
    let work = || check_filters(target, &mut Stops::default()).err();
    let filter = in_tracer_thread(work);
    // A process that is ending has no file system any more.
    let ending = || proc::is_ending(target.pid) || !target.lives();
    filter
        .ok()
        .flatten()
        .unwrap_or_else(|| if ending() { target.refuse(Reason::Ending).into() } else { no_place })
}

//! Threads of another process, held for a moment by ptrace. A tracer is a thread: call this in one
//! that ends soon, and at its end the kernel releases all threads that are still held.
//!
//! A held thread that waits in a system call must not notice the stop. The kernel restarts most
//! calls by itself; calltap at once restarts those that end with EINTR, unless a signal is pending
//! that could be the reason. A time-out of such a call begins anew. If calltap is killed between
//! the two, the call ends as after a SIGSTOP.

mod all;
mod faults;
mod helper_tracer;
mod not_held;
mod opener;
mod restartable;
mod signals;
mod stop;
mod trip;

pub use all::{Keep, Stopped, has_ordinary, stop_machine};
pub(crate) use faults::FAULT_SIGNALS;
pub use helper_tracer::aside;
pub use not_held::{Interrupted, NotHeld};

use crate::proc;
use crate::ptrace::requests;
use crate::ptrace::tracees::{self, Reaper};
use crate::ptrace::urgent::{Urgent, is_background};
use crate::ptrace::wait::{self, Report};
use crate::status::Status;
use all::{keep, take_back};
use helper_tracer::{HelperTracer, request};
use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::unistd::Pid;
use restartable::RESTARTABLE;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stop::{Pauses, Resume, Standing, await_stop, lost, registers, resume};

/// How long to wait for a thread that is in the kernel, where it cannot be stopped.
const STOP_TIMEOUT: Duration = Duration::from_millis(300);
/// How long to wait for a thread in the kernel while other threads stand still.
const SHORT_PATIENCE: Duration = Duration::from_millis(20);
/// Code segment of 64-bit user code, and that in a guest of Xen without virtualization of the
/// processor.
pub(crate) const USER_CODE: [u16; 2] = [0x33, 0xe033];
/// Length of the instruction `syscall`.
const SYSCALL: u64 = 2;
const RESTART_SYSCALL: u64 = 219;

/// A stopped thread. Dropping this releases it as if it had never been stopped.
#[derive(Debug)]
pub struct StoppedThread {
    /// Thread id.
    pub tid: u32,
    /// Current registers.
    pub regs: user_regs_struct,
    /// System call that the stop interrupted.
    pub system_call: Option<u64>,
    /// Registers as of the stop.
    stopped: user_regs_struct,
    process: u32,
    since: Instant,
    running: bool,
    /// Whether a stop signal has stopped its process.
    in_group_stop: bool,
    /// Whether the second thread of the one that stopped it is the tracer.
    is_seconds: bool,
    _urgent: Arc<Urgent>,
}

fn pid(tid: u32) -> Pid {
    Pid::from_raw(tid as i32)
}

/// Returns the threads of a process in the order in which to stop one of them: those that a stop
/// disturbs least come first.
///
/// 1. all others
/// 2. threads that wait in a system call which a stop ends with EINTR
/// 3. threads that the scheduler may leave without a processor for long
/// 4. threads that have [children](has_children)
pub(crate) fn list_least_disturbed_first(process: u32) -> Vec<u32> {
    let mut tids = proc::threads(process);
    let waits = |tid: &u32| {
        let call = fs::read_to_string(format!("/proc/{process}/task/{tid}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        number.is_some_and(|number| RESTARTABLE.contains(&number))
    };
    tids.sort_by_cached_key(|tid| (has_children(process, *tid), is_background(*tid), waits(tid)));
    tids
}

/// Whether a thread has child processes.
///
/// When a child ends, the kernel sends SIGCHLD to the thread that started it. It drops the signal
/// if the program leaves it at its default, but not for a traced thread. While that thread stands
/// still, another is woken for the signal, whose wait may then end with EINTR.
pub(crate) fn has_children(process: u32, tid: u32) -> bool {
    let children = fs::read_to_string(format!("/proc/{process}/task/{tid}/children"));
    children.is_ok_and(|children| !children.trim().is_empty())
}

/// Makes this thread the tracer of another thread, which runs on.
fn seize(tid: u32) -> Result<(), NotHeld> {
    seize_with(tid, ptrace::Options::PTRACE_O_TRACESYSGOOD)
}

fn seize_with(tid: u32, options: ptrace::Options) -> Result<(), NotHeld> {
    let seized = seize_here(tid, options);
    // This thread's second one may be the tracer already.
    let by_second = || HelperTracer::known()?.ask(move || seize_here(tid, options));
    match seized.or_else(|errno| if errno == Errno::EPERM { by_second().unwrap_or(seized) } else { seized }) {
        Err(Errno::ESRCH) => Err(NotHeld::Gone),
        Err(Errno::EPERM) if has_ended(tid) => Err(NotHeld::Gone),
        Err(errno) => Err(NotHeld::Refused(errno)),
        Ok(()) => Ok(()),
    }
}

fn seize_here(tid: u32, options: ptrace::Options) -> Result<(), Errno> {
    match ptrace::seize(pid(tid), options) {
        Err(Errno::EPERM) if is_ours(tid) => Ok(()),
        Ok(()) => {
            tracees::add(tid);
            Ok(())
        }
        refused => refused,
    }
}

/// Whether this thread is the tracer already, as it could not stop the thread in time earlier.
fn is_ours(tid: u32) -> bool {
    let tracer = Status::of(tid).ok().and_then(|status| status.tracer());
    tracer.is_some_and(|tracer| tracer as i32 == nix::unistd::gettid().as_raw())
}

impl StoppedThread {
    /// Stops a thread.
    pub fn take(process: u32, tid: u32) -> Result<StoppedThread, NotHeld> {
        if let Some(held) = take_back(process, Some(tid)).pop() {
            return Ok(held);
        }
        let _reaper = tracees::is_any().then(Reaper::start);
        seize(tid)?;
        interrupt(tid)?;
        StoppedThread::stop(process, tid, Instant::now(), STOP_TIMEOUT)
    }

    /// Waits until a thread that was asked to stop stands still. `since`: when it was asked.
    fn stop(process: u32, tid: u32, since: Instant, patience: Duration) -> Result<StoppedThread, NotHeld> {
        let _urgent = Urgent::now();
        let standing = await_stop(tid, Instant::now(), patience)?;
        StoppedThread::new(process, tid, standing, since)
    }

    fn new(process: u32, tid: u32, standing: Standing, since: Instant) -> Result<StoppedThread, NotHeld> {
        let Standing { regs, in_group_stop } = standing;
        let mut held = StoppedThread {
            tid,
            regs,
            system_call: None,
            stopped: regs,
            process,
            since,
            running: false,
            in_group_stop,
            is_seconds: false,
            _urgent: Urgent::now(),
        };
        held.settle()?;
        Ok(held)
    }

    /// Takes a new child from before its execve to the first instruction of its program. `begin`
    /// lets it go on to the execve.
    pub fn child(process: u32, begin: &mut dyn FnMut()) -> Result<StoppedThread, NotHeld> {
        const EXEC: i32 = libc::PTRACE_EVENT_EXEC;
        let (since, mut pauses, mut is_program) = (Instant::now(), Pauses::default(), false);
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD;
        seize_with(process, options | ptrace::Options::PTRACE_O_TRACEEXEC)?;
        begin();
        loop {
            match wait::poll(process) {
                Report::Runs => pauses.wait(),
                Report::Ended => return Err(NotHeld::Gone),
                Report::Interrupted if is_program => break,
                report => {
                    is_program |= report == Report::Event(EXEC);
                    // From within the execve, the child goes on to its end. Every stop uses up the
                    // request to stop.
                    is_program.then(|| interrupt(process)).transpose()?;
                    let signal = if let Report::Signal(signal) = report { signal } else { 0 };
                    resume(process, Resume::Freely, signal)?;
                }
            }
        }
        ptrace::setoptions(pid(process), options).map_err(NotHeld::Refused)?;
        let standing = Standing { regs: registers(process)?, in_group_stop: false };
        StoppedThread::new(process, process, standing, since)
    }

    /// Lets a child run to the next entry to or exit from a system call, and delivers signals.
    pub fn run_to_system_call(&mut self) -> Result<(), NotHeld> {
        let mut signal = 0;
        loop {
            resume(self.tid, Resume::ToSystemCall, signal)?;
            match self.next_report(None)? {
                Some(Report::SystemCall) => break,
                Some(Report::Signal(other)) => signal = other,
                _ => signal = 0,
            }
        }
        self.regs = registers(self.tid)?;
        Ok(())
    }

    /// Waits for the thread's next report. None if there is none before `until`.
    fn next_report(&self, until: Option<Instant>) -> Result<Option<Report>, NotHeld> {
        let mut pauses = Pauses::default();
        loop {
            match wait::poll(self.tid) {
                Report::Runs if until.is_some_and(|until| Instant::now() > until) => return Ok(None),
                Report::Runs => pauses.wait(),
                Report::Ended => return Err(NotHeld::Gone),
                report => return Ok(Some(report)),
            }
        }
    }

    /// Notes the interrupted system call, and makes it restart if the kernel does not. In a group
    /// stop, the call ends with EINTR as it would have without calltap.
    fn settle(&mut self) -> Result<(), NotHeld> {
        self.stopped = self.regs;
        self.system_call = ((self.regs.orig_rax as i64) >= 0).then_some(self.regs.orig_rax);
        let is_ended = self.system_call.is_some() && self.regs.rax as i64 == -i64::from(libc::EINTR);
        if is_ended && !self.in_group_stop {
            let again = self.resumption();
            if again.rip != self.regs.rip {
                self.set(again)?;
            }
        }
        Ok(())
    }

    /// Moves a thread in a restartable sequence (rseq) to the sequence's abort address, as the
    /// kernel does with a preempted thread. Once the thread executes other code, the kernel
    /// considers the sequence left.
    pub(crate) fn abort_sequence(&mut self) -> Result<(), NotHeld> {
        match self.abort_address() {
            Some(rip) => self.set(user_regs_struct { rip, ..self.regs }),
            None => Ok(()),
        }
    }

    fn abort_address(&self) -> Option<u64> {
        let read = |at: u64| request(self.tid, move |pid| ptrace::read(pid, at as ptrace::AddressType));
        let word = |at: u64| read(at).ok().map(|word| word as u64);
        // `struct rseq`: processor (8 bytes), address of `struct rseq_cs`: version and flags (8
        // bytes), start, length, abort address.
        let sequence = word(rseq_area(self.tid)? + 8).filter(|at| *at != 0)?;
        let (start, length) = (word(sequence + 8)?, word(sequence + 16)?);
        let is_inside = self.regs.rip.wrapping_sub(start) < length;
        is_inside.then(|| word(sequence + 24))?
    }

    /// Returns the program counter and rax with which the thread goes on if a signal handler has
    /// run meanwhile: some system calls are then not restarted.
    pub(crate) fn interruption(&self) -> [u64; 2] {
        const EINTR: u64 = -(libc::EINTR as i64) as u64;
        let back = self.resumption();
        match (self.system_call, -(self.stopped.rax as i64)) {
            // ERESTARTNOHAND, ERESTART_RESTARTBLOCK, EINTR.
            (Some(_), 514 | 516 | 4) => [self.stopped.rip, EINTR],
            _ => [back.rip, back.rax],
        }
    }

    /// Lets the thread run and remains its tracer.
    pub fn run(&mut self) -> Result<(), NotHeld> {
        resume(self.tid, Resume::Freely, 0)?;
        self.running = true;
        tracees::set_asked(self.tid, false);
        Ok(())
    }

    /// Stops the thread again.
    pub fn halt(&mut self) -> Result<(), NotHeld> {
        interrupt(self.tid)?;
        let standing = await_stop(self.tid, Instant::now(), STOP_TIMEOUT)?;
        (self.regs, self.in_group_stop, self.running) = (standing.regs, standing.in_group_stop, false);
        self.settle()
    }

    /// Sets all registers at once.
    pub fn set(&mut self, regs: user_regs_struct) -> Result<(), NotHeld> {
        let tid = self.tid;
        request(tid, move |pid| ptrace::setregs(pid, regs)).map_err(|errno| lost(tid, errno))?;
        self.regs = regs;
        Ok(())
    }

    /// Returns the registers with which the thread goes on when released, so that an interrupted
    /// system call restarts.
    pub(crate) fn resumption(&self) -> user_regs_struct {
        let mut regs = self.regs;
        let in_call = (regs.orig_rax as i64) >= 0;
        let again = match -(regs.rax as i64) {
            _ if !in_call => None,
            512..=514 => Some(regs.orig_rax), // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
            516 => Some(RESTART_SYSCALL),     // ERESTART_RESTARTBLOCK
            4 if !self.in_group_stop && RESTARTABLE.contains(&regs.orig_rax) && !self.signal_pending() => {
                Some(regs.orig_rax)
            }
            _ => None,
        };
        if let Some(number) = again {
            regs.rip -= SYSCALL;
            regs.rax = number;
        }
        regs.orig_rax = u64::MAX;
        regs
    }

    /// Whether the thread executes 64-bit code. A thread of a program that also has 32-bit code, as
    /// Wine's, would run injected code in the wrong mode.
    pub(crate) fn is_in_64_bit_code(&self) -> bool {
        USER_CODE.contains(&(self.regs.cs as u16))
    }

    /// Whether the thread is stopped and has not been killed.
    fn stands(&self) -> bool {
        !self.running && !self.has_ended()
    }

    /// Whether a stop signal has stopped the thread's process: the thread may run for calltap, but
    /// other threads do not meanwhile, and release no lock that it may wait for.
    pub fn is_in_group_stop(&self) -> bool {
        self.in_group_stop
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        has_ended(self.tid)
    }

    /// Releases the thread. Returns how long it stood still.
    pub fn release(self) -> Duration {
        // At its usual priority, calltap may wait for a processor before it reads the clock.
        let (_urgent, since) = (Urgent::now(), self.since);
        drop(self);
        since.elapsed()
    }

    fn let_go(&mut self) {
        if self.running {
            // Only a stopped thread can be released.
            let stopped =
                interrupt(self.tid).and_then(|()| await_stop(self.tid, Instant::now(), STOP_TIMEOUT));
            self.running = false;
            if let Ok(standing) = stopped {
                (self.regs, self.in_group_stop) = (standing.regs, standing.in_group_stop);
                let _ = self.settle();
            }
        }
        // A signal has come since the call was set to restart: it was interrupted after all.
        let again = self.system_call.is_some() && self.regs.rip != self.stopped.rip;
        if again && self.regs.rsp == self.stopped.rsp && self.signal_pending() {
            let _ = self.set(self.stopped);
        }
        detach(self.tid);
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if !keep(self) {
            self.let_go();
        }
    }
}

/// Asks a seized thread to stop. A second request would stop it again as soon as it runs.
fn interrupt(tid: u32) -> Result<(), NotHeld> {
    request(tid, ptrace::interrupt).map_err(|errno| match errno {
        Errno::ESRCH => NotHeld::Gone,
        errno => NotHeld::Refused(errno),
    })?;
    tracees::set_asked(tid, true);
    Ok(())
}

/// Releases a stopped thread, or reaps it if it has ended meanwhile. A thread that is being killed
/// can be reaped only later: it stays listed for the next [`tracees::release_ended`].
fn detach(tid: u32) {
    if request(tid, |pid| ptrace::detach(pid, None)).is_ok() || wait::release_ended(tid) {
        tracees::remove(tid);
    }
}

fn has_ended(tid: u32) -> bool {
    proc::state(tid).is_none_or(proc::is_end)
}

/// Returns the address of a thread's `struct rseq`, if it is registered.
fn rseq_area(tid: u32) -> Option<u64> {
    request(tid, requests::rseq_area).ok().filter(|at| *at != 0)
}

#[cfg(test)]
mod tests;

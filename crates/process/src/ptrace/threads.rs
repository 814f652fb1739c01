//! Threads of another process, held for a moment (ptrace). A tracer is a thread: use this in one that ends soon, and the kernel lets go of whatever
//! this could not.
//!
//! A held thread that waits in a system call must not notice. The kernel restarts most calls by itself; those that it ends with EINTR are
//! restarted by calltap, at once, unless a signal is pending that could be the reason. A time-out of such a call begins anew. Should calltap be killed
//! between the two, the call ends as after a SIGSTOP.
//!
//! Unsafe because some ptrace requests have no safe wrapper.
#![allow(unsafe_code)]

mod all;
mod not_held;
mod restartable;
mod second;
mod signals;
mod trip;

pub use all::{Keep, Stopped, stop_machine};
pub use not_held::NotHeld;
pub use second::aside;
pub use trip::{FAULT_SIGNALS, Interrupted, Trip};

use crate::proc;
use crate::ptrace::traced::{self, Reaper};
use crate::ptrace::urgent::Urgent;
use crate::ptrace::wait::{self, Report};
use all::{keep, take_back};
use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::unistd::Pid;
use restartable::RESTARTABLE;
use second::{Second, request};
use signals::has_faulted;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread that is in the kernel, where it cannot be stopped, is given up after this time;
const PATIENCE: Duration = Duration::from_millis(300);
/// while others stand still, after this.
const SHORT_PATIENCE: Duration = Duration::from_millis(20);
/// One that only waits for a processor, on a busy machine, is given this time.
const LONG_PATIENCE: Duration = Duration::from_secs(2);
/// How long a thread that a request of ptrace no longer finds may take to end.
const ENDING: Duration = Duration::from_millis(500);
/// Pauses between two looks at a thread that is waited for grow from this
const FIRST_PAUSE: Duration = Duration::from_micros(10);
/// to this.
const LAST_PAUSE: Duration = Duration::from_millis(1);
/// `syscall` is two bytes long.
const SYSCALL: u64 = 2;
const RESTART_SYSCALL: u64 = 219;

/// A thread that stands still. Dropping this lets it go on as if nothing had been.
#[derive(Debug)]
pub struct Held {
    /// Its id.
    pub tid: u32,
    /// Its registers.
    pub regs: user_regs_struct,
    /// The system call it waited in.
    pub system_call: Option<u64>,
    /// Its registers when it was stopped.
    stopped: user_regs_struct,
    process: u32,
    since: Instant,
    running: bool,
    /// Traced by the second thread of the one that has stopped it.
    is_seconds: bool,
    _urgent: Arc<Urgent>,
}

fn pid(tid: u32) -> Pid {
    Pid::from_raw(tid as i32)
}

/// The threads a process has now, those last that wait in a call which the kernel ends with EINTR when they are held, and behind them those that have
/// [children](has_children).
pub fn list_politely(process: u32) -> Vec<u32> {
    let mut tids = proc::threads(process);
    let waits = |tid: &u32| {
        let call = fs::read_to_string(format!("/proc/{process}/task/{tid}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        number.is_some_and(|number| RESTARTABLE.contains(&number))
    };
    tids.sort_by_cached_key(|tid| (has_children(process, *tid), waits(tid)));
    tids
}

/// Does a thread have child processes? When one ends, the kernel sends SIGCHLD to the thread that began it. It drops the signal where the program leaves it at its default, but
/// not for a traced thread. While that thread stands still, another one is woken for the signal, whose wait may then end with EINTR.
pub fn has_children(process: u32, tid: u32) -> bool {
    let children = fs::read_to_string(format!("/proc/{process}/task/{tid}/children"));
    children.is_ok_and(|children| !children.trim().is_empty())
}

/// Makes this thread the tracer of another; that one runs on.
fn seize(tid: u32) -> Result<(), NotHeld> {
    seize_with(tid, ptrace::Options::PTRACE_O_TRACESYSGOOD)
}

fn seize_with(tid: u32, options: ptrace::Options) -> Result<(), NotHeld> {
    let seized = seize_here(tid, options);
    // This thread's second one may be the tracer already.
    let by_second = || Second::known()?.ask(move || seize_here(tid, options));
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
            traced::add(tid);
            Ok(())
        }
        refused => refused,
    }
}

/// Is this thread its tracer already? It could not be stopped in time, earlier.
fn is_ours(tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    proc::field(&status, "TracerPid") == Some(nix::unistd::gettid().to_string().as_str())
}

impl Held {
    /// Stops a thread.
    pub fn take(process: u32, tid: u32) -> Result<Held, NotHeld> {
        if let Some(held) = take_back(process, Some(tid)).pop() {
            return Ok(held);
        }
        let _reaper = traced::is_any().then(Reaper::start);
        seize(tid)?;
        interrupt(tid)?;
        Held::stop(process, tid, Instant::now(), PATIENCE)
    }

    /// Waits until a thread stands still that was asked to, not before `since`.
    fn stop(process: u32, tid: u32, since: Instant, patience: Duration) -> Result<Held, NotHeld> {
        let _urgent = Urgent::now();
        let regs = await_stop(tid, Instant::now(), patience)?;
        Held::new(process, tid, regs, since)
    }

    fn new(process: u32, tid: u32, regs: user_regs_struct, since: Instant) -> Result<Held, NotHeld> {
        let (stopped, running) = (regs, false);
        let _urgent = Urgent::now();
        let (system_call, is_seconds) = (None, false);
        let mut held = Held { tid, regs, system_call, stopped, process, since, running, is_seconds, _urgent };
        held.settle()?;
        Ok(held)
    }

    /// A new child, from before its execve, for which `begin` lets it go on, to the first instruction of its program.
    pub fn child(process: u32, begin: &mut dyn FnMut()) -> Result<Held, NotHeld> {
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
                    // From within the execve it goes on to its end. Every stop uses up the request to stop.
                    is_program.then(|| interrupt(process)).transpose()?;
                    let signal = if let Report::Signal(signal) = report { signal } else { 0 };
                    resume(process, Resume::Freely, signal)?;
                }
            }
        }
        ptrace::setoptions(pid(process), options).map_err(NotHeld::Refused)?;
        Held::new(process, process, registers(process)?, since)
    }

    /// Lets such a child run to the next entry to or exit from a system call. Signals are delivered on the way.
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

    /// Waits for the thread's next report. None: there was none until then.
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

    /// Notes the system call that was cut short, and has it begun again if the kernel does not.
    fn settle(&mut self) -> Result<(), NotHeld> {
        self.stopped = self.regs;
        self.system_call = ((self.regs.orig_rax as i64) >= 0).then_some(self.regs.orig_rax);
        if self.system_call.is_some() && self.regs.rax as i64 == -i64::from(libc::EINTR) {
            let again = self.resumption();
            if again.rip != self.regs.rip {
                self.set(again)?;
            }
        }
        Ok(())
    }

    /// Where it stands in a restartable sequence (rseq), moves it to where the sequence is aborted. The kernel does this to a thread that
    /// was preempted there; once the thread executes other code, the kernel takes the sequence for left.
    pub fn abort_sequence(&mut self) -> Result<(), NotHeld> {
        match self.abort_address() {
            Some(rip) => self.set(user_regs_struct { rip, ..self.regs }),
            None => Ok(()),
        }
    }

    fn abort_address(&self) -> Option<u64> {
        let read = |at: u64| request(self.tid, move |pid| ptrace::read(pid, at as ptrace::AddressType));
        let word = |at: u64| read(at).ok().map(|word| word as u64);
        // `struct rseq`: processor (8 bytes), address of `struct rseq_cs`: version and flags (8 bytes), start, length, abort address.
        let sequence = word(rseq_area(self.tid)? + 8).filter(|at| *at != 0)?;
        let (start, length) = (word(sequence + 8)?, word(sequence + 16)?);
        let is_inside = self.regs.rip.wrapping_sub(start) < length;
        is_inside.then(|| word(sequence + 24))?
    }

    /// Where it goes on, and with what in rax, if a handler of a signal has run meanwhile: some system calls are not begun again then.
    pub fn interruption(&self) -> [u64; 2] {
        const EINTR: u64 = -(libc::EINTR as i64) as u64;
        let back = self.resumption();
        match (self.system_call, -(self.stopped.rax as i64)) {
            // ERESTARTNOHAND, ERESTART_RESTARTBLOCK, EINTR.
            (Some(_), 514 | 516 | 4) => [self.stopped.rip, EINTR],
            _ => [back.rip, back.rax],
        }
    }

    /// Lets it go on without letting go of it.
    pub fn run(&mut self) -> Result<(), NotHeld> {
        resume(self.tid, Resume::Freely, 0)?;
        self.running = true;
        traced::set_asked(self.tid, false);
        Ok(())
    }

    /// Stops it again.
    pub fn halt(&mut self) -> Result<(), NotHeld> {
        interrupt(self.tid)?;
        self.regs = await_stop(self.tid, Instant::now(), PATIENCE)?;
        self.running = false;
        self.settle()
    }

    /// Sets all its registers at once.
    pub fn set(&mut self, regs: user_regs_struct) -> Result<(), NotHeld> {
        let tid = self.tid;
        request(tid, move |pid| ptrace::setregs(pid, regs)).map_err(|errno| lost(tid, errno))?;
        self.regs = regs;
        Ok(())
    }

    /// Where it goes on when it is let go: its registers, with a system call that was cut short begun again.
    pub fn resumption(&self) -> user_regs_struct {
        let mut regs = self.regs;
        let in_call = (regs.orig_rax as i64) >= 0;
        let again = match -(regs.rax as i64) {
            _ if !in_call => None,
            512..=514 => Some(regs.orig_rax), // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND
            516 => Some(RESTART_SYSCALL),     // ERESTART_RESTARTBLOCK
            4 if RESTARTABLE.contains(&regs.orig_rax) && !self.signal_pending() => Some(regs.orig_rax),
            _ => None,
        };
        if let Some(number) = again {
            regs.rip -= SYSCALL;
            regs.rax = number;
        }
        regs.orig_rax = u64::MAX;
        regs
    }

    /// Does it stand still, and was not killed?
    fn stands(&self) -> bool {
        !self.running && !self.has_ended()
    }

    /// Does it exist no more?
    pub fn has_ended(&self) -> bool {
        has_ended(self.tid)
    }

    /// For how long it has stood still, or worked for calltap.
    pub fn stopped_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Lets go. How long it stood still.
    pub fn release(self) -> Duration {
        let since = self.since;
        drop(self);
        since.elapsed()
    }

    fn let_go(&mut self) {
        if self.running {
            // It must stand still to be let go.
            let stopped = interrupt(self.tid).and_then(|()| await_stop(self.tid, Instant::now(), PATIENCE));
            self.running = false;
            if let Ok(regs) = stopped {
                self.regs = regs;
                let _ = self.settle();
            }
        }
        // A signal has come since its call was to be begun again: it was interrupted after all.
        let again = self.system_call.is_some() && self.regs.rip != self.stopped.rip;
        if again && self.regs.rsp == self.stopped.rsp && self.signal_pending() {
            let _ = self.set(self.stopped);
        }
        detach(self.tid);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !keep(self) {
            self.let_go();
        }
    }
}

/// Asks a seized thread to stop. Once: a second request would stop it again as soon as it is let run.
fn interrupt(tid: u32) -> Result<(), NotHeld> {
    request(tid, ptrace::interrupt).map_err(|errno| match errno {
        Errno::ESRCH => NotHeld::Gone,
        errno => NotHeld::Refused(errno),
    })?;
    traced::set_asked(tid, true);
    Ok(())
}

/// Lets go of a stopped thread. One that has ended meanwhile is released.
fn detach(tid: u32) {
    if request(tid, |pid| ptrace::detach(pid, None)).is_err() {
        wait::release_ended(tid);
    }
    traced::remove(tid);
}

fn has_ended(tid: u32) -> bool {
    proc::state(tid).is_none_or(proc::is_end)
}

/// Is it not in the kernel, but waiting for its turn; or does it stand still by now, which is yet to be reported?
fn comes_out(tid: u32) -> bool {
    matches!(proc::state(tid), Some('R' | 't'))
}

/// Waits until a thread that was asked to stands still; signals on their way are passed on. Its registers then.
fn await_stop(tid: u32, start: Instant, patience: Duration) -> Result<user_regs_struct, NotHeld> {
    let mut pauses = Pauses::default();
    loop {
        match wait::poll(tid) {
            Report::Interrupted => {
                let regs = registers(tid)?;
                // A thread in a system call has executed no such instruction.
                if (regs.orig_rax as i64) >= 0 || !has_faulted(tid) {
                    return Ok(regs);
                }
                // A handler takes the registers for those of the instruction, so it has to begin first. The signal is reported, and
                // the thread asked again then: it would answer a request made here before it looks at its signals.
                resume(tid, Resume::Freely, 0)?;
            }
            Report::GroupStop(_) => {
                detach(tid);
                return Err(NotHeld::Stopped);
            }
            // Every stop uses up the request to stop. Asked once more, the thread stands at the first instruction of the signal's handler.
            Report::Signal(signal) => {
                interrupt(tid)?;
                resume(tid, Resume::Freely, signal)?;
            }
            Report::Runs
                if start.elapsed() > patience && (start.elapsed() > LONG_PATIENCE || !comes_out(tid)) =>
            {
                return Err(NotHeld::Stuck);
            }
            Report::Runs => pauses.wait(),
            Report::Ended => return Err(NotHeld::Gone),
            Report::SystemCall | Report::Event(_) => {
                interrupt(tid)?;
                resume(tid, Resume::Freely, 0)?;
            }
        }
    }
}

/// How a stopped thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resume {
    Freely,
    /// Up to its next entry to or exit from a system call.
    ToSystemCall,
}

/// Has a stopped thread go on, with this signal delivered (0: none).
fn resume(tid: u32, how: Resume, signal: i32) -> Result<(), NotHeld> {
    let kind = if how == Resume::Freely { libc::PTRACE_CONT } else { libc::PTRACE_SYSCALL };
    // SAFETY: no pointers.
    let resume = move |pid: Pid| unsafe { libc::ptrace(kind, pid.as_raw(), 0usize, signal as usize) };
    request(tid, move |pid| Errno::result(resume(pid)).map(drop)).map_err(|errno| lost(tid, errno))
}

fn registers(tid: u32) -> Result<user_regs_struct, NotHeld> {
    request(tid, ptrace::getregs).map_err(|errno| lost(tid, errno))
}

/// Where a thread's `struct rseq` is, if it has told the kernel.
fn rseq_area(tid: u32) -> Option<u64> {
    const GET_RSEQ_CONFIGURATION: u32 = 0x420f;
    /// `struct ptrace_rseq_configuration`: address; size and signature; flags.
    type Configuration = [u64; 3];
    let get = |pid: Pid| {
        let mut configuration: Configuration = [0; 3];
        // SAFETY: the kernel writes no more than these bytes.
        let size = unsafe {
            libc::ptrace(
                GET_RSEQ_CONFIGURATION,
                pid.as_raw(),
                size_of::<Configuration>(),
                &raw mut configuration,
            )
        };
        Errno::result(size).map(|size| (size as usize, configuration))
    };
    let (size, [at, ..]) = request(tid, get).ok()?;
    (size == size_of::<Configuration>() && at != 0).then_some(at)
}

/// Why a request of ptrace failed on a thread that stood still. ESRCH is said of a thread that ends, and of one that does not stand still.
fn lost(tid: u32, errno: Errno) -> NotHeld {
    let start = Instant::now();
    while errno == Errno::ESRCH && start.elapsed() < ENDING {
        if has_ended(tid) {
            return NotHeld::Gone;
        }
        std::thread::sleep(LAST_PAUSE);
    }
    NotHeld::Refused(errno)
}

/// Pauses between looks at a thread: short at first, as most wait for microseconds only.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST_PAUSE)
    }
}

impl Pauses {
    fn wait(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 5 / 4).min(LAST_PAUSE);
    }
}

#[cfg(test)]
mod tests;

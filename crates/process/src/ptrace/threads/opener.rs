//! An [opener](crate::injection::inject): a thread that injected code starts. It is traced, so that
//! a fault of the code ends the opener and not the program.

use super::helper_tracer::request;
use super::stop::{LONG_PATIENCE, Pauses, Resume, lost, registers, resume};
use super::{Interrupted, NotHeld, StoppedThread};
use crate::ptrace::tracees;
use crate::ptrace::wait::{self, Report};
use nix::libc::user_regs_struct;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Instant;

/// A running opener. Dropping this releases it.
pub(super) struct Opener {
    thread: StoppedThread,
    /// Address of the code that ends it.
    quit: u64,
}

impl Opener {
    /// Takes over the opener whose start `parent` is stopped for, and lets it run.
    pub(super) fn take(parent: &StoppedThread, quit: u64) -> Result<Opener, NotHeld> {
        let started = request(parent.tid, ptrace::getevent).map_err(|errno| lost(parent.tid, errno))?;
        let tid = started as u32;
        tracees::add(tid);
        let mut thread = StoppedThread::stop(parent.process, tid, Instant::now(), LONG_PATIENCE)?;
        thread.trace_openers(false)?;
        thread.run()?;
        Ok(Opener { thread, quit })
    }

    /// Checks whether the opener has stopped, and lets it run. After a fault of it, ends it, and
    /// returns the fault.
    pub(super) fn check(&mut self) -> Result<(), Interrupted> {
        let tid = self.thread.tid;
        match wait::poll(tid) {
            Report::Runs | Report::Ended => Ok(()),
            Report::Signal(signal) if self.thread.is_of_instruction(signal)? => {
                wait::collect(tid);
                self.end()?;
                Err(Interrupted::Fault(signal))
            }
            Report::Signal(signal) => {
                // The signal was sent to the process, and would end with the opener.
                self.thread.set_blocked_signals(self.thread.blocked_signals()? | 1 << (signal - 1))?;
                let _ = Signal::try_from(signal).map(|signal| kill(self.process(), signal));
                Ok(resume(tid, Resume::Freely, 0)?)
            }
            _ => Ok(resume(tid, Resume::Freely, 0)?),
        }
    }

    /// Leaves an opener whose call is done, and which ends: on a busy machine that may take longer
    /// than the program should stand still.
    pub(super) fn leave(mut self) {
        self.thread.running = false;
    }

    fn process(&self) -> Pid {
        Pid::from_raw(self.thread.process as i32)
    }

    /// Ends a stopped opener, and waits for its end.
    fn end(&mut self) -> Result<(), NotHeld> {
        let tid = self.thread.tid;
        let regs = registers(tid)?;
        self.thread.set(user_regs_struct { rip: self.quit, orig_rax: u64::MAX, ..regs })?;
        resume(tid, Resume::Freely, 0)?;
        let (start, mut pauses) = (Instant::now(), Pauses::default());
        while wait::poll(tid) != Report::Ended {
            if start.elapsed() > LONG_PATIENCE {
                return Err(NotHeld::Stuck);
            }
            pauses.wait();
        }
        Ok(())
    }
}

impl StoppedThread {
    /// Sets whether threads that this one starts are traced from their first instruction.
    pub(super) fn trace_openers(&self, are_traced: bool) -> Result<(), NotHeld> {
        let mut options = Options::PTRACE_O_TRACESYSGOOD;
        options.set(Options::PTRACE_O_TRACECLONE, are_traced);
        request(self.tid, move |pid| ptrace::setoptions(pid, options)).map_err(|errno| lost(self.tid, errno))
    }
}

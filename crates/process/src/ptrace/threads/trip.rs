//! Runs injected code in a stopped thread, and restores the registers of the thread.

use super::faults::{FAULT_SIGNALS, FAULTS};
use super::helper_tracer::request;
use super::opener::Opener;
use super::stop::{LONG_PATIENCE, Pauses, Resume, lost, registers, resume};
use super::{Interrupted, NotHeld, StoppedThread, interrupt};
use crate::ptrace::wait::{self, Report};
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use std::time::Instant;

/// The state of a thread from before it was sent to other code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    own: user_regs_struct,
    /// Signal mask.
    mask: u64,
}

impl StoppedThread {
    /// Sends the thread to other code, with all signals blocked. The caller must bring it
    /// [back](StoppedThread::come_back). The code must find its way back by itself, in case this
    /// process is killed meanwhile.
    pub(crate) fn leave(&mut self, at: user_regs_struct) -> Result<Trip, NotHeld> {
        let trip = Trip { own: self.regs, mask: self.blocked_signals()? };
        // From here on the thread finds its way back by itself.
        self.set(at)?;
        self.regs = trip.own;
        // The code blocks signals as well, but the handler of a signal that has come meanwhile must
        // not run first. A fault whose signal is blocked would cost the program its handler: the
        // kernel puts the default action in its place.
        self.set_blocked_signals(!FAULT_SIGNALS | trip.mask)?;
        Ok(trip)
    }

    /// Brings a thread back that is stopped at a system call: restores the registers and the signal
    /// mask from before it was sent away. So no signal frame leads to the other code, and a pending
    /// signal is delivered as if the thread had been stopped all the time.
    pub(crate) fn come_back(&mut self, trip: Trip) -> Result<(), NotHeld> {
        self.block_signals()?;
        self.stop_in_signal_path()?;
        self.put_back(trip)
    }

    /// Lets a thread that was sent away run to the next entry to or exit from a system call.
    /// Returns its registers there.
    pub(crate) fn follow_to_system_call(&mut self, until: Instant) -> Result<user_regs_struct, Interrupted> {
        let mut signal = 0;
        loop {
            resume(self.tid, Resume::ToSystemCall, signal)?;
            match self.next_report(Some(until))? {
                Some(Report::SystemCall) => return Ok(registers(self.tid)?),
                Some(report) => signal = self.passed_on(report)?,
                None => return Err(self.late()),
            }
        }
    }

    /// Lets a thread that was sent away run freely until a condition holds, then stops it. Returns
    /// its registers. If it starts an opener, `quit` is the address of the code that ends one,
    /// which is traced until the condition holds.
    pub(crate) fn run_until(
        &mut self,
        until: Instant,
        quit: Option<u64>,
        mut is_so: impl FnMut() -> bool,
    ) -> Result<user_regs_struct, Interrupted> {
        const CLONE: i32 = libc::PTRACE_EVENT_CLONE;
        self.trace_openers(quit.is_some())?;
        resume(self.tid, Resume::Freely, 0)?;
        let (mut pauses, mut asked) = (Pauses::default(), false);
        let mut opener: Option<Opener> = None;
        loop {
            if let Some(Err(failed)) = opener.as_mut().map(Opener::check) {
                // The thread waits for the opener's end; its registers are restored next.
                self.halt()?;
                return Err(failed);
            }
            match wait::poll(self.tid) {
                Report::Event(CLONE) if let Some(quit) = quit => {
                    self.trace_openers(false)?;
                    opener = Some(Opener::take(self, quit)?);
                    resume(self.tid, Resume::Freely, 0)?;
                }
                Report::Runs if !asked && is_so() => {
                    let _ = opener.take().map(Opener::leave);
                    interrupt(self.tid)?;
                    (pauses, asked) = (Pauses::default(), true);
                }
                Report::Runs if Instant::now() > until => return Err(self.late()),
                Report::Runs => pauses.wait(),
                Report::Ended => return Err(NotHeld::Gone.into()),
                Report::Interrupted | Report::GroupStop(_) if asked => {
                    self.trace_openers(false)?;
                    return Ok(registers(self.tid)?);
                }
                report => {
                    // Every stop uses up the request to stop.
                    asked.then(|| interrupt(self.tid)).transpose()?;
                    resume(self.tid, Resume::Freely, self.passed_on(report)?)?;
                }
            }
        }
    }

    /// Lets the thread run from its current place, to find its own way back.
    pub(crate) fn let_run(&mut self) {
        self.running = resume(self.tid, Resume::Freely, 0).is_ok();
    }

    fn late(&mut self) -> Interrupted {
        self.running = true;
        Interrupted::Late
    }

    /// Moves a thread from a stop at a system call to one in the kernel's signal path, where the
    /// kernel checks once more whether an interrupted system call must be restarted. The thread
    /// executes no instruction in between.
    fn stop_in_signal_path(&self) -> Result<(), NotHeld> {
        let until = Instant::now() + LONG_PATIENCE;
        let mut signal = 0;
        loop {
            // Every stop uses up the request to stop.
            interrupt(self.tid)?;
            resume(self.tid, Resume::Freely, signal)?;
            signal = 0;
            match self.next_report(Some(until))? {
                Some(Report::Interrupted | Report::GroupStop(_)) => return Ok(()),
                Some(Report::Signal(other)) => signal = other,
                Some(_) => {}
                None => return Err(NotHeld::Stuck),
            }
        }
    }

    /// Brings a thread back that was stopped by a fault.
    pub(crate) fn put_back(&mut self, trip: Trip) -> Result<(), NotHeld> {
        // The mask comes first: if this process is killed in between, the code goes its own way
        // back.
        self.set_blocked_signals(trip.mask)?;
        self.set(trip.own)
    }
}

impl StoppedThread {
    /// Returns the signal with which a thread that was sent away goes on. A signal that an
    /// instruction has raised is a fault of the code that the thread was sent to. The same signal
    /// from elsewhere is queued again by the kernel, as it is blocked when the thread goes on with
    /// it.
    fn passed_on(&self, report: Report) -> Result<i32, Interrupted> {
        let Report::Signal(signal) = report else { return Ok(0) };
        if self.is_of_instruction(signal)? {
            wait::collect(self.tid);
            return Err(Interrupted::Fault(signal));
        }
        if FAULTS.contains(&signal) {
            self.block_signals()?;
        }
        Ok(signal)
    }

    /// Whether an instruction of the thread has raised the signal that it is stopped for.
    pub(super) fn is_of_instruction(&self, signal: i32) -> Result<bool, NotHeld> {
        if !FAULTS.contains(&signal) {
            return Ok(false);
        }
        // Codes of signals that processes send are not positive.
        let code = |pid| ptrace::getsiginfo(pid).map(|info| info.si_code);
        request(self.tid, code).map(|code| code > 0).map_err(|errno| lost(self.tid, errno))
    }
}

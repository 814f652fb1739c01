//! Reads the kernel's records of the threads beside their events: context switches, wakings,
//! system calls.

use super::Collector;
use super::held::{HeldThreads, HeldTime};
use crate::waits::kernel::{Kernel, Tracepoints};
use crate::waits::switches::{self, Switches};
use calltap_sched::{Refused, Sched};
use calltap_trace::Record;

/// Where the kernel's records come from.
#[derive(Default)]
pub(super) struct KernelSources {
    /// Reads context switches of the threads.
    pub switches: Option<Switches>,
    /// Finds the waits of the threads that calltap has caused.
    held: Option<HeldThreads>,
    /// Reads wakings and system calls of the threads.
    pub events: Option<Kernel>,
}

impl Collector<'_> {
    /// Hands over context switches as well, or records why there are none.
    pub fn scheduling(mut self, sched: Option<Result<Sched, Refused>>) -> Self {
        let Some(sched) = sched else { return self };
        let sched =
            sched.map_err(|refused| self.output.record(&Record::Scheduling(switches::refusal(&refused))));
        self.kernel.switches = sched.ok().map(Switches::new);
        if let Some(switches) = &self.kernel.switches {
            self.kernel.held = Some(HeldThreads::begin(self.shared));
            self.output.record(&Record::Scheduling(switches.outcome()));
        }
        self
    }

    /// Hands over wakings and system calls as well, or records why there are none.
    pub fn tracepoints(mut self, tracepoints: Tracepoints) -> Self {
        self.kernel.events = Kernel::new(tracepoints, self.shared);
        if let Some(kernel) = &self.kernel.events {
            self.output.record(&Record::KernelEvents(kernel.outcome()));
        }
        self
    }

    /// Records that another thread collects kernel functions whose names match `globs`, to be added
    /// at the end.
    pub fn kernel_functions(mut self, globs: Option<String>) -> Self {
        if let Some(functions) = globs {
            self.output.record(&Record::KernelFunctions { functions });
        }
        self
    }

    /// Reads the rings of context switches and the times for which calltap held threads.
    fn read_rings(&mut self) {
        let Some(mut switches) = self.kernel.switches.take() else { return };
        switches.read();
        if let Some(mut held) = self.kernel.held.take() {
            let ahead = |process| self.processes.get(process).map_or(0, |process| process.ahead);
            let is_complete =
                held.take(self.shared, &ahead, &mut |HeldTime { process, tid, number, time }| {
                    let Some(process) = process else { return switches.hold(tid, number, time) };
                    if let Some((_, task)) = self.ids_here(process, tid) {
                        switches.hold(task, number, time);
                    }
                });
            if !is_complete {
                switches.doubt();
            }
            self.kernel.held = Some(held);
        }
        self.kernel.switches = Some(switches);
    }

    /// Reads the kernel's rings before they are full, where more is recorded between two sweeps
    /// than they hold.
    pub(super) fn relieve_kernel(&mut self) {
        if self.kernel.switches.as_ref().is_some_and(Switches::is_filling)
            || self.kernel.events.as_ref().is_some_and(Kernel::is_filling)
        {
            self.read_switches(false);
        }
    }

    /// Hands over what the kernel has recorded of a process's first thread before it executed
    /// another program. The thread keeps its id, and what follows is that program's.
    pub(super) fn replace_program(&mut self, pid: u32, at: u64) {
        let is_known = self.kernel.switches.as_ref().is_some_and(|switches| switches.has_claimed(pid))
            || self.kernel.events.as_ref().is_some_and(|kernel| kernel.has_claimed(pid));
        if !is_known {
            return;
        }
        self.kernel.events.iter_mut().for_each(|kernel| kernel.forget_memory(pid));
        self.read_switches(false);
        if let Some(switches) = &mut self.kernel.switches {
            switches.replace(pid, at, &mut self.output);
        }
        if let Some(kernel) = &mut self.kernel.events {
            kernel.replace(pid, at, &mut self.output);
        }
    }

    /// Reads the kernel's rings. At the end it first waits until the kernel shows its last records.
    pub(super) fn read_switches(&mut self, last: bool) {
        if last && (self.kernel.switches.is_some() || self.kernel.events.is_some()) {
            std::thread::sleep(calltap_sched::SETTLE);
        }
        self.read_rings();
        if let Some(switches) = &mut self.kernel.switches {
            let outcome = switches.outcome();
            if last && outcome.lost > 0 {
                self.output.record(&Record::Scheduling(outcome));
            }
        }
        if let Some(kernel) = &mut self.kernel.events {
            kernel.read(&mut self.output);
            if last {
                let outcome = kernel.outcome();
                self.totals.lost_of_kernel = outcome.lost;
                self.output.record(&Record::KernelEvents(outcome));
                kernel.tell_members(&mut self.output);
            }
        }
    }
}

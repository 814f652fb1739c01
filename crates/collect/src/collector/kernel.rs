//! What the kernel tells of the threads, beside their events.

use super::Collector;
use crate::kernel::{Kernel, Tracepoints};
use crate::switches::{self, Switches};
use calltap_sched::{Refused, Sched};
use calltap_trace::Record;

impl Collector<'_> {
    /// Hands over context switches as well, or says why there are none.
    pub fn scheduling(mut self, sched: Option<Result<Sched, Refused>>) -> Self {
        let Some(sched) = sched else { return self };
        let sched =
            sched.map_err(|refused| self.output.record(&Record::Scheduling(switches::refusal(&refused))));
        self.switches = sched.ok().map(Switches::new);
        if let Some(switches) = &self.switches {
            self.output.record(&Record::Scheduling(switches.outcome()));
        }
        self
    }

    /// Hands over wakings and system calls as well, or says why there are none.
    pub fn tracepoints(mut self, tracepoints: Tracepoints) -> Self {
        self.kernel = Kernel::new(tracepoints, self.shared);
        if let Some(kernel) = &self.kernel {
            self.output.record(&kernel.outcome());
        }
        self
    }

    /// Reads the kernel's rings; at the end also what they do not show at once.
    pub(super) fn read_switches(&mut self, last: bool) {
        if last && (self.switches.is_some() || self.kernel.is_some()) {
            std::thread::sleep(calltap_sched::SETTLE);
        }
        if let Some(switches) = &mut self.switches {
            switches.read();
            let outcome = switches.outcome();
            if last && outcome.lost > 0 {
                self.output.record(&Record::Scheduling(outcome));
            }
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.read(&mut self.output);
            if last {
                self.output.record(&kernel.outcome());
            }
        }
    }
}

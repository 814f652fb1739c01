//! Reasons why kernel events of threads are not recorded.

use std::{fmt, fs, io};

/// Kind of events that are not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Context switches.
    Switches,
    /// Wakings: which thread woke another.
    Wakings,
    /// System calls.
    SystemCalls,
    /// Page faults, and moves to other processors.
    Faults,
    /// Signals.
    Signals,
}

/// The events that are not recorded, and the reason.
#[derive(Debug)]
pub struct Refused {
    subject: Subject,
    cause: Cause,
}

/// The reason.
#[derive(Debug)]
pub enum Cause {
    /// The kernel does not allow it.
    Forbidden {
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i32>,
    },
    /// The kernel lacks the feature.
    Missing,
    /// The numbers of tracepoints are in tracefs, which only root may access.
    Tracefs(io::Error),
    /// calltap runs in another than the first pid namespace, whose ids the kernel reports.
    Namespace,
    /// An event for each thread on each processor takes more descriptors than a process may have.
    Descriptors {
        /// Number of threads.
        threads: usize,
        /// Number of events for each thread.
        events: usize,
        /// Descriptors that calltap keeps for other uses.
        spare: u64,
        /// Limit of descriptors.
        limit: u64,
    },
    /// The kernel's rings are locked memory, of which the user may have no more.
    LockedMemory,
    /// The process does not exist any more.
    Gone,
    /// Another error.
    Other(io::Error),
}

/// Highest `kernel.perf_event_paranoid` at which users may record the switches of their own
/// processes.
const ALLOWED: i32 = 2;

impl Refused {
    pub(crate) fn of(subject: Subject, cause: Cause) -> Refused {
        Refused { subject, cause }
    }

    /// Whether the reason is that the process has ended, which needs no report.
    pub fn is_gone(&self) -> bool {
        matches!(self.cause, Cause::Gone)
    }
}

impl Cause {
    pub(crate) fn new(error: io::Error) -> Cause {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
                Cause::Forbidden { paranoid: text.and_then(|text| text.trim().parse().ok()) }
            }
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL | libc::E2BIG) => {
                Cause::Missing
            }
            Some(libc::ESRCH) => Cause::Gone,
            _ => Cause::Other(error),
        }
    }

    /// Returns the cause why a ring of the smallest size could not be mapped.
    pub(crate) fn of_ring(error: io::Error) -> Cause {
        match error.raw_os_error() {
            Some(libc::EPERM) => Cause::LockedMemory,
            _ => Cause::new(error),
        }
    }

    pub(crate) fn of_tracefs(error: io::Error) -> Cause {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENOSYS) => Cause::Missing,
            _ => Cause::Tracefs(error),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.subject {
            Subject::Switches => "waits and work cannot be distinguished: ",
            Subject::Wakings => "the wakers of threads are unknown: ",
            Subject::SystemCalls => "it is not known in which system call a thread waited: ",
            Subject::Faults => "page faults are not recorded: ",
            Subject::Signals => "signals are not recorded: ",
        })?;
        let of_users = matches!(self.subject, Subject::Switches | Subject::Faults);
        match &self.cause {
            Cause::Forbidden { paranoid: Some(paranoid) } if of_users && *paranoid > ALLOWED => write!(
                out,
                "kernel.perf_event_paranoid is {paranoid}, which keeps it from users ('sysctl kernel.perf_event_paranoid={ALLOWED}', or CAP_PERFMON, allows it)"
            ),
            Cause::Forbidden { .. } if of_users => {
                out.write_str("the kernel, or the sandbox around it, forbids perf_event_open")
            }
            Cause::Forbidden { .. } => {
                out.write_str("the kernel lets only root, or CAP_PERFMON, record the tracepoints of others ('sysctl kernel.perf_event_paranoid=-1' allows it to all)")
            }
            Cause::Missing if of_users => out.write_str("this kernel cannot record it (Linux 4.3 and later, built with perf events, can)"),
            Cause::Missing => out.write_str("this kernel has no such tracepoint (one built with tracing and perf events has)"),
            Cause::Tracefs(error) => write!(
                out,
                "tracefs, which numbers the kernel's tracepoints, is for root ({error}; 'mount -o remount,mode=755 /sys/kernel/tracing' and CAP_PERFMON allow it)"
            ),
            Cause::Namespace => out.write_str("calltap runs in a pid namespace, and the kernel reports ids of the first one"),
            Cause::Descriptors { threads, events, spare, limit } => write!(
                out,
                "{threads} threads take {} file descriptors beside {spare} for other uses, and this process may have {limit} ('ulimit -n' allows more)",
                threads * events
            ),
            Cause::LockedMemory => out.write_str("this user may lock no more memory, and the kernel's rings are locked ('ulimit -l', or 'sysctl kernel.perf_event_mlock_kb', allows more)"),
            Cause::Gone => out.write_str("the process has ended"),
            Cause::Other(error) => write!(out, "perf_event_open failed: {error}"),
        }
    }
}

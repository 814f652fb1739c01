//! Why something that the kernel could tell of threads is not recorded.

use std::{fmt, fs, io};

/// What is not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Context switches.
    Switches,
    /// Who wakes whom.
    Wakings,
    /// System calls.
    SystemCalls,
    /// Page faults, and moves to other processors.
    Faults,
    /// Signals.
    Signals,
}

/// What is not recorded, and why.
#[derive(Debug)]
pub struct Refused {
    subject: Subject,
    cause: Cause,
}

/// Why.
#[derive(Debug)]
pub enum Cause {
    /// The kernel does not allow it.
    Forbidden {
        /// `kernel.perf_event_paranoid`, where it can be read.
        paranoid: Option<i32>,
    },
    /// The kernel cannot do it.
    Missing,
    /// The numbers of tracepoints stand in tracefs, which is root's.
    Tracefs(io::Error),
    /// The kernel tells ids of the first pid namespace, and this is another.
    Namespace,
    /// An event for each thread on each processor takes more descriptors than a process may have.
    Descriptors {
        /// So many threads,
        threads: usize,
        /// so many events for each,
        events: usize,
        /// and so many descriptors.
        limit: u64,
    },
    /// There is no such process any more.
    Gone,
    /// Something else.
    Other(io::Error),
}

/// `kernel.perf_event_paranoid` up to which users may record the switches of their own processes.
const ALLOWED: i32 = 2;

impl Refused {
    pub(crate) fn of(subject: Subject, cause: Cause) -> Refused {
        Refused { subject, cause }
    }

    /// The process has ended: nothing is to be said about it.
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
            Subject::Switches => "waits cannot be told from work: ",
            Subject::Wakings => "it is not known who woke a thread: ",
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
            Cause::Namespace => out.write_str("calltap runs in a pid namespace, and the kernel tells ids of the first one"),
            Cause::Descriptors { threads, events, limit } => write!(
                out,
                "{threads} threads take {} file descriptors, and this process may have {limit} ('ulimit -n' allows more)",
                threads * events
            ),
            Cause::Gone => out.write_str("the process has ended"),
            Cause::Other(error) => write!(out, "perf_event_open failed: {error}"),
        }
    }
}

//! Why context switches are not recorded.

use std::{fmt, fs, io};

/// Why context switches are not recorded.
#[derive(Debug)]
pub enum Refused {
    /// The kernel does not allow it.
    Forbidden {
        /// `kernel.perf_event_paranoid`, where it can be read.
        paranoid: Option<i32>,
    },
    /// The kernel cannot do it.
    Missing,
    /// An event for each thread on each processor takes more descriptors than a process may have.
    Descriptors {
        /// So many threads,
        threads: usize,
        /// on so many processors,
        processors: usize,
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
    pub(crate) fn new(error: io::Error) -> Refused {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
                Refused::Forbidden { paranoid: text.and_then(|text| text.trim().parse().ok()) }
            }
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL | libc::E2BIG) => {
                Refused::Missing
            }
            Some(libc::ESRCH) => Refused::Gone,
            _ => Refused::Other(error),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("waits cannot be told from work: ")?;
        match self {
            Refused::Forbidden { paranoid: Some(paranoid) } if *paranoid > ALLOWED => write!(
                out,
                "kernel.perf_event_paranoid is {paranoid}, which keeps context switches from users ('sysctl kernel.perf_event_paranoid={ALLOWED}', or CAP_PERFMON, allows it)"
            ),
            Refused::Forbidden { .. } => {
                out.write_str("the kernel, or the sandbox around it, forbids perf_event_open")
            }
            Refused::Missing => out.write_str("this kernel cannot record context switches (Linux 4.3 and later, built with perf events, can)"),
            Refused::Descriptors { threads, processors, limit } => write!(
                out,
                "{threads} threads on {processors} processors take {} file descriptors, and this process may have {limit} ('ulimit -n' allows more)",
                threads * processors
            ),
            Refused::Gone => out.write_str("the process has ended"),
            Refused::Other(error) => write!(out, "perf_event_open failed: {error}"),
        }
    }
}

//! Status files of processes and threads (`/proc/PID/status`).

use std::path::Path;
use std::{fs, io};

/// The content of a status file; empty if it could not be read.
#[derive(Clone, Default, Debug)]
pub struct Status(String);

impl Status {
    /// Reads the status of a process, or of a thread by its id alone.
    pub fn of(id: u32) -> io::Result<Status> {
        Status::read(format!("/proc/{id}/status"))
    }

    /// Reads the status of a thread of a process.
    pub fn of_thread(pid: u32, tid: u32) -> io::Result<Status> {
        Status::read(format!("/proc/{pid}/task/{tid}/status"))
    }

    /// Reads the status of this process.
    pub(crate) fn own() -> io::Result<Status> {
        Status::read("/proc/self/status")
    }

    pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Status> {
        fs::read_to_string(path).map(Status)
    }

    /// Returns a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(own, _)| *own == name).map(|(_, text)| text.trim())
    }

    /// Returns a field that is a number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.field(name)?.parse().ok()
    }

    /// Returns a field that is a size, in KiB.
    pub fn kib(&self, name: &str) -> Option<u64> {
        self.field(name)?.split(' ').next()?.parse().ok()
    }

    /// Returns a field that is a set of signals.
    pub fn signals(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.field(name)?, 16).ok()
    }

    /// Returns the id of the tracer, a thread.
    pub fn tracer(&self) -> Option<u32> {
        self.number("TracerPid").filter(|tid| *tid != 0)
    }

    /// Whether the tracer is a thread of this process.
    pub fn is_traced_by_us(&self) -> bool {
        self.tracer().is_some_and(|tid| Path::new(&format!("/proc/self/task/{tid}")).exists())
    }

    /// Whether system calls go through seccomp filters, or strict seccomp.
    pub fn is_filtered(&self) -> bool {
        self.field("Seccomp").is_some_and(|mode| mode != "0")
    }
}

impl From<&str> for Status {
    fn from(text: &str) -> Status {
        Status(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let text =
            "Name:\ta:b\nPid:\t7\nTracerPid:\t0\nVmLck:\t  12 kB\nSigPnd:\t0000000000000102\nSeccomp:\t2\n";
        let status = Status::from(text);
        assert_eq!(
            (status.field("Name"), status.number("Pid"), status.tracer()),
            (Some("a:b"), Some(7), None)
        );
        assert_eq!((status.kib("VmLck"), status.signals("SigPnd")), (Some(12), Some(0x102)));
        assert!(status.is_filtered() && !status.is_traced_by_us() && !Status::default().is_filtered());
    }

    #[test]
    fn the_own_status_is_read() {
        assert_eq!(Status::own().ok().and_then(|status| status.number("Pid")), Some(std::process::id()));
    }
}

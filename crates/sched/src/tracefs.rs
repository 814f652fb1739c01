//! Access to tracefs: descriptions of tracepoints and of buffer pages, and directories.
//!
//! If tracefs is not mounted, root opens a mount of its own that is attached to no directory, and
//! ends with this process.

use calltap_ringbuffer::{Fields, PageLayout};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

/// Usual mount points.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Maximum length of a file that is read here.
const MAX_FILE_LEN: usize = 64 << 10;

/// Number and layout of a tracepoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tracepoint {
    /// Number of the tracepoint.
    pub(crate) id: u64,
    fields: Fields,
}

/// The root directory of tracefs.
pub(crate) struct Tracefs(OwnedFd);

impl Tracefs {
    /// Finds tracefs, or mounts it.
    pub(crate) fn open() -> io::Result<Tracefs> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut refused = None;
        for place in PLACES {
            // The directory also exists where tracefs is not mounted.
            let root = openat(rustix::fs::CWD, place, flags, Mode::empty());
            match root.and_then(|root| openat(&root, "events", flags, Mode::empty()).map(|_| root)) {
                Ok(root) => return Ok(Tracefs(root)),
                Err(errno @ (Errno::ACCESS | Errno::PERM)) => refused = Some(errno),
                Err(_) => {}
            }
        }
        let mounted = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
            fsconfig_create(context.as_fd())?;
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        });
        let mounted = mounted.map_err(|errno| refused.unwrap_or(errno))?;
        Ok(Tracefs(openat(mounted, ".", flags, Mode::empty())?))
    }

    /// Returns a tracepoint, named as in `sched/sched_waking`.
    pub(crate) fn tracepoint(&self, name: &str) -> io::Result<Tracepoint> {
        let id = self.read(&format!("events/{name}/id"))?;
        let format = self.read(&format!("events/{name}/format"))?;
        parse(&id, &format).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Returns the layout of buffer pages.
    pub(crate) fn page_layout(&self) -> io::Result<PageLayout> {
        let layout = PageLayout::parse(&self.read("events/header_page")?);
        layout.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Opens a directory of tracefs.
    pub(crate) fn open_directory(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?)
    }

    /// Reads a file of tracefs.
    pub(crate) fn read(&self, name: &str) -> io::Result<String> {
        let mut file = File::from(openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
        // The description of pages ends with the first read, whatever the size of its buffer.
        let (mut bytes, mut length) = (vec![0; MAX_FILE_LEN], 0);
        while let read @ 1.. = file.read(&mut bytes[length..])? {
            length += read;
        }
        bytes.truncate(length);
        String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// Parses the texts of a tracepoint's files.
fn parse(id: &str, format: &str) -> Option<Tracepoint> {
    Some(Tracepoint { id: id.trim().parse().ok()?, fields: Fields::parse(format) })
}

impl Tracepoint {
    /// Returns the bytes of a field in raw data.
    pub(crate) fn bytes<'r>(&self, raw: &'r [u8], name: &str) -> Option<&'r [u8]> {
        self.fields.get(name)?.bytes(raw)
    }

    /// Returns a signed number in raw data.
    pub(crate) fn number(&self, raw: &[u8], name: &str) -> Option<i64> {
        self.fields.get(name)?.number(raw)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const WAKING: &str = "name: sched_waking\nID: 317\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;\n\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n\nprint fmt: \"comm=%s\", REC->comm\n";
    pub(crate) const ENTER: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
    pub(crate) const EXIT: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n";

    pub(crate) fn point(id: &str, format: &str) -> Tracepoint {
        parse(id, format).unwrap()
    }

    #[test]
    fn fields_are_found_where_the_format_says() {
        let point = point("317\n", WAKING);
        let mut raw = vec![0; 36];
        (raw[2], raw[24], raw[27]) = (0x18, 7, 0x80);
        assert_eq!((point.id, point.number(&raw, "common_flags")), (317, Some(0x18)));
        assert_eq!(point.number(&raw, "pid"), Some(i64::from(i32::MIN + 7)));
        assert_eq!((point.number(&raw, "absent"), point.number(&raw[..26], "pid")), (None, None));
        assert_eq!(parse("x", WAKING), None);
    }
}

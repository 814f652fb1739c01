//! A process that removes an instance of tracefs when its maker has ended, even if that was killed.
//!
//! Unsafe because it forks a process that may have threads. The child makes system calls alone: it
//! allocates nothing and takes no lock.
#![allow(unsafe_code)]

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::{CStr, CString, c_int, c_uint};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// Name of the process.
const NAME: &CStr = c"calltap-guard";
/// Number of attempts to remove the instance, and the time between two: the kernel refuses while
/// it still closes the maker's files.
const TRIES: u32 = 500;
const BETWEEN_NS: i64 = 10_000_000;
/// Descriptors that are closed one by one on kernels before 5.9.
const DESCRIPTORS: c_int = 4096;

/// Connection to the process, which acts when this is closed.
pub(crate) struct Guard {
    _alive: OwnedFd,
}

impl Guard {
    /// Starts the process, for the directory `name` in `instances`.
    pub(crate) fn start(instances: &OwnedFd, name: &str) -> io::Result<Guard> {
        let name = CString::new(name)?;
        let (ended, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child makes only system calls, see `leave` and `watch`.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            0 => leave(ended.as_raw_fd(), instances.as_raw_fd(), &name),
            _ => {}
        }
        // The process is no child of this one, which might wait for any child.
        let _ = retry_on_intr(|| waitpid(Pid::from_raw(child), WaitOptions::empty()));
        Ok(Guard { _alive: alive })
    }
}

/// Forks the process from a child, which ends.
fn leave(ended: c_int, instances: c_int, name: &CStr) -> ! {
    // SAFETY: as in `Guard::start`; `_exit` runs no handlers of the maker's.
    unsafe {
        if libc::fork() == 0 {
            watch(ended, instances, name);
        }
        libc::_exit(0)
    }
}

/// Waits until all other ends of the pipe are closed, and removes the directory.
///
/// # Safety
/// Only a forked process without other threads may call this: it closes all other descriptors.
unsafe fn watch(ended: c_int, instances: c_int, name: &CStr) {
    // SAFETY: system calls on this process's own descriptors, signal mask and memory.
    unsafe {
        // Signals of the maker's terminal or group do not end it.
        libc::setsid();
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::chdir(c"/".as_ptr());
        // Both are moved out of the way first: each may have the other's place.
        let [ended, instances] =
            [ended, instances].map(|descriptor| libc::fcntl(descriptor, libc::F_DUPFD, 3));
        libc::dup2(ended, 0);
        libc::dup2(instances, 1);
        if libc::syscall(libc::SYS_close_range, 2 as c_uint, c_uint::MAX, 0 as c_uint) != 0 {
            for descriptor in 2..DESCRIPTORS {
                libc::close(descriptor);
            }
        }
        let mut byte = 0_u8;
        while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
        let pause = libc::timespec { tv_sec: 0, tv_nsec: BETWEEN_NS };
        for _ in 0..TRIES {
            let removed = libc::unlinkat(1, name.as_ptr(), libc::AT_REMOVEDIR) == 0;
            if removed || *libc::__errno_location() != libc::EBUSY {
                return;
            }
            libc::nanosleep(&pause, ptr::null_mut());
        }
    }
}

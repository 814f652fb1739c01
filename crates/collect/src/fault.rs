//! Faults on shared memory whose file another process has truncated.
//!
//! The owner of a session's files may shorten them at any moment, even between a check and a use;
//! an access behind the new end raises SIGBUS. The handler maps zeros over the rest of that
//! mapping, marks it as truncated and returns: the access is repeated and reads zeros, which are
//! valid for everything in shared memory. Any other fault goes to the previous handler.
//!
//! This is unsafe because it is a signal handler, and replaces a mapping.
#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

const PAGE: usize = calltap_abi::PAGE as usize;

/// A mapping that may fault. The list of them only grows; an entry without a mapping is reused.
#[derive(Debug)]
pub struct Watched {
    /// Address of the first byte; 0: no mapping.
    start: AtomicUsize,
    size: AtomicUsize,
    truncated: AtomicBool,
    next: Option<&'static Watched>,
}

static NEWEST: AtomicPtr<Watched> = AtomicPtr::new(ptr::null_mut());
/// The previous action for SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn all() -> impl Iterator<Item = &'static Watched> {
    // SAFETY: null, or a leaked entry.
    let newest = unsafe { NEWEST.load(Acquire).as_ref() };
    std::iter::successors(newest, |watched| watched.next)
}

/// Handles faults in a mapping, until it is [released](Watched::release).
pub fn watch(start: usize, size: usize) -> &'static Watched {
    install();
    let free = all().find(|watched| watched.size.compare_exchange(0, size, AcqRel, Relaxed).is_ok());
    let watched = free.unwrap_or_else(|| add(size));
    watched.truncated.store(false, Relaxed);
    watched.start.store(start, Release);
    watched
}

fn add(size: usize) -> &'static Watched {
    loop {
        let newest = NEWEST.load(Acquire);
        let (start, size, truncated) = (AtomicUsize::new(0), AtomicUsize::new(size), AtomicBool::new(false));
        // SAFETY: null, or a leaked entry.
        let next = unsafe { newest.as_ref() };
        let own: &'static mut Watched = Box::leak(Box::new(Watched { start, size, truncated, next }));
        if NEWEST.compare_exchange(newest, own, AcqRel, Relaxed).is_ok() {
            return own;
        }
    }
}

impl Watched {
    /// Whether the file was truncated, so that some of the mapping is zeros.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated.load(Acquire)
    }

    /// Ends the watch, before the mapping is removed.
    pub fn release(&self) {
        self.start.store(0, Release);
        self.size.store(0, Release);
    }

    /// Returns start and length of the range from the page of an address to the end of the mapping,
    /// if the address is in it.
    fn rest(&self, address: usize) -> Option<(usize, usize)> {
        let start = self.start.load(Acquire);
        let end = start.checked_add(self.size.load(Acquire))?.next_multiple_of(PAGE);
        let page = address & !(PAGE - 1);
        (start != 0 && (start..end).contains(&address)).then(|| (page, end - page))
    }
}

fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: zeros are a valid sigaction; the handler is async-signal-safe: it reads atomics
        // and makes system calls.
        unsafe {
            let (mut own, mut before) = (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed());
            own.sa_sigaction = handle as *const () as usize;
            own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGBUS, &own, &mut before);
            before
        }
    });
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; for BUS_ADRERR it has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let own = all().find_map(|watched| Some((watched, watched.rest(address)?)));
    if let (libc::BUS_ADRERR, Some((watched, (page, length)))) = (code, own) {
        let (zeros, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: within a mapping of atomics, for which zeros are valid. The call is a bare system
        // call.
        let mapped = unsafe {
            mmap_anonymous(ptr::with_exposed_provenance_mut(page), length, zeros, flags | MapFlags::NORESERVE)
        };
        if mapped.is_ok() {
            watched.truncated.store(true, Release);
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Performs the action that SIGBUS would have without the handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The fault is raised again, and ends the process.
        // SAFETY: async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else {
        // SAFETY: a handler that was installed for this signal. One that takes only the number
        // ignores the rest.
        unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) };
    }
}

#[cfg(test)]
mod tests {
    use crate::shm::{Shared, control_size};

    #[test]
    fn a_file_that_is_truncated_between_a_check_and_a_use_reads_as_zeros_and_is_reported() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(control_size(8)).unwrap();
        let (shared, other) = (Shared::map(&file, 8, 8).unwrap(), tempfile::tempfile().unwrap());
        other.set_len(control_size(8)).unwrap();
        let other = Shared::map(&other, 8, 8).unwrap();
        let chunk = shared.chunk(0).unwrap();
        chunk[1].store(7, std::sync::atomic::Ordering::Relaxed);
        assert!(shared.check().is_ok());
        file.set_len(4096).unwrap();
        assert_eq!(chunk[1].load(std::sync::atomic::Ordering::Relaxed), 0);
        assert_eq!(shared.chunks_used(), 0);
        file.set_len(0).unwrap();
        assert_eq!(shared.control().magic.load(std::sync::atomic::Ordering::Relaxed), 0);
        let why = shared.check().unwrap_err().to_string();
        assert!(why.starts_with("the session's shared memory was truncated by another process"), "{why}");
        assert!(other.check().is_ok(), "another session goes on");
    }

    #[test]
    fn a_file_that_is_truncated_where_the_recorder_reads_nothing_is_reported() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(control_size(8)).unwrap();
        let shared = Shared::map(&file, 8, 8).unwrap();
        file.set_len(control_size(8) - 4096).unwrap();
        assert!(shared.check().is_err());
    }
}

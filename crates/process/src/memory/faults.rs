//! Pages that another process cannot read: those that a thread of the process itself supplies
//! (userfaultfd), and those that no other process may see (memfd_secret).
//!
//! While the supplying thread is stopped, `process_vm_readv` of a missing page waits for it, and so
//! for ever. Reading `/proc/PID/mem` fails instead.

use crate::proc;
use calltap_abi::PAGE;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Name of a userfaultfd in `/proc/PID/fd`.
const USERFAULTFD: &str = "anon_inode:[userfaultfd]";

/// State of a page that could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// In memory.
    Present,
    /// Swapped out, or a guard.
    Swapped,
    /// Not yet in memory, or not mapped.
    Missing,
}

/// A look through the open files of a process.
struct Look {
    began: Instant,
    took: Duration,
    found: bool,
}

/// Share of the time that may be spent on looking through the open files of a process: a server may
/// have a hundred thousand.
const SHARE: u32 = 32;
/// Maximum number of processes whose looks are kept.
const KEPT: usize = 1 << 10;

static LOOKS: Mutex<BTreeMap<u32, Look>> = Mutex::new(BTreeMap::new());

/// Whether a process holds a userfaultfd, and so may supply pages of its own memory. The answer is
/// that of the last look, if that is recent for the time it took.
pub(crate) fn serves_faults(pid: u32) -> bool {
    let mut looks = LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    if let Some(last) = looks.get(&pid).filter(|last| began - last.began < last.took * SHARE) {
        return last.found;
    }
    let found = holds_userfaultfd(pid);
    if looks.len() >= KEPT {
        looks.clear();
    }
    looks.insert(pid, Look { began, took: began.elapsed(), found });
    found
}

fn holds_userfaultfd(pid: u32) -> bool {
    let Ok(files) = fs::read_dir(proc::place(pid).join("fd")) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|link| link == Path::new(USERFAULTFD)))
}

/// Returns the state of the page at an address. If the kernel does not say, the page is taken to be
/// present: a caller that skips missing pages may then give up, and skips none that holds data.
pub fn page(pid: u32, at: u64) -> Page {
    let mut entry = [0; 8];
    let read = File::open(proc::place(pid).join("pagemap"))
        .and_then(|pagemap| pagemap.read_exact_at(&mut entry, at / PAGE * size_of::<u64>() as u64));
    // Bits 62 and 63: the page is swapped out, or in memory.
    match u64::from_le_bytes(entry) >> 62 {
        _ if read.is_err() => Page::Present,
        0 => Page::Missing,
        1 => Page::Swapped,
        _ => Page::Present,
    }
}

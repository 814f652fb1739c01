//! The text of a traced process, written from outside: the one hand of the project that changes code.
//!
//! `/proc/PID/mem` writes to read-only text without changing its protection (so also under W^X policies), and splits no mapping. It
//! works as long as the process's memory exists, whatever the process does to its privileges after this was opened.
//!
//! Unsafe because membarrier has no safe wrapper; the call changes no memory.
#![allow(unsafe_code)]

use crate::memory::patch_log;
use crate::proc;
use calltap_abi::ProcessEntry;
use calltap_patch::log::Entry;
use calltap_patch::{Avma, Change, Demand, Text, Transition};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// MEMBARRIER_CMD_GLOBAL_EXPEDITED: interrupts every processor that runs a thread of a process that registered for it.
const GLOBAL_EXPEDITED: i32 = 1 << 1;

/// How other processors come to see what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// They are interrupted. Returning from an interrupt serialises; where the kernel returns to the process without one, the process's registration
    /// for SYNC_CORE makes it serialise.
    Barrier,
    /// All threads are stopped, or none can be running what is written.
    Quiet,
}

/// A process's memory.
#[derive(Debug)]
pub struct ProcessText {
    pid: u32,
    memory: File,
    /// How to sync.
    pub sync: Sync,
    /// What sites are while they are changed under running threads.
    pub through: Transition,
    /// A breakpoint in it may have been left by a controller that was killed.
    pub after_int3: bool,
    in_batch: bool,
    /// Nothing is written to sites after this.
    until: Option<Instant>,
}

/// The agent gives a controller up that shows no sign of life for two seconds: then modules may be unmapped. A controller that was stopped for that long in the
/// middle must not write on as if nothing had been.
const LEASE: Duration = Duration::from_millis(1500);

impl ProcessText {
    /// Opens the memory of a process: takes the permission to trace it.
    pub fn open(pid: u32) -> std::io::Result<ProcessText> {
        let memory = OpenOptions::new().read(true).write(true).open(proc::place(pid).join("mem"))?;
        let (sync, through, after_int3, in_batch) = (Sync::Barrier, Transition::Test, false, false);
        Ok(ProcessText { pid, memory, sync, through, after_int3, in_batch, until: None })
    }

    /// Another one of the same memory, for another thread.
    pub fn shared(&self) -> Option<ProcessText> {
        let memory = self.memory.try_clone().ok()?;
        let ProcessText { pid, sync, through, after_int3, .. } = *self;
        Some(ProcessText { pid, memory, sync, through, after_int3, in_batch: false, until: None })
    }

    /// Reads many places (address, length) at once, as the kernel charges for calls: for threads that are stopped, so that the process is the one it was.
    pub fn read_many(&mut self, places: &[(u64, usize)]) -> Pieces {
        let mut pieces = Pieces::new(places);
        let mut next = 0;
        while next < places.len() {
            let end = places.len().min(next + MOST_PLACES);
            let remote: Vec<RemoteIoVec> = places[next..end]
                .iter()
                .map(|(base, len)| RemoteIoVec { base: *base as usize, len: *len })
                .collect();
            let into = IoSliceMut::new(&mut pieces.bytes[pieces.ends[next]..pieces.ends[end]]);
            let done = process_vm_readv(Pid::from_raw(self.pid as i32), &mut [into], &remote);
            let read = pieces.ends[next] + done.unwrap_or(0);
            while next < end && pieces.ends[next + 1] <= read {
                next += 1;
            }
            // What ends the call early can be read by way of the file, or not at all. A process whose first thread has ended is read by the file alone.
            let is_whole_process = !matches!(done, Ok(_) | Err(nix::errno::Errno::EFAULT));
            let by_file = if is_whole_process { end } else { end.min(next + 1) };
            while next < by_file {
                let into = &mut pieces.bytes[pieces.ends[next]..pieces.ends[next + 1]];
                pieces.is_read[next] = self.memory.read_exact_at(into, places[next].0).is_ok();
                next += 1;
            }
        }
        pieces
    }

    /// From now on it is known for a while what is mapped.
    pub fn lease(&mut self) {
        self.until = Some(Instant::now() + LEASE);
    }
}

/// IOV_MAX.
const MOST_PLACES: usize = 1024;

/// What was [read](ProcessText::read_many) of many places.
#[derive(Debug)]
pub struct Pieces {
    bytes: Vec<u8>,
    /// Where the bytes of each place begin, and those of the last end.
    ends: Vec<usize>,
    is_read: Vec<bool>,
}

impl Pieces {
    fn new(places: &[(u64, usize)]) -> Pieces {
        let mut ends = vec![0];
        let mut end = 0;
        ends.extend(places.iter().map(|(_, length)| {
            end += length;
            end
        }));
        Pieces { bytes: vec![0; end], ends, is_read: vec![true; places.len()] }
    }

    /// The bytes of a place, by its number. None: a part of it cannot be read.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        self.is_read[n].then(|| &self.bytes[self.ends[n]..self.ends[n + 1]])
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Text for ProcessText {
    type Error = Errno;

    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), Errno> {
        let read = self.memory.read_exact_at(into, at.0).map_err(errno);
        if self.in_batch && read.is_ok() && patch_log::is_kept() {
            patch_log::add([Entry::Read(at, into.to_vec())]);
        }
        read
    }

    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), Errno> {
        if self.in_batch && self.until.is_some_and(|until| Instant::now() > until) {
            return Err(Errno::TIMEDOUT);
        }
        if patch_log::is_kept() {
            let bytes = bytes.to_vec();
            patch_log::add([if self.in_batch {
                Entry::Write(at, bytes)
            } else {
                Entry::Poke(self.pid, at, bytes)
            }]);
        }
        self.memory.write_all_at(bytes, at.0).map_err(errno)
    }

    fn sync(&mut self) -> Result<(), Errno> {
        patch_log::add([Entry::Sync]);
        if self.sync == Sync::Quiet {
            return Ok(());
        }
        // SAFETY: a memory barrier; no pointers.
        match unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL_EXPEDITED, 0, 0) } {
            0 => Ok(()),
            _ => Err(errno(std::io::Error::last_os_error())),
        }
    }

    fn transition(&self) -> Transition {
        if self.sync == Sync::Quiet { Transition::Test } else { self.through }
    }

    fn after_int3(&self) -> bool {
        self.after_int3
    }

    fn begin(&mut self, changes: &mut dyn Iterator<Item = Change<'_>>, granted: Demand) {
        self.in_batch = true;
        if patch_log::is_kept() {
            let (pid, quiet) = (self.pid, self.sync == Sync::Quiet);
            let (transition, after_int3) = (self.transition(), self.after_int3());
            let batch = Entry::Batch { pid, quiet, granted, transition, after_int3 };
            patch_log::add(std::iter::once(batch).chain(changes.map(Entry::from)));
        }
    }

    fn end(&mut self) {
        self.in_batch = false;
        patch_log::add([Entry::End]);
    }
}

/// While this exists, the dynamic linker of a process unmaps nothing: what is found mapped, stays.
pub struct KeepMapped<'a>(&'a ProcessEntry);

/// The dynamic linker is waited for no longer than this; then it has been stopped in the middle, and nothing is written.
const UNLOADING: Duration = Duration::from_secs(2);

impl<'a> KeepMapped<'a> {
    /// Waits for the dynamic linker, if it is at it. From then on the text is [leased](ProcessText::lease).
    pub fn new(process: &'a ProcessEntry, text: &mut ProcessText) -> Option<KeepMapped<'a>> {
        let start = Instant::now();
        while start.elapsed() < UNLOADING {
            text.lease();
            // Both sides say what they are at before they look at what the other is at.
            process.writing.store(1, SeqCst);
            let kept = KeepMapped(process);
            if process.unloading.load(SeqCst) == 0 {
                return Some(kept);
            }
            drop(kept);
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

impl Drop for KeepMapped<'_> {
    fn drop(&mut self) {
        self.0.writing.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    #[test]
    fn many_places_are_read_as_one_by_one() {
        let words: Vec<u64> = (0..5000).collect();
        // SAFETY: a new mapping, which overlaps nothing.
        let guard =
            unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::empty(), MapFlags::PRIVATE) };
        let guard = guard.expect("memory") as u64;
        let of = |n: usize| (&raw const words[n] as u64, size_of::<u64>());
        let mut places: Vec<(u64, usize)> = (0..words.len()).map(of).collect();
        // Nothing is mapped there; the file shows memory that its process may not read; no bytes are asked for.
        places.splice(1500..1500, [(8, 8), (guard, 8), (0, 0), (8, 8)]);
        places.push((u64::MAX - 8, 8));
        let mut text = ProcessText::open(std::process::id()).expect("this process");
        let pieces = text.read_many(&places);
        for (n, (at, length)) in places.iter().enumerate() {
            let mut expected = vec![0; *length];
            let expected = text.read(Avma(*at), &mut expected).ok().map(|()| &expected[..]);
            assert_eq!(pieces.get(n), expected, "place {n}");
        }
        assert_eq!(pieces.get(1500), None);
    }
}

//! The text of a traced process, written from outside. All changes of another process's code go
//! through this file.
//!
//! Writing to `/proc/PID/mem` changes read-only text without changing its protection, so also under
//! W^X policies, and splits no mapping. It works as long as the process's memory exists, even if
//! the process changes its privileges after the file was opened.

use crate::memory::faults::{self, Page};
use crate::memory::{maps, patch_log};
use crate::proc;
use calltap_abi::ProcessEntry;
use calltap_patch::log::Entry;
use calltap_patch::{Avma, Change, Demand, Text, Transition};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// How other processors are made to see a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// All processors that run threads of the process are interrupted. Returning from an interrupt
    /// serializes; where the kernel returns to the process without one, the process's registration
    /// for SYNC_CORE makes it serialize.
    Barrier,
    /// No barrier: all threads are stopped, or none can be running the written code.
    Quiet,
}

/// The memory of a process.
#[derive(Debug)]
pub struct ProcessText {
    pid: u32,
    memory: File,
    /// How writes are synchronized.
    pub sync: Sync,
    /// The transitional instruction of sites that are changed under running threads.
    pub through: Transition,
    /// Whether a killed controller may have left a breakpoint in a site.
    pub after_int3: bool,
    in_batch: bool,
    /// Code that the program itself may write to, as of the beginning of the batch.
    writable: Vec<(u64, u64)>,
    /// Whether a read may wait for a thread of the process.
    serves_faults: bool,
    /// Time after which a write in a batch fails with [`LEASE_EXPIRED`].
    until: Option<Instant>,
}

/// How long the list of mappings may be relied on. The agent gives up a controller that shows no
/// sign of life for two seconds, and modules may then be unmapped. A controller that was stopped in
/// the middle of a batch must not go on writing after that.
const LEASE: Duration = Duration::from_millis(1500);

/// Error of a write after the end of the [lease](ProcessText::lease). Writing to a process's memory
/// gives no such error itself.
pub const LEASE_EXPIRED: Errno = Errno::TIMEDOUT;

impl ProcessText {
    /// Opens the memory of a process. The caller needs permission to trace it.
    pub fn open(pid: u32) -> std::io::Result<ProcessText> {
        let memory = OpenOptions::new().read(true).write(true).open(proc::place(pid).join("mem"))?;
        let (sync, through, after_int3, in_batch) = (Sync::Barrier, Transition::Test, false, false);
        let serves_faults = faults::serves_faults(pid);
        let (writable, until) = (Vec::new(), None);
        Ok(ProcessText { pid, memory, sync, through, after_int3, in_batch, writable, serves_faults, until })
    }

    /// Opens the same memory for use by another thread.
    pub fn shared(&self) -> Option<ProcessText> {
        let memory = self.memory.try_clone().ok()?;
        let ProcessText { pid, sync, through, after_int3, serves_faults, .. } = *self;
        let (in_batch, writable, until) = (false, Vec::new(), None);
        Some(ProcessText { pid, memory, sync, through, after_int3, in_batch, writable, serves_faults, until })
    }

    /// Reads many places (address, length) with few system calls. The threads of the process must
    /// be stopped, so that its id cannot have passed to another process.
    pub fn read_many(&mut self, places: &[(u64, usize)]) -> Pieces {
        let mut pieces = Pieces::new(places);
        let mut next = 0;
        while next < places.len() {
            let end = places.len().min(next + MAX_PLACES);
            let remote: Vec<RemoteIoVec> = places[next..end]
                .iter()
                .map(|(base, len)| RemoteIoVec { base: *base as usize, len: *len })
                .collect();
            let into = IoSliceMut::new(&mut pieces.bytes[pieces.ends[next]..pieces.ends[end]]);
            let done = match self.serves_faults {
                true => Err(nix::errno::Errno::ENOSYS),
                false => process_vm_readv(Pid::from_raw(self.pid as i32), &mut [into], &remote),
            };
            let read = pieces.ends[next] + done.unwrap_or(0);
            while next < end && pieces.ends[next + 1] <= read {
                next += 1;
            }
            // A place that ends the call early is read through the file, if it can be read at all.
            // A process whose first thread has ended, or whose threads supply its pages, can be
            // read through the file only.
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

    /// Looks whether the process supplies pages of its own memory, before its threads are stopped.
    pub fn look_for_faults(&mut self) -> &mut ProcessText {
        self.serves_faults = faults::serves_faults(self.pid);
        self
    }

    /// Whether the process may supply pages of its own memory.
    pub(crate) fn serves_faults(&self) -> bool {
        self.serves_faults
    }

    /// Returns the state of the page at an address.
    pub fn page(&self, at: u64) -> Page {
        faults::page(self.pid, at)
    }

    /// Starts or renews the lease: until it ends, writes in a batch are allowed.
    pub fn lease(&mut self) {
        self.until = Some(Instant::now() + LEASE);
    }

    /// Ends the need for a lease, as all threads are stopped: none of them unmaps anything, however
    /// long calltap waits for a processor.
    pub fn need_no_lease(&mut self) {
        self.until = None;
    }
}

/// The memory that a process had when this was opened.
pub struct MemoryWatch(File);

impl MemoryWatch {
    /// Opens the memory of a process.
    pub fn open(pid: u32) -> std::io::Result<MemoryWatch> {
        File::open(proc::place(pid).join("mem")).map(MemoryWatch)
    }

    /// Whether the process has ended or executed another program: reading then finds the end of the
    /// file, where an address that is not mapped is an error.
    pub fn is_gone(&self) -> bool {
        self.0.read_at(&mut [0], 0).is_ok_and(|count| count == 0)
    }
}

/// IOV_MAX.
const MAX_PLACES: usize = 1024;

/// The bytes [read](ProcessText::read_many) from many places.
#[derive(Debug)]
pub struct Pieces {
    bytes: Vec<u8>,
    /// Start of each place's bytes, and the end of the last's.
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

    /// Returns the bytes of a place, by its number. None if a part of it could not be read.
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
            return Err(LEASE_EXPIRED);
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
        // Interrupts every processor that runs a thread of a process that registered for it.
        membarrier(MembarrierCommand::GlobalExpedited)
    }

    fn transition(&self) -> Transition {
        if self.sync == Sync::Quiet { Transition::Test } else { self.through }
    }

    fn after_int3(&self) -> bool {
        self.after_int3
    }

    fn may_program_write(&self, at: Avma) -> bool {
        self.writable.iter().any(|(start, end)| (*start..*end).contains(&at.0))
    }

    fn begin(&mut self, changes: &mut dyn Iterator<Item = Change<'_>>, granted: Demand) {
        self.in_batch = true;
        // Stopped threads write nothing.
        self.writable = if self.sync == Sync::Quiet { Vec::new() } else { maps::writable_code(self.pid) };
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

/// A guard: while it exists, the dynamic linker of a process unmaps nothing.
pub struct KeepMapped<'a>(&'a ProcessEntry);

/// How long to wait for the dynamic linker. If it takes longer, it was stopped in the middle, and
/// nothing is written.
const UNLOADING: Duration = Duration::from_secs(2);

impl<'a> KeepMapped<'a> {
    /// Waits until the dynamic linker is not unmapping, and [leases](ProcessText::lease) the text.
    /// None if that takes too long.
    pub fn new(process: &'a ProcessEntry, text: &mut ProcessText) -> Option<KeepMapped<'a>> {
        let start = Instant::now();
        while start.elapsed() < UNLOADING {
            text.lease();
            // Each side sets its own flag before it reads the other's.
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
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    use std::sync::atomic::AtomicU64;

    #[test]
    fn batches_of_running_threads_end_with_their_lease() {
        let mut text = ProcessText::open(std::process::id()).expect("this process");
        let word = AtomicU64::new(1);
        let at = Avma(word.as_ptr() as u64);
        let write = |text: &mut ProcessText| {
            text.begin(&mut std::iter::empty(), Demand::Nothing);
            let written = text.write(at, &2_u64.to_le_bytes());
            text.end();
            written
        };
        text.lease();
        assert_eq!(write(&mut text), Ok(()));
        text.until = Instant::now().checked_sub(Duration::from_millis(1));
        assert_eq!(write(&mut text), Err(LEASE_EXPIRED));
        text.need_no_lease();
        assert_eq!(write(&mut text), Ok(()));
        assert_eq!(word.load(SeqCst), 2);
    }

    #[test]
    fn many_places_are_read_as_one_by_one() {
        let words: Vec<u64> = (0..5000).collect();
        // SAFETY: a new mapping, which overlaps nothing.
        let guard =
            unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::empty(), MapFlags::PRIVATE) };
        let guard = guard.expect("memory") as u64;
        let of = |n: usize| (&raw const words[n] as u64, size_of::<u64>());
        let mut places: Vec<(u64, usize)> = (0..words.len()).map(of).collect();
        // The places: unmapped memory; memory that the file shows and its process may not read; no
        // bytes.
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

//! Maps the control file: the memory that the agent and the recorder share.
//!
//! This is unsafe because another process writes to the memory. All of it is viewed through atomics
//! (any bytes are valid values), every index is checked against the mapping, and the mapping lives
//! as long as the value.
#![allow(unsafe_code)]

mod chunks;

use crate::fault::{self, Watched};
use calltap_abi::first_calls::{self, BUCKETS_SIZE, FirstCalls, IN_PAGE};
use calltap_abi::plan::{Map, PlanHeader};
use calltap_abi::python::{self, Table};
use calltap_abi::traps::{self, Traps};
use calltap_abi::values::{PROGRAMS, Program};
use calltap_abi::waits::{self, Wait};
use calltap_abi::{
    CHUNK_SIZE, CHUNKS_AT, ChunkHeader, Control, FIRST_CALLS_AT, MAGIC, PLAN_AT, PLAN_SIZE, PROCESS_MAX,
};
use calltap_abi::{
    PROCESSES_AT, PROGRAMS_AT, PYTHON_AT, ProcessEntry, TABLE_AT, THREAD_MAX, THREADS_AT, TRAPS_AT,
    ThreadEntry, VERSION, WAITS_AT, push,
};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

/// Error: a process that may write to the session's files has truncated them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the session's shared memory was truncated by another process: tracing has stopped; attach again")]
pub struct Truncated;

/// Returns the size of a control file with `chunks` chunks, in bytes.
pub fn control_size(chunks: u32) -> u64 {
    CHUNKS_AT as u64 + u64::from(chunks) * CHUNK_SIZE as u64
}

/// Returns the number of chunks in a control file of `size` bytes.
pub fn chunks_in(size: u64) -> u32 {
    let bytes = size.saturating_sub(CHUNKS_AT as u64);
    u32::try_from(bytes / CHUNK_SIZE as u64).unwrap_or(u32::MAX).min(MAX_CHUNKS)
}

/// Maximum number of chunks of an existing control file, whatever size its owner has given it.
const MAX_CHUNKS: u32 = 1 << 22;

/// The mapped control file.
#[derive(Debug)]
pub struct Shared {
    base: *mut u8,
    size: usize,
    /// Number of chunks in the file.
    chunks: u32,
    /// Number of chunks that may be used however few threads there are; each thread adds one.
    by_few: u32,
    /// Chunks put on the list of spare ones so far.
    spares_given: AtomicU32,
    /// Chunks among them that were never in use.
    spares_reserved: AtomicU32,
    file: File,
    watched: &'static Watched,
}

// SAFETY: the mapping belongs to the value, and is accessed through atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps a control file of [`control_size`]`(chunks)` bytes. Few threads may use `by_few` of the
    /// chunks; each thread adds one.
    pub fn map(file: &File, chunks: u32, by_few: u32) -> io::Result<Shared> {
        let mut shared = Shared::over(file, chunks)?;
        shared.by_few = by_few.min(chunks);
        // A sparse file on a full file system kills a process that touches it; an allocated one
        // does not.
        shared.allocate(0, PLAN_AT)?;
        shared.control().chunk_max.store(chunks, Release);
        shared.provide_first_chunks();
        if shared.control().chunk_count.load(Relaxed) == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(shared)
    }

    /// Maps an existing control file. `InvalidData`: it was not written yet when its calltap was
    /// killed; `Unsupported`: another version wrote it.
    pub fn open(file: &File) -> io::Result<Shared> {
        let chunks = Some(chunks_in(file.metadata()?.len())).filter(|chunks| *chunks > 0);
        let chunks = chunks.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let shared = Shared::over(file, chunks)?;
        let control = shared.control();
        let (magic, version) = (control.magic.load(Acquire), control.version.load(Relaxed));
        let unknown = |kind| Err(io::Error::from(kind));
        match (magic, version) {
            (MAGIC, VERSION) => {
                shared.spares_given.store(control.spares_taken.load(Relaxed), Relaxed);
                Ok(shared)
            }
            (MAGIC, _) => unknown(io::ErrorKind::Unsupported),
            _ => unknown(io::ErrorKind::InvalidData),
        }
    }

    fn over(file: &File, chunks: u32) -> io::Result<Shared> {
        let (size, file) = (control_size(chunks) as usize, file.try_clone()?);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }?;
        let watched = fault::watch(base.expose_provenance(), size);
        Ok(Shared {
            base: base.cast(),
            size,
            chunks,
            by_few: chunks,
            spares_given: AtomicU32::new(0),
            spares_reserved: AtomicU32::new(0),
            file,
            watched,
        })
    }

    /// Returns an error once the file was truncated: data behind its new end reads as zeros.
    pub fn check(&self) -> Result<(), Truncated> {
        let is_whole = self.file.metadata().is_ok_and(|file| file.len() >= self.size as u64);
        if is_whole && !self.watched.is_truncated() { Ok(()) } else { Err(Truncated) }
    }

    fn allocate(&self, offset: usize, length: usize) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), offset as u64, length as u64)?)
    }

    /// Returns the inode, which identifies the file among mappings; 0 if it cannot be read.
    pub fn inode(&self) -> u64 {
        self.file.metadata().map_or(0, |file| std::os::unix::fs::MetadataExt::ino(&file))
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    // The program writes the following counts; each is clamped to its maximum.

    /// Returns the number of chunks that were ever used.
    pub fn chunks_used(&self) -> u32 {
        self.control().chunk_bump.load(Acquire).min(self.chunks)
    }

    /// Returns the indices of the process entries that were ever taken.
    pub fn processes(&self) -> Range<u32> {
        0..self.control().process_bump.load(Acquire).min(PROCESS_MAX as u32)
    }

    /// Returns the indices of the thread entries that were ever taken.
    pub fn threads(&self) -> Range<u32> {
        0..self.control().thread_bump.load(Acquire).min(THREAD_MAX as u32)
    }

    /// Returns the thread entries that were ever taken.
    pub fn thread_entries(&self) -> impl Iterator<Item = &ThreadEntry> {
        self.threads().filter_map(|index| self.thread(index))
    }

    /// Returns the `T` at an offset; `T` is one of the ABI's types, made of atomics.
    fn at<T>(&self, offset: usize) -> Option<&T> {
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.size);
        // SAFETY: inside the mapping, which is page-aligned and lives as long as self; offset is a
        // multiple of the alignment (checked); atomics have no invalid bytes.
        (fits && offset.is_multiple_of(align_of::<T>()))
            .then(|| unsafe { &*self.base.add(offset).cast::<T>() })
    }

    /// Returns the first page.
    pub fn control(&self) -> &Control {
        self.at(0).expect("a control file is larger than its first page")
    }

    /// Returns the waits of the program's threads for the recorder.
    pub fn waits(&self) -> Option<&[Wait; waits::COUNT]> {
        self.at(WAITS_AT)
    }

    /// Returns a process entry.
    pub fn process(&self, index: u32) -> Option<&ProcessEntry> {
        let index = index as usize;
        (index < PROCESS_MAX).then(|| self.at(PROCESSES_AT + index * size_of::<ProcessEntry>()))?
    }

    /// Whether a later entry has the process's id: it executed a program, or has ended.
    pub fn was_replaced(&self, index: u32) -> bool {
        (index + 1..self.processes().end).any(|later| self.is_same_process(index, later))
    }

    /// Whether two entries are of one process.
    pub(crate) fn is_same_process(&self, one: u32, other: u32) -> bool {
        let of = |index| {
            let entry = self.process(index)?;
            Some((entry.pid.load(Acquire), entry.pid_namespace.load(Relaxed)))
        };
        of(one).is_some_and(|own| of(other) == Some(own))
    }

    /// Returns a process and its ancestors by fork.
    pub fn line(&self, index: u32) -> Vec<u32> {
        let mut line = vec![index];
        let parent = |line: &[u32]| self.process(*line.last()?)?.parent.load(Relaxed).checked_sub(1);
        while let Some(parent) = parent(&line).filter(|parent| !line.contains(parent)) {
            line.push(parent);
        }
        line
    }

    /// Returns a thread entry.
    pub fn thread(&self, index: u32) -> Option<&ThreadEntry> {
        let index = index as usize;
        (index < THREAD_MAX).then(|| self.at(THREADS_AT + index * size_of::<ThreadEntry>()))?
    }

    /// Returns the number of chunks in the file.
    pub fn chunk_count(&self) -> u32 {
        self.chunks
    }

    pub(crate) fn chunk_offset(&self, index: u32) -> Option<usize> {
        (index < self.chunks).then(|| CHUNKS_AT + index as usize * CHUNK_SIZE)
    }

    /// Returns a chunk's header.
    pub fn chunk_header(&self, index: u32) -> Option<&ChunkHeader> {
        self.at(self.chunk_offset(index)?)
    }

    /// Returns a chunk as 8-byte words, header included.
    pub fn chunk(&self, index: u32) -> Option<&[AtomicU64; CHUNK_SIZE / 8]> {
        self.at(self.chunk_offset(index)?)
    }

    /// Returns a chunk as 4-byte words, header included.
    pub(crate) fn chunk_halves(&self, index: u32) -> Option<&[AtomicU32; CHUNK_SIZE / 4]> {
        self.at(self.chunk_offset(index)?)
    }

    /// Returns the plan area as `maps` mappings; `None` if there is no room.
    pub fn plan(&self, maps: usize) -> Option<(&PlanHeader, &[Map])> {
        let maps_at = size_of::<PlanHeader>();
        let end = maps_at.checked_add(maps.checked_mul(size_of::<Map>())?)?;
        if end > PLAN_SIZE {
            return None;
        }
        self.allocate(PLAN_AT, end).ok()?;
        let header: &PlanHeader = self.at(PLAN_AT)?;
        let first: &Map = self.at(PLAN_AT + maps_at)?;
        // SAFETY: `end` is inside the plan area, which is inside the mapping; see `at`.
        Some((header, unsafe { std::slice::from_raw_parts(first, maps) }))
    }

    /// Returns the sites that may be breakpoints.
    pub fn traps(&self) -> Option<Traps<'_>> {
        let lists = [self.at(TRAPS_AT)?, self.at(TRAPS_AT + traps::LIST)?];
        Some(Traps { word: &self.control().traps, lists })
    }

    /// Whether any site has ever been a breakpoint.
    pub fn has_traps(&self) -> bool {
        self.control().traps.load(Acquire) != 0
    }

    /// Replaces the list of breakpoints by these addresses, ascending.
    pub fn list_traps(&self, addresses: &[u64]) -> io::Result<()> {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let traps = self.traps().ok_or_else(full)?;
        let bytes = size_of_val(addresses);
        if bytes > 0 {
            self.allocate(TRAPS_AT + traps.spare() * traps::LIST, bytes.min(traps::LIST))?;
        }
        if traps.replace(addresses) { Ok(()) } else { Err(full()) }
    }

    /// Returns the calls that were recorded when they were made for the first time.
    pub fn first_calls(&self) -> Option<FirstCalls<'_>> {
        let (buckets, records) = (self.at(FIRST_CALLS_AT)?, self.at(FIRST_CALLS_AT + BUCKETS_SIZE)?);
        Some(FirstCalls { counters: &self.control().first_calls, buckets, records })
    }

    fn program(&self, number: u32) -> Option<&Program> {
        let number = number as usize;
        (number < PROGRAMS).then(|| self.at(PROGRAMS_AT + number * size_of::<Program>()))?
    }

    /// Returns the programs in use that read values, from number 1 on.
    pub fn programs(&self) -> impl Iterator<Item = Box<[u64]>> {
        let count = self.control().programs.load(Acquire).min(PROGRAMS as u32);
        (1..count).filter_map(|number| {
            let words: Vec<u64> = self.program(number)?.iter().map(|word| word.load(Relaxed)).collect();
            let length = words[0] >> 16 & 0xFF;
            Some(words.get(..length as usize).unwrap_or_default().into())
        })
    }

    /// Adds a program and returns its number.
    pub(crate) fn add_program(&self, words: &[u64]) -> Option<u16> {
        let number = self.control().programs.load(Acquire).max(1);
        let program = self.program(number).filter(|program| words.len() <= program.len())?;
        let offset = PROGRAMS_AT + number as usize * size_of::<Program>();
        self.allocate(offset, size_of::<Program>()).ok()?;
        program.iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
        self.control().programs.store(number + 1, Release);
        u16::try_from(number).ok()
    }

    /// Assigns a program to a stub, which reads values by it.
    pub fn assign_program(&self, stub: u32, program: u16) -> io::Result<()> {
        let offset = TABLE_AT + stub as usize * size_of::<AtomicU32>();
        self.allocate(offset, size_of::<AtomicU32>())?;
        let place: &AtomicU32 = self.at(offset).ok_or(io::ErrorKind::InvalidInput)?;
        place.store(program.into(), Release);
        Ok(())
    }

    /// Returns the table of Python functions, where these are traced.
    pub fn python(&self) -> Option<&Table> {
        let is_there = self.control().python.load(Acquire) != python::wanted::NEVER;
        is_there.then(|| self.at(PYTHON_AT)).flatten()
    }

    /// Provides the table of Python functions, if missing, for sites from `first_site` on.
    pub(crate) fn provide_python(&self, first_site: u32) -> io::Result<&Table> {
        if let Some(table) = self.python() {
            return Ok(table);
        }
        self.allocate(PYTHON_AT, python::SIZE)?;
        let table: &Table = self.at(PYTHON_AT).ok_or(io::ErrorKind::InvalidInput)?;
        table.header.next_site.store(first_site, Release);
        Ok(table)
    }

    /// Allocates the hash table, and the first record pages.
    pub fn provide_first(&self) -> io::Result<()> {
        let pages = first_calls::AT_START.div_ceil(IN_PAGE);
        self.allocate(FIRST_CALLS_AT, BUCKETS_SIZE + pages * first_calls::PAGE)?;
        self.control().first_calls.limit.store((pages * IN_PAGE) as u32, Release);
        Ok(())
    }

    /// Allocates a page of records if less than one is free, unless the file system is full.
    pub fn replenish_first(&self) {
        let counters = &self.control().first_calls;
        let (next, limit) = (counters.next.load(Relaxed), counters.limit.load(Relaxed));
        let more = IN_PAGE as u32;
        if limit.saturating_sub(next) >= more || limit as usize >= first_calls::RECORDS {
            return;
        }
        let offset = FIRST_CALLS_AT + BUCKETS_SIZE + limit as usize * size_of::<first_calls::Record>();
        if self.allocate(offset, first_calls::PAGE).is_ok() {
            counters.limit.store(limit + more, Release);
        }
    }

    /// Puts a drained thread entry on the free list.
    pub(crate) fn free_thread(&self, index: u32) {
        if let Some(entry) = self.thread(index) {
            push(&self.control().thread_free, index, &entry.next_free);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.watched.release();
        // SAFETY: the mapping made in `over`; no reference outlives self.
        let _ = unsafe { munmap(self.base.cast(), self.size) };
    }
}

/// Waits until the word differs from `expected`, a wake-up, or the end of `time`.
pub fn wait(word: &AtomicU32, expected: u32, time: Duration) {
    let time = futex::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&time));
}

/// Wakes all threads that wait on the word.
pub fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

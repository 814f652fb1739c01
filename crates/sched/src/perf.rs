//! The system calls of perf: opens an event for a thread on a processor, and maps the ring of a
//! processor.
//!
//! Unsafe because it makes system calls with pointers and maps memory that the kernel writes to.
#![allow(unsafe_code)]

use perf_event_open_sys as sys;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::*};
use sys::bindings::{self, perf_event_attr, perf_event_mmap_page};

/// The threads and processes that inherit an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heirs {
    /// Threads and processes that the thread starts, and those that they start, until one executes
    /// another program.
    UntilExec,
    /// All of them, whatever they execute.
    All,
}

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PerfEvent {
    /// Context switches.
    Switches,
    /// Hits of the tracepoint with this number.
    Tracepoint(u64),
    /// Only the records that come with [`Scope::All`].
    Processes,
    /// Programs that are executed.
    Execs,
    /// Page faults with their addresses: major ones, which read from a disk, or minor ones.
    PageFaults { major: bool },
    /// The processors on which a thread is switched in.
    SwitchIns,
    /// Hits of the tracepoint with this number, with the processor, as all records of that ring
    /// have it.
    SignalDeliveries(u64),
}

/// The scope of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// A thread and its heirs.
    Thread(u32, Heirs),
    /// Everything on the processor, with records of processes that start, end, or change their
    /// names.
    All,
}

/// Sets what is recorded, and what the records hold.
fn describe(attr: &mut perf_event_attr, kind: PerfEvent) {
    match kind {
        PerfEvent::Switches => {
            attr.type_ = bindings::PERF_TYPE_SOFTWARE;
            attr.config = bindings::PERF_COUNT_SW_DUMMY.into();
            attr.set_context_switch(1);
            // Names, and starts and ends of threads.
            attr.set_comm(1);
            attr.set_comm_exec(1);
            attr.set_task(1);
            // Events in the kernel would require privileges.
            attr.set_exclude_kernel(1);
        }
        PerfEvent::Processes => {
            attr.type_ = bindings::PERF_TYPE_SOFTWARE;
            attr.config = bindings::PERF_COUNT_SW_DUMMY.into();
        }
        PerfEvent::Execs => {
            attr.type_ = bindings::PERF_TYPE_SOFTWARE;
            attr.config = bindings::PERF_COUNT_SW_DUMMY.into();
            attr.set_comm(1);
            attr.set_comm_exec(1);
            attr.set_exclude_kernel(1);
        }
        PerfEvent::PageFaults { major } => {
            attr.type_ = bindings::PERF_TYPE_SOFTWARE;
            let [minor_faults, major_faults] =
                [bindings::PERF_COUNT_SW_PAGE_FAULTS_MIN, bindings::PERF_COUNT_SW_PAGE_FAULTS_MAJ];
            attr.config = if major { major_faults } else { minor_faults }.into();
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_ADDR | bindings::PERF_SAMPLE_CPU);
            // The period, which is 1, distinguishes the two kinds of records.
            attr.sample_type |= if major { bindings::PERF_SAMPLE_PERIOD.into() } else { 0 };
            attr.__bindgen_anon_1.sample_period = 1;
        }
        PerfEvent::SwitchIns => {
            attr.type_ = bindings::PERF_TYPE_SOFTWARE;
            attr.config = bindings::PERF_COUNT_SW_DUMMY.into();
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_CPU);
            attr.set_context_switch(1);
            attr.set_exclude_kernel(1);
        }
        PerfEvent::SignalDeliveries(id) => {
            attr.type_ = bindings::PERF_TYPE_TRACEPOINT;
            attr.config = id;
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_CPU | bindings::PERF_SAMPLE_RAW);
            attr.__bindgen_anon_1.sample_period = 1;
        }
        PerfEvent::Tracepoint(id) => {
            attr.type_ = bindings::PERF_TYPE_TRACEPOINT;
            attr.config = id;
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_RAW);
            attr.__bindgen_anon_1.sample_period = 1;
        }
    }
}

/// Opens an event on a processor.
pub(crate) fn open(kind: PerfEvent, scope: Scope, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.sample_type = (bindings::PERF_SAMPLE_TID | bindings::PERF_SAMPLE_TIME).into();
    describe(&mut attr, kind);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.set_exclude_hv(1);
    let pid = match scope {
        Scope::Thread(tid, heirs) => {
            attr.set_inherit(1);
            attr.set_remove_on_exec((heirs == Heirs::UntilExec).into());
            tid as libc::pid_t
        }
        Scope::All => {
            // Records processes that start, end, or change their names.
            attr.set_comm(1);
            attr.set_task(1);
            -1
        }
    };
    let flags = c_ulong::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the attributes are initialised, and live until the call returns; the event touches no
    // memory of this process.
    let mut fd = unsafe { sys::perf_event_open(&mut attr, pid, cpu as c_int, -1, flags) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        let is_forbidden = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        if !is_forbidden || attr.exclude_kernel() != 0 || !matches!(kind, PerfEvent::PageFaults { .. }) {
            return Err(error);
        }
        // Without privileges, only faults of the program's own code are recorded.
        attr.set_exclude_kernel(1);
        // SAFETY: as above.
        fd = unsafe { sys::perf_event_open(&mut attr, pid, cpu as c_int, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the descriptor is new, and belongs to nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The ring of a processor, with its first event. Other events of the same processor write to it,
/// too.
pub(crate) struct Ring {
    base: *mut u8,
    size: usize,
    event: OwnedFd,
}

// SAFETY: the mapping belongs to the value. Memory that the kernel writes is read through atomics,
// or behind the position that the kernel has passed.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `bytes` bytes, a power of two of pages, for an event that has none.
    pub(crate) fn map(event: OwnedFd, bytes: usize) -> Result<Ring, (OwnedFd, io::Error)> {
        let size = rustix::param::page_size() + bytes;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which overlaps nothing.
        match unsafe { mmap(ptr::null_mut(), size, protection, MapFlags::SHARED, event.as_fd(), 0) } {
            Ok(base) => Ok(Ring { base: base.cast(), size, event }),
            Err(error) => Err((event, error.into())),
        }
    }

    /// Makes another event write to this ring.
    pub(crate) fn share(&self, event: &OwnedFd) -> io::Result<()> {
        // SAFETY: both descriptors are open events; the call takes no pointer.
        let result = unsafe { sys::ioctls::SET_OUTPUT(event.as_raw_fd(), self.event.as_raw_fd()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn data(&self) -> usize {
        self.size - rustix::param::page_size()
    }

    fn header(&self) -> *const perf_event_mmap_page {
        self.base.cast_const().cast()
    }

    /// Returns the positions of the kernel's next write and of this process's next read.
    fn positions(&self) -> (&AtomicU64, &AtomicU64) {
        let header = self.header();
        // SAFETY: the first page of the mapping, which lives as long as the value, is the header.
        // Its positions are aligned words that the kernel and this process read and write whole.
        unsafe {
            let position = |word: *const u64| AtomicU64::from_ptr(word.cast_mut());
            (position(&raw const (*header).data_head), position(&raw const (*header).data_tail))
        }
    }

    /// Whether a quarter of the ring is in use.
    pub(crate) fn is_filling(&self) -> bool {
        let (head, tail) = self.positions();
        head.load(Relaxed).wrapping_sub(tail.load(Relaxed)) as usize >= self.data() / 4
    }

    /// Appends the contents of the ring to `bytes`, and empties it. Returns whether, before it was
    /// empty, there was no room for another record of `record` bytes.
    pub(crate) fn read(&mut self, bytes: &mut Vec<u8>, record: usize) -> bool {
        let size = self.data();
        let (head, tail) = self.positions();
        let (end, start) = (head.load(Acquire), tail.load(Relaxed));
        let length = (end.wrapping_sub(start) as usize).min(size);
        let at = start as usize % size;
        let first = length.min(size - at);
        // SAFETY: the data follows the header; the kernel writes nothing between the tail and the
        // head, and both parts lie within the data.
        unsafe {
            let data = self.base.add(self.size - size);
            bytes.extend_from_slice(std::slice::from_raw_parts(data.add(at), first));
            bytes.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
        tail.store(end, Release);
        let written = head.load(Acquire).wrapping_sub(start) as usize;
        size.saturating_sub(written) < 2 * record
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own; no reference into it is left.
        // An error would leave it mapped, which harms nothing.
        let _ = unsafe { munmap(self.base.cast(), self.size) };
    }
}

//! Returns of traced functions: the return address of a call is replaced at its entry, and restored
//! when the function returns to the replacement.
//!
//! The true return address of a stack slot is in a record whose address is computed from the slot's
//! (`records`). So the records of all stacks, of threads, coroutines and signal handlers, need no
//! list. A frame that is left by longjmp or an exception leaves a stale record behind, and the next
//! call at its slot overwrites it. Unwinders find the true address by the same rule, which the
//! unwind table of `calltap_return` has as an expression.
//!
//! The records' addresses are reserved when the first ops with a callback for returns are
//! registered; their pages are used where a stack's frames were.
//!
//! A function with the `traced` attribute has its site in its body, where the slot of its return
//! address is not known. Instead, a value on its frame stores the call's beginning, and the value's
//! drop is a site, too: the return address stays.
//!
//! Uses `unsafe` because return addresses are read and written, and records lie at computed
//! addresses.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::records::{self, SCALE};
use crate::table::{self, Function};
use crate::trampoline::{self, Callee, Cell, Kind, Regs};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io, ptr};

/// The record of an open call.
#[repr(C)]
struct Record {
    /// The true return address.
    to: u64,
    /// The function's cell for returns.
    cell: *const Cell,
    /// Start time, in nanoseconds of `CLOCK_MONOTONIC`.
    start: u64,
    /// Bits of the ops to which the entry was reported.
    mask: u64,
}

const _: () = assert!(size_of::<Record>() as u64 == SCALE * 8);

/// Data that a function with the `traced` attribute keeps on its frame until it ends.
#[doc(hidden)]
#[derive(Debug, Default)]
#[repr(C)]
pub struct Frame {
    start: AtomicU64,
    mask: AtomicU64,
    ip: AtomicU64,
}

impl Frame {
    /// Creates the frame of a call that is not reported to any ops.
    #[inline(always)]
    pub const fn new() -> Frame {
        Frame { start: AtomicU64::new(0), mask: AtomicU64::new(0), ip: AtomicU64::new(0) }
    }
}

/// Number of calls whose returns are not seen, as their stacks have no records.
static UNSEEN: AtomicU64 = AtomicU64::new(0);

/// Returns the number of calls whose returns were requested and not seen: their stacks are not
/// where the kernel puts stacks.
pub fn unseen_returns() -> u64 {
    UNSEEN.load(Relaxed)
}

/// A return of a traced function, as callbacks get it: after its body, before its caller continues.
#[derive(Clone, Copy)]
pub struct Return<'a> {
    regs: &'a Regs,
    ip: u64,
    start: u64,
    end: u64,
}

impl Return<'_> {
    /// Returns the ip that the entry of this call had.
    pub fn ip(&self) -> u64 {
        self.ip
    }

    /// Returns the duration of the call: from the end of its entry's callbacks to here.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end.saturating_sub(self.start))
    }

    /// Returns the start and end of the call, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn interval(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Returns rax, which holds the result if that is an integer or a pointer. `None` in a function
    /// with the [`traced`](crate::traced) attribute.
    pub fn result(&self) -> Option<u64> {
        // SAFETY: the trampoline's frame: rax was saved two words below the slot of the return
        // address.
        (self.regs.kind == Kind::Return as u64).then(|| unsafe { *((self.regs.sp - 16) as *const u64) })
    }

    /// Returns the function that returns; `None` if its module was unloaded.
    pub fn function(&self) -> Option<&'static Function> {
        table::find(self.ip + 5).map(|site| site.function())
    }
}

/// Returns the nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time to a variable; the kernel's vDSO reads it without a system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the kernel's id of this thread.
#[cfg(feature = "tracing")]
pub(crate) fn thread() -> i32 {
    // SAFETY: a system call that changes nothing.
    unsafe { libc::gettid() }
}

fn record(slot: u64) -> *mut Record {
    records::of(slot) as *mut Record
}

/// Reserves the records' addresses.
pub(crate) fn prepare() -> Result<(), Error> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if *done {
        return Ok(());
    }
    // A shadow stack of the processor would fault at a return address that was replaced.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.starts_with("x86_Thread_features:") && line.contains("shstk")) {
        return Err(Error::Returns(io::Error::other("the processor's shadow stack is on")));
    }
    let (start, length) = (records::START as *mut libc::c_void, records::LENGTH as usize);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: new memory, at addresses that were free. Without access first, as a process that
    // locks all of its memory would get all of it at once.
    unsafe {
        let mapped = libc::mmap(start, length, libc::PROT_NONE, flags, -1, 0);
        if mapped != start {
            let error = io::Error::last_os_error();
            if mapped != libc::MAP_FAILED {
                libc::munmap(mapped, length);
            }
            return Err(Error::Returns(error));
        }
        libc::munlock(start, length);
        libc::madvise(start, length, libc::MADV_DONTDUMP);
        libc::madvise(start, length, libc::MADV_NOHUGEPAGE);
        if libc::mprotect(start, length, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            let error = io::Error::last_os_error();
            libc::munmap(start, length);
            return Err(Error::Returns(error));
        }
    }
    *done = true;
    Ok(())
}

/// Returns the last callee of combinations in which returns are requested.
pub(crate) fn watch() -> Callee {
    Callee { run: watch_call, data: ptr::null() }
}

/// Records the beginning of a call, and replaces its return address.
unsafe extern "C" fn watch_call(_: *const (), regs: *const Regs) {
    // SAFETY: on the stack of the trampoline, which calls this.
    let regs = unsafe { &*regs };
    let Some(site) = table::find(regs.ip + 5) else { return };
    if regs.kind == Kind::Body as u64 {
        if site.function().has_frame {
            // SAFETY: such a site passes its frame in rdi (`site!`), and the frame outlives the
            // call.
            let frame = unsafe { &*(regs.arguments[0] as *const Frame) };
            frame.ip.store(regs.ip, Relaxed);
            frame.mask.store(regs.mask, Relaxed);
            frame.start.store(now(), Relaxed);
        }
        return;
    }
    if !records::have(regs.sp) {
        UNSEEN.fetch_add(1, Relaxed);
        return;
    }
    let slot = regs.sp as *mut u64;
    // SAFETY: the slot of the return address, as the site is at the entry, or behind a prologue
    // that has set up the frame pointer; the function has not returned. The records were reserved
    // before this callee was in any combination.
    unsafe {
        // A tail call: the return of the function that jumped here is seen instead.
        if *slot == trampoline::return_address() {
            return;
        }
        record(regs.sp).write(Record { to: *slot, cell: site.returns(), start: now(), mask: regs.mask });
        slot.write(trampoline::return_address());
    }
}

/// A callback for returns, with the data that tell whether a call's entry was reported to its ops.
pub(crate) struct Callback<F> {
    bit: AtomicU64,
    /// Time at which its ops were registered: other ops may have had the bit before.
    since: AtomicU64,
    callback: F,
}

impl<F: Fn(&Return) + Send + Sync + 'static> Callback<F> {
    pub(crate) fn new(callback: F) -> Callback<F> {
        Callback { bit: AtomicU64::new(0), since: AtomicU64::new(u64::MAX), callback }
    }
}

/// A callback for returns of any type.
pub(crate) trait Returned: Send + Sync {
    /// Returns the callee for the trampoline.
    fn callee(&self) -> Callee;
    /// Notes that its ops have this bit from now on.
    fn registered(&self, bit: u32);
}

impl<F: Fn(&Return) + Send + Sync + 'static> Returned for Callback<F> {
    fn callee(&self) -> Callee {
        Callee { run: run::<F>, data: ptr::from_ref(self).cast() }
    }

    fn registered(&self, bit: u32) {
        self.bit.store(u64::from(bit), SeqCst);
        self.since.store(now(), SeqCst);
    }
}

/// Runs the callback if the call's entry was reported to its ops.
unsafe extern "C" fn run<F: Fn(&Return)>(data: *const (), regs: *const Regs) {
    // SAFETY: `callee` paired this function with a callback of this type, which lives until a grace
    // period after it was unregistered; the registers are on the stack of the trampoline that calls
    // this.
    let (own, regs) = unsafe { (&*data.cast::<Callback<F>>(), &*regs) };
    let end = now();
    let (ip, start, mask) = if regs.kind == Kind::Return as u64 {
        // SAFETY: the record of the call that returns.
        let record = unsafe { &*record(regs.sp) };
        // SAFETY: cells are never freed.
        (unsafe { (*record.cell).after } - 5, record.start, record.mask)
    } else {
        // SAFETY: the site in the drop of a frame passes it in rdi.
        let frame = unsafe { &*(regs.arguments[0] as *const Frame) };
        (frame.ip.load(Relaxed), frame.start.load(Relaxed), frame.mask.load(Relaxed))
    };
    if mask & own.bit.load(Relaxed) != 0 && start >= own.since.load(Relaxed) {
        (own.callback)(&Return { regs, ip, start, end });
    }
}

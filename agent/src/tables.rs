//! The tables by which hooks find a thread's chunks of profile records ([`calltap_abi::profile`]).
//!
//! They lie in private memory of the process, so that no address is taken from memory that other
//! processes can write to.
//!
//! Uses `unsafe` because it maps that memory, and because a table's address becomes a reference.

use crate::state::Thread;
use crate::sys;
use calltap_abi::THREAD_MAX;
use calltap_abi::profile::CHUNKS;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Addresses of a thread's chunks; 0 where there is none.
type Table = [AtomicU64; CHUNKS];

/// Address of the tables of all threads, mapped when the first is needed. They are wiped in a
/// forked child, like the threads' states.
static TABLES: AtomicUsize = AtomicUsize::new(0);
const SIZE: usize = THREAD_MAX * size_of::<Table>();

/// Returns the address of all tables, mapping them if necessary.
pub fn tables() -> Option<usize> {
    let known = TABLES.load(Acquire);
    if known != 0 {
        return Some(known);
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let new = unsafe { sys::map(0, SIZE, sys::PROT_READ | sys::PROT_WRITE, flags, None) }.ok()?;
    // SAFETY: the mapping just made.
    let wiped = unsafe { sys::advise(new, SIZE, sys::MADV_WIPEONFORK) };
    if wiped.is_ok() && TABLES.compare_exchange(0, new, AcqRel, Acquire).is_ok() {
        return Some(new);
    }
    // SAFETY: no other thread has seen it.
    unsafe { sys::unmap(new, SIZE) };
    Some(TABLES.load(Acquire)).filter(|known| *known != 0)
}

/// Returns the table of the thread with an index.
pub fn table(tables: usize, index: u32) -> Option<&'static Table> {
    // SAFETY: `tables` is a mapping of THREAD_MAX tables that lasts as long as the session; any
    // bytes are a valid table.
    ((index as usize) < THREAD_MAX).then(|| unsafe { &*(tables as *const Table).add(index as usize) })
}

/// Clears the table of a new thread, whose index another thread had before.
pub fn forget(thread: &Thread, index: u32) {
    if thread.profiles.swap(0, Relaxed) != 0
        && let Some(table) = table(TABLES.load(Acquire), index)
    {
        table.iter().for_each(|place| place.store(0, Relaxed));
    }
}

/// Unmaps the tables, as no hook runs any more.
pub fn give_back() {
    let tables = TABLES.swap(0, AcqRel);
    if tables != 0 {
        // SAFETY: mapped above; no hook runs, so nothing refers to it.
        unsafe { sys::unmap(tables, SIZE) };
    }
}

//! Memory for the profile tracer: a thread's chunks of records ([`calltap_abi::profile`]), and the table by which a hook finds them.
//!
//! The tables lie in private memory of the process, so that no address is ever taken from what others can write to.
//!
//! Unsafe because it maps that memory, and because a table's address becomes a reference.

use crate::ring;
use crate::state::{self, Session, Thread};
use crate::{record, sys, word};
use calltap_abi::THREAD_MAX;
use calltap_abi::profile::CHUNKS;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Addresses of a thread's chunks; 0 where there is none.
type Table = [AtomicU64; CHUNKS];

/// A table for every thread that there can be, mapped when the first is needed. Wiped in a forked child, as the threads' states are: there it begins anew.
static TABLES: AtomicUsize = AtomicUsize::new(0);
const SIZE: usize = THREAD_MAX * size_of::<Table>();

/// Address of all tables, which are mapped if they are not yet.
fn tables() -> Option<usize> {
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

fn table(tables: usize, index: u32) -> Option<&'static Table> {
    // SAFETY: `tables` is a mapping of THREAD_MAX tables that lasts as long as the session; any bytes are a valid table.
    ((index as usize) < THREAD_MAX).then(|| unsafe { &*(tables as *const Table).add(index as usize) })
}

/// Has a thread that begins, of this index, know nothing of the one that had it before.
pub fn forget(thread: &Thread, index: u32) {
    if thread.profiles.swap(0, Relaxed) != 0
        && let Some(table) = table(TABLES.load(Acquire), index)
    {
        table.iter().for_each(|place| place.store(0, Relaxed));
    }
}

/// Unmaps the tables: no hook runs any more.
pub fn give_back() {
    let tables = TABLES.swap(0, AcqRel);
    if tables != 0 {
        // SAFETY: mapped above; no hook runs, so nothing refers to it.
        unsafe { sys::unmap(tables, SIZE) };
    }
}

/// Called by a hook that found no record for a site of the calling thread. 1: there is one now; 0: there cannot be one. `returns`: it is the return that
/// is not noted, by a thread that has not seen the entry (a coroutine); such a call is counted, and not timed.
pub extern "C" fn profile_slow(site: u32, returns: u64, _: u64) -> u8 {
    let Some(session) = Session::get() else { return 0 };
    // A hook that would not find it would ask for it for ever.
    let provided = word::is_found().then(|| provide(session, site)).flatten();
    if provided.is_none() && returns == 0 {
        session.control().lost_profile.fetch_add(1, Relaxed);
    }
    u8::from(provided.is_some())
}

fn provide(session: Session, site: u32) -> Option<()> {
    // A forked child finds its parent's word, and zeros behind it.
    let known = state::thread(session).filter(|thread| thread.entry.load(Relaxed) != 0);
    let thread = known.or_else(|| record::register_thread(session))?;
    let index = thread.entry.load(Relaxed).checked_sub(1)?;
    let entry = session.thread_entry(index)?;
    let tables = tables()?;
    let table = table(tables, index)?;
    thread.profiles.store(table.as_ptr() as u64, Relaxed);
    let part = site as usize / calltap_abi::profile::SITES;
    let place = table.get(part)?;
    if place.load(Relaxed) != 0 {
        return Some(());
    }
    let index = ring::await_free(session, thread, entry).ok()?;
    let (Some(header), Some(address)) = (session.chunk_header(index), session.chunk(index)) else {
        return None;
    };
    header.part.store(part as u32, Relaxed);
    // Listed before it is used, so that every count is read. A signal handler in between provides another for the same sites: their sum counts.
    let mut first = entry.first_profile.load(Relaxed);
    loop {
        header.next.store(first, Relaxed);
        match entry.first_profile.compare_exchange(first, index + 1, AcqRel, Relaxed) {
            Ok(_) => break,
            Err(found) => first = found,
        }
    }
    let _ = place.compare_exchange(0, address as u64, Relaxed, Relaxed);
    Some(())
}

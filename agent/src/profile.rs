//! Provides chunks for the profile tracer: a thread gets one for each part of the sites that it
//! calls.

use crate::register::{register_thread, registered};
use crate::state::Session;
use crate::tables::{table, tables};
use crate::{ring, word};
use calltap_abi::{CHUNK_DATA, profile};
use core::sync::atomic::Ordering::*;

/// Called by a hook that found no record for a site of the calling thread. Returns 1 if there is a
/// record now, 0 if there cannot be one. `returns`: the record is missing at a return, as the
/// thread has not run the entry (a coroutine); such a call is counted, and not timed.
pub extern "C" fn profile_slow(site: u32, returns: u64, _: u64) -> u8 {
    let Some(session) = Session::get() else { return 0 };
    // A hook that does not find the thread's state would ask again and again.
    let is_found = word::is_found();
    let provided = (is_found || !word::may_read_counter()).then(|| provide(session, site)).flatten();
    match provided {
        Some(chunk) if !is_found && returns == 0 => count(chunk, site),
        None if returns == 0 => {
            session.control().lost_profile.fetch_add(1, Relaxed);
        }
        _ => {}
    }
    u8::from(is_found && provided.is_some())
}

/// Counts a call, without its time, in a record of the chunk at this address.
fn count(chunk: u64, site: u32) {
    let n = site as usize % profile::SITES;
    let record = chunk as usize + CHUNK_DATA + n * size_of::<profile::Record>();
    // SAFETY: `provide` has returned the address of a chunk of records, which stays mapped, and `n`
    // is one of them; all fields are atomic.
    unsafe { &*(record as *const profile::Record) }.hits.fetch_add(1, Relaxed);
}

/// Provides the record of a site to the calling thread. Returns the address of its chunk.
fn provide(session: Session, site: u32) -> Option<u64> {
    let thread = registered(session).or_else(|| register_thread(session))?;
    let index = thread.entry.load(Relaxed).checked_sub(1)?;
    let entry = session.thread_entry(index)?;
    let tables = tables()?;
    let table = table(tables, index)?;
    thread.profiles.store(table.as_ptr() as u64, Relaxed);
    let part = site as usize / profile::SITES;
    let place = table.get(part)?;
    let known = place.load(Relaxed);
    if known != 0 {
        return Some(known);
    }
    let index = ring::await_free(session, thread, entry).ok()?;
    let (Some(header), Some(address)) = (session.chunk_header(index), session.chunk(index)) else {
        return None;
    };
    header.part.store(part as u32, Relaxed);
    // The chunk is listed before it is used, so that every count is read. A signal handler in
    // between may provide another chunk for the same sites: the recorder adds both.
    let mut first = entry.first_profile.load(Relaxed);
    loop {
        header.next.store(first, Relaxed);
        match entry.first_profile.compare_exchange(first, index + 1, AcqRel, Relaxed) {
            Ok(_) => break,
            Err(found) => first = found,
        }
    }
    let _ = place.compare_exchange(0, address as u64, Relaxed, Relaxed);
    Some(place.load(Relaxed))
}

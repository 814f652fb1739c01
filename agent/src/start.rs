//! Joins and leaves a session, and performs operations that the recorder requests in a stopped
//! thread.
//!
//! Uses `unsafe` because it maps and unmaps the session's files.

use crate::files::{MAPPINGS, RESERVED, VENEERS, open_beside, remember};
use crate::plan::{give_back_planned, handle_planned_traps, map_planned, reserve_planned, unmap_planned};
use crate::register::{self, IMAGE};
use crate::state::{self, Private, Session};
use crate::{hooks, loader, shadow, sys, tables, traps, word};
use calltap_abi::remote::{GIVE_BACK, JOIN, LEAVE, MAP, REGISTER, REGISTER_ALONE, RESERVE, TRAPS, UNMAP};
use calltap_abi::{CHUNK_SIZE, CHUNKS_AT, Control, MAGIC, VERSION, stub};
use core::sync::atomic::Ordering::*;

const PAGE: usize = calltap_abi::PAGE as usize;

/// Performs an operation in a stopped thread, which `Hijacked::remote` of `crates/process` makes
/// call this function. Returns 0, or 1 on failure.
///
/// It runs at any point of any thread, so it uses nothing of the C library; for `LEAVE`, no thread
/// may be inside a hook.
#[unsafe(no_mangle)]
extern "C" fn calltap_remote(operation: u32, path: *const u8) -> u64 {
    let done = match operation {
        MAP => Session::get().map(map_planned),
        UNMAP => Session::get().map(unmap_planned),
        RESERVE => Session::get().map(reserve_planned),
        GIVE_BACK => Session::get().map(give_back_planned),
        REGISTER => Session::get()
            .and_then(register::process)
            .map(|process| sys::register_in_background(&process.sync)),
        REGISTER_ALONE => Session::get()
            .and_then(register::process)
            .map(|process| process.sync.store(sys::register_for_sync() as u32, Release)),
        TRAPS => Session::get().map(handle_planned_traps),
        LEAVE => leave(),
        // SAFETY: the recorder passes the address of a terminated string.
        JOIN => join(unsafe { core::slice::from_raw_parts(path, crate::mem::strlen(path)) }),
        _ => None,
    };
    u64::from(done.is_none())
}

/// Divisor of the number of chunks to try when the address space is too small.
const FEWER: u32 = 4;

/// Joins the session whose files lie beside the agent. On failure nothing of it stays mapped.
pub fn join(own: &[u8]) -> Option<()> {
    if Session::get().is_some() {
        return None;
    }
    let joined = map_session(own);
    if joined.is_none() {
        leave();
        tell_unmapped(own);
    }
    joined
}

/// Tells the recorder that this process has no room for the agent's mappings. They are unmapped
/// again, so there is room for a page.
fn tell_unmapped(own: &[u8]) -> Option<()> {
    let control = open_beside(own, b"control\0", sys::O_RDWR)?;
    let rw = sys::PROT_READ | sys::PROT_WRITE;
    // SAFETY: a new mapping of the first page, at an address of the kernel's choice.
    let first = unsafe { sys::map(0, PAGE, rw, sys::MAP_SHARED, Some((&control, 0))) }.ok()?;
    // SAFETY: just mapped; any bytes are a valid Control.
    let header = unsafe { &*(first as *const Control) };
    if header.magic.load(Acquire) == MAGIC && header.version.load(Relaxed) == VERSION {
        header.unmapped.fetch_add(1, Relaxed);
    }
    // SAFETY: the mapping just made; `header` is not used again.
    unsafe { sys::unmap(first, PAGE) };
    Some(())
}

/// Reserves address space for the control file, as far as the program can spare it. Returns address
/// and length.
///
/// Under a limit of address space (RLIMIT_AS) fewer chunks fit; as much space again is left to the
/// program.
fn reserve(control: &Control) -> Option<(usize, usize)> {
    let mut chunks = control.chunk_max.load(Relaxed);
    loop {
        let length = CHUNKS_AT + chunks as usize * CHUNK_SIZE;
        // Chunks are aligned to their size, so that a cursor's address gives its place in its
        // chunk; the control file is mapped to an aligned part.
        let reserved = length + CHUNK_SIZE;
        // SAFETY: a new reservation without access.
        if let Ok(reservation) = unsafe { sys::map(0, 2 * reserved, 0, RESERVED, None) } {
            // SAFETY: the second half of the reservation just made.
            unsafe { sys::unmap(reservation + reserved, reserved) };
            remember(0, reservation, reserved);
            state::CHUNKS.store(chunks, Relaxed);
            control.chunk_max.fetch_min(chunks, Relaxed);
            return Some((reservation, length));
        }
        // The reduced range must include chunks that may be in use already.
        let fewer = (chunks / FEWER).max(control.chunk_count.load(Relaxed));
        if fewer >= chunks {
            return None;
        }
        chunks = fewer;
    }
}

/// Maps the session's files and registers the process.
fn map_session(own: &[u8]) -> Option<()> {
    let control = open_beside(own, b"control\0", sys::O_RDWR)?;
    let code = open_beside(own, b"code\0", sys::O_RDONLY)?;
    let rw = sys::PROT_READ | sys::PROT_WRITE;

    // SAFETY: a new mapping of the first page, at an address of the kernel's choice.
    let first = unsafe { sys::map(0, PAGE, rw, sys::MAP_SHARED, Some((&control, 0))) }.ok()?;
    // SAFETY: just mapped; any bytes are a valid Control.
    let header = unsafe { &*(first as *const Control) };
    let known = header.magic.load(Acquire) == MAGIC && header.version.load(Relaxed) == VERSION;
    sys::LOCKS_MEMORY.store(header.locked.load(Relaxed) != 0, Relaxed);
    let room = if known { reserve(header) } else { None };
    // SAFETY: the mapping just made; `header` is not used again.
    unsafe { sys::unmap(first, PAGE) };
    let (reservation, length) = room?;
    let base = reservation.next_multiple_of(CHUNK_SIZE);
    // SAFETY: inside the reservation just made.
    unsafe { sys::map(base, length, rw, sys::MAP_SHARED | sys::MAP_FIXED, Some((&control, 0))) }.ok()?;

    let (reserved, whole) = hooks::reserved_region();
    sys::unlock(reserved, whole);
    let stubs = hooks::stub_region();
    let fixed = sys::MAP_SHARED | sys::MAP_FIXED;
    // SAFETY: the range is the agent's own, reserved by link.ld for the stubs and used for nothing
    // else.
    unsafe { sys::map(stubs, stub::REGION, sys::PROT_READ | sys::PROT_EXEC, fixed, Some((&code, 0))) }
        .ok()?;
    let executable = sys::PROT_READ | sys::PROT_EXEC;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let veneers = unsafe {
        sys::map(0, stub::VENEERS, executable, sys::MAP_SHARED, Some((&code, stub::REGION as u64)))
    };
    remember(VENEERS, veneers.ok()?, stub::VENEERS);
    shadow::prepare().ok()?;

    let size = size_of::<Private>();
    // SAFETY: a new mapping.
    let private = unsafe { sys::map(0, size, rw, RESERVED, None) }.ok()?;
    remember(1, private, size);
    // SAFETY: the mapping just made.
    unsafe { sys::advise(private, core::mem::offset_of!(Private, kept), sys::MADV_WIPEONFORK) }.ok()?;

    #[cfg(feature = "attached")]
    {
        // SAFETY: just mapped, for as long as the session lasts; any bytes are a valid Control.
        let header = unsafe { &*(base as *const Control) };
        word::prepare(private + core::mem::offset_of!(Private, threads), header.owner_word.load(Relaxed));
    }
    state::STUBS.store(stubs, Relaxed);
    state::join(base, private);
    let session = Session::get()?;
    tell(session.control().clock.load(Relaxed) as usize);
    register::register_process(session)?;
    register::ask_for_counter(session);
    Some(())
}

/// Publishes the addresses of stubs and hooks.
fn tell(clock: usize) {
    let image = &IMAGE;
    image.stubs.store(hooks::stub_region() as u64, Relaxed);
    for (index, place) in image.hooks.iter().enumerate() {
        place.store(hooks::hook(clock, index), Relaxed);
    }
    let (brk, hook) = loader::watch();
    image.first_hook.store(hooks::first(), Relaxed);
    image.loader_brk.store(brk, Relaxed);
    image.loader_hook.store(hook, Relaxed);
    image.thread_word.store(word::offset(), Relaxed);
}

/// Unmaps all memory of a session, as far as it was joined. The recorder has ensured that none of
/// it is in use.
fn leave() -> Option<()> {
    traps::leave();
    state::leave();
    let stubs = hooks::stub_region();
    // SAFETY: the agent's own ranges get back the reservation they had before `join`; no thread is
    // in a stub or will enter one.
    unsafe { sys::map(stubs, stub::REGION, sys::PROT_READ, RESERVED | sys::MAP_FIXED, None) }.ok()?;
    shadow::give_back();
    tables::give_back();
    for [at, bytes] in &MAPPINGS {
        let (at, bytes) = (at.swap(0, Relaxed), bytes.swap(0, Relaxed));
        if bytes != 0 {
            // SAFETY: mapped by `join`; no hook runs, so nothing refers to it.
            unsafe { sys::unmap(at, bytes) };
        }
    }
    Some(())
}

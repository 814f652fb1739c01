//! The shadow stack: it holds the true return addresses of traced calls while they run.
//!
//! The return address of stack slot S is at S with one address bit flipped. Its state thus belongs
//! to the frame, not to a per-thread stack top: longjmp and unwinding need no clean-up, coroutines
//! may resume on any thread, depth has no limit. Its memory is mapped in large pieces at the first
//! use of a stack, and unmapped with the session.
//!
//! Uses `unsafe` because it maps memory at chosen addresses; existing mappings are never replaced.

use crate::state::Session;
use crate::{register, sys};
use calltap_abi::{SHADOWS, plan::Trouble, profile, stub};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Number of pieces in the address space of user programs. The hooks do not check that a stack is
/// below its end: calltap does not attach to a process with memory above.
pub const GRANULES: usize = (calltap_abi::USER_END >> stub::SHADOW_GRANULE) as usize;
const GRANULE: usize = 1 << stub::SHADOW_GRANULE;

const UNMAPPED: u8 = 0;
const MAPPED: u8 = 1; // the hooks compare with this value
const MAPPING: u8 = 2;
const FAILED: u8 = 3;

/// Number and length of the naps of a thread that needs a piece which another thread maps, in
/// nanoseconds.
const MAPPING_NAPS: (u32, u64) = (1000, 100_000);
/// Number and length of further naps where that thread has mapped the piece and has not run since.
/// Thousands of threads may wait.
const TURN_NAPS: (u32, u64) = (1000, 5_000_000);

static TABLE: AtomicUsize = AtomicUsize::new(0);

/// The pieces that are mapped, for the calltap that ends the session: their number, then the
/// pieces.
#[unsafe(no_mangle)]
static calltap_shadows: [AtomicU32; 1 + SHADOWS] = [const { AtomicU32::new(0) }; 1 + SHADOWS];

unsafe extern "C" {
    static calltap_shadow: u8;
}

/// Maps the table over the address range that the linker reserved for it.
pub fn prepare() -> Result<(), sys::Errno> {
    let at = &raw const calltap_shadow as usize;
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    // SAFETY: the range is the agent's own, reserved by link.ld for this and used for nothing else.
    unsafe { sys::map(at, GRANULES, sys::PROT_READ | sys::PROT_WRITE, flags, None) }?;
    TABLE.store(at, Release);
    Ok(())
}

/// Returns the table's entry for a stack slot.
fn entry(slot: u64) -> Option<&'static AtomicU8> {
    let index = usize::try_from(slot >> stub::SHADOW_GRANULE).ok()?;
    let table = TABLE.load(Acquire);
    // SAFETY: the table has GRANULES bytes, mapped until no hook runs any more, and any byte is
    // valid.
    (table != 0 && index < GRANULES).then(|| unsafe { &*((table + index) as *const AtomicU8) })
}

/// Called by a hook whose stack slot has no shadow stack yet. Returns 1 if it has one now; 0 if it
/// cannot have one, and the call was counted as lost.
pub extern "C" fn shadow_slow(low: u32, slot: u64, _: u64) -> u8 {
    if is_there(slot) {
        return 1;
    }
    register::lose(low);
    0
}

/// Maps the piece for a stack slot, if necessary. Returns whether it is mapped.
fn is_there(slot: u64) -> bool {
    let Some(entry) = entry(slot) else { return false };
    match entry.load(Acquire) {
        UNMAPPED => map_first(entry, slot),
        // Another thread maps the piece, which takes the time of one mmap.
        MAPPING => wait(entry, slot),
        _ => {}
    }
    entry.load(Acquire) == MAPPED
}

/// Maps a piece unless another thread begins to.
fn map_first(entry: &AtomicU8, slot: u64) {
    let (mapper, own) = (mapper(slot), sys::tid());
    let forget = || {
        let _ = mapper.map(|mapper| mapper.compare_exchange(own, 0, Relaxed, Relaxed));
    };
    // The id is there before the piece counts as being mapped: a signal handler that interrupts
    // this thread must not wait for it. Handlers that wait nest until the stack is full.
    let _ = mapper.map(|mapper| mapper.compare_exchange(0, own, Relaxed, Relaxed));
    match entry.compare_exchange(UNMAPPED, MAPPING, AcqRel, Acquire) {
        Ok(_) => {
            // The id of another piece's mapper may have been in its place.
            mapper.inspect(|mapper| mapper.store(own, Relaxed));
            if map_piece(entry, slot).is_err() {
                fail(entry);
            }
            // Another piece's mapper may have overwritten the id.
            forget();
        }
        Err(MAPPING) => {
            forget();
            wait(entry, slot);
        }
        Err(_) => forget(),
    }
}

/// Returns the shadow-stack slot of a stack slot.
fn word(slot: u64) -> Option<&'static AtomicU64> {
    let is_whole = slot.is_multiple_of(size_of::<AtomicU64>() as u64);
    let at = slot as usize ^ (1 << stub::SHADOW_BIT);
    // SAFETY: its piece is mapped, until no hook runs any more, and any bytes are a valid word.
    (is_whole && is_there(slot)).then(|| unsafe { &*(at as *const AtomicU64) })
}

/// Bit of values other than return addresses. No address has it, so such a value never counts as
/// one.
const OTHER: u64 = 1 << profile::TIMED;

/// Keeps a value in the shadow-stack slot of a stack slot. Returns false if it has none.
pub fn keep(slot: u64, kept: u64) -> bool {
    let word = word(slot);
    word.inspect(|word| word.store(kept | OTHER, Relaxed)).is_some()
}

/// Marks the call in a stack slot whose return address stays. Returns false if the slot has no
/// shadow stack.
pub fn mark(slot: u64, mark: u64) -> bool {
    let word = word(slot);
    word.inspect(|word| word.store(mark, Relaxed)).is_some()
}

/// Removes this mark. Returns false if the slot has another, or none.
pub fn unmark(slot: u64, mark: u64) -> bool {
    let word = word(slot).filter(|word| word.load(Relaxed) == mark);
    word.inspect(|word| word.store(0, Relaxed)).is_some()
}

/// Returns the value kept for a stack slot.
pub fn kept(slot: u64) -> Option<u64> {
    word(slot).map(|word| word.load(Relaxed) & !OTHER)
}

/// Returns the place for the id of the thread that maps the piece of a slot. A forked child, which
/// has no such thread, finds 0 there.
fn mapper(slot: u64) -> Option<&'static AtomicU32> {
    let mappers = &Session::get()?.private().mappers;
    mappers.get((slot >> stub::SHADOW_GRANULE) as usize % mappers.len())
}

/// Maps the piece for a stack slot, and publishes it. A piece that the list has no room for is not
/// mapped: calls there could not be closed when calltap detaches.
fn map_piece(entry: &AtomicU8, slot: u64) -> Result<(), sys::Errno> {
    let [count, places @ ..] = &calltap_shadows;
    if count.load(Relaxed) as usize >= places.len() {
        return Err(sys::ENOMEM);
    }
    let at = (slot as usize & !(GRANULE - 1)) ^ (1 << stub::SHADOW_BIT);
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | sys::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched. Kernels before 4.17 take the address as a
    // hint only: compared below.
    let mapped = unsafe { sys::map(at, GRANULE, sys::PROT_READ | sys::PROT_WRITE, flags, None) };
    if mapped? != at {
        return Err(sys::EEXIST);
    }
    if !list(slot) {
        // SAFETY: just mapped; no hook uses it, as its entry is not `MAPPED`.
        unsafe { sys::unmap(at, GRANULE) };
        return Err(sys::ENOMEM);
    }
    entry.store(MAPPED, Release);
    Ok(())
}

/// Notes that a piece cannot be mapped.
fn fail(entry: &AtomicU8) {
    // A thread that was waited for in vain may have mapped it after all.
    if entry.compare_exchange(MAPPING, FAILED, AcqRel, Relaxed) == Err(MAPPED) {
        return;
    }
    if let Some(process) = Session::get().and_then(register::process) {
        process.trouble.fetch_or(Trouble::NoShadowStack as u32, Relaxed);
    }
}

/// Adds a piece to the list of mapped pieces. Returns false if the list is full.
fn list(slot: u64) -> bool {
    let [count, places @ ..] = &calltap_shadows;
    let next = |count: u32| (count as usize) < places.len();
    let added = count.fetch_update(Relaxed, Relaxed, |count| next(count).then_some(count + 1));
    let place = added.ok().and_then(|index| places.get(index as usize));
    place.inspect(|place| place.store((slot >> stub::SHADOW_GRANULE) as u32, Release)).is_some()
}

/// Unmaps all pieces and the table, as no traced call runs any more.
pub fn give_back() {
    let [count, places @ ..] = &calltap_shadows;
    for place in places.iter().take(count.swap(0, Relaxed) as usize) {
        let at = ((place.swap(0, Relaxed) as usize) << stub::SHADOW_GRANULE) ^ (1 << stub::SHADOW_BIT);
        // SAFETY: mapped by `map_piece`; no frame keeps its return address there.
        unsafe { sys::unmap(at, GRANULE) };
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    // SAFETY: the agent's own range gets back the reservation it had before `prepare`.
    let _ = unsafe { sys::map(&raw const calltap_shadow as usize, GRANULES, sys::PROT_READ, flags, None) };
    TABLE.store(0, Release);
}

/// Waits for the thread that maps the piece, with a bound: that thread may be this one,
/// interrupted, or one of the parent that a fork has not copied.
fn wait(entry: &AtomicU8, slot: u64) {
    let id = || mapper(slot).map_or(0, |mapper| mapper.load(Relaxed));
    let is_own = id() == sys::tid();
    if !is_own && is_mapped_after(entry, MAPPING_NAPS) {
        return;
    }
    // A process that was attached to waits no longer than this.
    let may_wait = || Session::get().is_some_and(|session| session.control().wait_us.load(Relaxed) > 0);
    match map_piece(entry, slot) {
        Ok(()) => {}
        // Either the other thread has mapped it and is about to publish it, or another mapping is
        // in the way and it has failed.
        Err(sys::EEXIST) if !is_own && id() != 0 && may_wait() && is_mapped_after(entry, TURN_NAPS) => {}
        Err(_) => fail(entry),
    }
}

/// Whether the mapping thread finishes within this number of naps of this length.
fn is_mapped_after(entry: &AtomicU8, (naps, ns): (u32, u64)) -> bool {
    (0..naps).any(|_| {
        let is_over = entry.load(Acquire) != MAPPING;
        if !is_over {
            sys::nap(ns);
        }
        is_over
    })
}

//! Recording when the fast path could not: a thread's first event, a forked child's first event, a full chunk, a clock whose
//! high half changed.
//!
//! Called through a shim, from any point of any thread, signal handlers included. Unsafe because events are stored at addresses computed from
//! the cursor.

use crate::ring::{self, Full};
use crate::state::{
    self, NOWHERE, PARKED, PROCESS_BEFORE_FORK, Session, Thread, exchange, exchange_cursor, reserve,
};
use crate::{hooks, loader, profile, sys, word};
use calltap_abi::event::{
    CLOCK_BITS, SPARSE_BLOCK, SPARSE_HIGH, WINDOW, code, epoch_word, event_word, has_parent, parent_halves,
    parent_word, stack_word,
};
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE, Clock, Control};
use calltap_abi::{Image, PROCESS_MAX, ProcessEntry, THREAD_MAX, ThreadState};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Is an event at this address inside a chunk's data?
pub fn in_data(address: u64) -> bool {
    (CHUNK_DATA as u64..CHUNK_LIMIT as u64).contains(&(address % CHUNK_SIZE as u64))
}

/// Counts an event that is not recorded; `low` is its low half.
pub fn lose(low: u32) {
    let Some(session) = Session::get() else { return };
    let exit = low & code::MASK == code::EXIT;
    let entry = registered(session)
        .or_else(|| register_thread(session))
        .and_then(|thread| session.thread_entry(thread.entry.load(Relaxed).wrapping_sub(1)));
    let counter = match entry {
        Some(entry) if exit => &entry.lost_exits,
        Some(entry) => &entry.lost_entries,
        None => &session.control().lost_unregistered,
    };
    counter.fetch_add(1, Relaxed);
}

/// The process entry of the calling process, if it has one.
pub fn process(session: Session) -> Option<&'static ProcessEntry> {
    session.process(session.private().process.load(Relaxed).checked_sub(1)?)
}

/// Registers the calling process, also after fork. Its index.
pub fn register_process(session: Session) -> Option<u32> {
    let private = session.private();
    if let Some(index) = private.process.load(Relaxed).checked_sub(1) {
        return Some(index);
    }
    let control = session.control();
    let index = control.process_bump.fetch_add(1, Relaxed);
    if index as usize >= PROCESS_MAX {
        control.process_bump.store(PROCESS_MAX as u32, Relaxed);
        return None;
    }
    let process = session.process(index)?;
    let parent = PROCESS_BEFORE_FORK.swap(index + 1, Relaxed);
    process.parent.store(parent, Relaxed);
    let known = match parent.checked_sub(1).and_then(|parent| session.process(parent)) {
        Some(parent) => {
            inherit(&process.image, &parent.image);
            &parent.pid_namespace
        }
        None => {
            tell(&process.image, control.clock.load(Relaxed) as usize);
            &control.pid_namespace
        }
    };
    let own = sys::open(b"/proc/thread-self/ns/pid\0", sys::O_RDONLY).and_then(|file| file.inode());
    process.pid_namespace.store(own.unwrap_or_else(|_| known.load(Relaxed)), Relaxed);
    process.pid.store(sys::pid(), Release);
    private.process.store(index + 1, Relaxed);
    Some(index)
}

/// A forked child has everything where its parent has it.
fn inherit(own: &Image, parent: &Image) {
    for (own, parent) in own.words().zip(parent.words()) {
        own.store(parent.load(Relaxed), Relaxed);
    }
}

/// Writes down where everything is.
fn tell(image: &Image, clock: usize) {
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

/// A call of the profiling function that is not recorded yet, at `ip`: it is, unless there is no room. What this calls is no program's, and waits for no thread.
pub extern "C" fn first_slow(_: u32, ip: u64, _: u64) -> u8 {
    let Some(session) = Session::get() else { return 0 };
    let Some(process) = register_process(session) else { return 0 };
    session.first().record(ip, process + 1);
    0
}

/// An entry that was never used. Not fetch_add: the counter must not run away while the table is full.
fn fresh_thread(control: &Control) -> Option<u32> {
    let bump = &control.thread_bump;
    bump.fetch_update(Relaxed, Relaxed, |index| ((index as usize) < THREAD_MAX).then_some(index + 1)).ok()
}

pub fn register_thread(session: Session) -> Option<&'static Thread> {
    // Read once: from here on a signal handler may register this thread, and what it made must not be touched.
    let seen = word::get();
    if let Some(thread) = word::state(session, seen) {
        if thread.entry.load(Relaxed) != 0 {
            return Some(thread);
        }
        // A forked child finds its parent's word, and zeros behind it. Should it find no entry, no event must find room there.
        thread.cursor.store(PARKED, Relaxed);
    }
    let process = register_process(session)?;
    let control = session.control();
    let index = ring::pop_thread(session).or_else(|| fresh_thread(control))?;
    let entry = session.thread_entry(index)?;
    let thread = session.private().threads.get(index as usize)?;
    entry.process.store(process, Relaxed);
    entry.tid.store(sys::tid(), Relaxed);
    for (place, word) in entry.name.iter().zip(sys::thread_name()) {
        place.store(word, Relaxed);
    }
    entry.first_chunk.store(0, Relaxed);
    entry.first_profile.store(0, Relaxed);
    profile::forget(thread, index);
    entry.chunks.store(0, Relaxed);
    entry.lost_entries.store(0, Relaxed);
    entry.lost_exits.store(0, Relaxed);
    thread.cursor.store(PARKED, Relaxed);
    forget_context(thread);
    thread.busy.store(0, Relaxed);
    thread.waiting.store(0, Relaxed);
    thread.blocked.store(sys::blocked_signals(), Relaxed);
    thread.entry.store(index + 1, Relaxed);
    word::sign(thread);
    if !word::set(seen, thread, index) {
        // A signal handler has registered this thread meanwhile.
        thread.entry.store(0, Relaxed);
        ring::push_thread(session, index);
        return state::thread(session);
    }
    entry.state.store(ThreadState::Live as u32, Release);
    Some(thread)
}

fn stamp(control: &Control) -> u64 {
    match control.clock.load(Relaxed) {
        c if c == Clock::Coarse as u32 => control.tick.load(Relaxed),
        c if c == Clock::Counter as u32 => control.counter.fetch_add(1, Relaxed),
        // SAFETY: rdtsc reads a counter; calltap refuses processors and systems where it may not be used.
        _ => unsafe { core::arch::x86_64::_rdtsc() },
    }
}

pub fn store(address: u64, word: u64) {
    // SAFETY: the address was reserved by this thread (an `xadd` on its cursor) inside a chunk it holds: `in_data` was checked, and
    // CHUNK_LIMIT leaves room behind the last address for the words of one event. 8-byte aligned since all reservations are.
    unsafe { &*(address as *const AtomicU64) }.store(word, Relaxed);
}

fn store_half(address: u64, word: u32) {
    // SAFETY: as `store`, in units of 4 bytes.
    unsafe { &*(address as *const AtomicU32) }.store(word, Relaxed);
}

/// The next event writes EPOCH and STACK words of its own.
pub fn forget_context(thread: &Thread) {
    thread.epoch.store(u64::MAX, Relaxed);
    thread.window.store(NOWHERE, Relaxed);
}

/// Records one event: `low` is its low half, `parent` the return address in the caller where the event has one, `reserved` the address a
/// fast path reserved and did not use (0: none), `slot` the address of its return address (0: not to be recorded). 1 if recorded, 0 if
/// counted as lost.
pub extern "C" fn record_slow(low: u32, parent: u64, reserved: u64, slot: u64) -> u8 {
    match try_record(low, parent, reserved, slot) {
        Ok(()) => 1,
        Err(Full) => {
            lose(low);
            0
        }
    }
}

/// The calling thread's state. A forked child finds its parent's pointer, and zeros behind it.
fn registered(session: Session) -> Option<&'static Thread> {
    state::thread(session).filter(|thread| thread.entry.load(Relaxed) != 0)
}

/// The same, made if there is none, while events are wanted.
pub fn thread(session: Session) -> Result<&'static Thread, Full> {
    let known = registered(session);
    if session.control().recording.load(Relaxed) == 0 {
        match known {
            Some(thread) => ring::clamp(thread),
            // A forked child that never registers: no event must find room behind the zeros.
            None => state::thread(session).into_iter().for_each(|wiped| wiped.cursor.store(PARKED, Relaxed)),
        }
        return Err(Full);
    }
    known.or_else(|| register_thread(session)).ok_or(Full)
}

fn try_record(low: u32, parent: u64, reserved: u64, slot: u64) -> Result<(), Full> {
    let session = Session::get().ok_or(Full)?;
    let control = session.control();
    let sparse = control.clock.load(Relaxed) == Clock::Sparse as u32;
    let words = 1 + u64::from(has_parent(low & code::MASK)) * if sparse { 2 } else { 1 };
    if registered(session).is_some() && reserved != 0 && in_data(reserved) {
        if sparse { pad_sparse(reserved, words) } else { pad(reserved, words) }
    }
    let thread = thread(session)?;
    if sparse {
        record_sparse(session, thread, low, parent, words)
    } else {
        record_words(session, thread, low, parent, words, slot)
    }
}

pub fn pad(address: u64, words: u64) {
    for i in 0..words {
        store(address + 8 * i, u64::from(code::PAD));
    }
}

/// An event, always with its EPOCH word in front; and in front of that a STACK word, if its slot is to be recorded.
fn record_words(
    session: Session,
    thread: &Thread,
    low: u32,
    parent: u64,
    words: u64,
    slot: u64,
) -> Result<(), Full> {
    let ticks = stamp(session.control());
    let placed = u64::from(slot != 0);
    // This call's own, so that it is seen below whether a signal handler has come by, whatever that has left.
    let unplaced = NOWHERE | &raw const ticks as u64;
    let address = loop {
        // No clock and no stack equal these: a signal handler from here on writes an EPOCH and a STACK of its own.
        thread.epoch.store(u64::MAX, Relaxed);
        thread.window.store(unplaced, Relaxed);
        let address = reserve(thread, 8 * (words + 1 + placed));
        if in_data(address) {
            break address;
        }
        ring::advance(session, thread)?;
    };
    let event = address + 8 * (1 + placed);
    if words == 2 {
        store(event + 8, parent_word(parent));
    }
    store(event, event_word(ticks, slot, low));
    store(event - 8, epoch_word(ticks));
    if slot != 0 {
        store(address, stack_word(slot, low));
    }
    thread.epoch.store(ticks >> CLOCK_BITS, Relaxed);
    // After a signal handler it is not known whose STACK word is the last.
    if slot == 0 || !exchange(&thread.window, unplaced, slot.wrapping_sub(WINDOW / 2)) {
        thread.window.store(NOWHERE, Relaxed);
    }
    Ok(())
}

/// Fills reserved words of the sparse clock: the first two of a block with the time, others with PAD.
fn pad_sparse(address: u64, words: u64) {
    // SAFETY: see `stamp`.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    for at in (0..words).map(|i| address + 4 * i) {
        match at % SPARSE_BLOCK as u64 {
            0 => store_half(at, (ticks as u32).max(1)),
            4 => store_half(at, (ticks >> 32) as u32 | SPARSE_HIGH),
            _ => store_half(at, code::PAD),
        }
    }
}

fn record_sparse(session: Session, thread: &Thread, low: u32, parent: u64, words: u64) -> Result<(), Full> {
    loop {
        let address = reserve(thread, 4 * words);
        if !in_data(address) {
            ring::advance(session, thread)?;
            continue;
        }
        let position = address % SPARSE_BLOCK as u64;
        if position >= 8 && position + 4 * words <= SPARSE_BLOCK as u64 {
            if words > 1 {
                let [second, third] = parent_halves(parent);
                store_half(address + 4, second);
                store_half(address + 8, third);
            }
            store_half(address, low);
            return Ok(());
        }
        pad_sparse(address, words);
    }
}

/// Moves the cursor back to the start of the room behind a full chunk, if it is there.
pub fn clamp_cursor(thread: &Thread, seen: u64) {
    exchange_cursor(thread, seen, seen & !(CHUNK_SIZE as u64 - 1) | CHUNK_LIMIT as u64);
}

//! Records events that the fast path cannot: a thread's first event, a forked child's first event,
//! a full chunk, a clock whose high half changed.
//!
//! Called through a shim, from any point of any thread, signal handlers included. Uses `unsafe`
//! because events are stored at addresses computed from the cursor.

use crate::register::{lose, register_process, registered, thread};
use crate::ring::{self, Full};
use crate::state::{NOWHERE, Session, Thread, exchange, in_data, reserve};
use crate::{sys, word};
use calltap_abi::event::{
    CLOCK_BITS, SPARSE_BLOCK, SPARSE_HIGH, WINDOW, code, epoch_word, event_word, goroutine_words, has_parent,
    parent_halves, parent_word, stack_word, start_words,
};
use calltap_abi::{Clock, Control, stub};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Records a call of the profiling function at `ip` that was not recorded yet, if there is room. It
/// calls no code of the program, and waits for no thread.
pub extern "C" fn first_slow(_: u32, ip: u64, _: u64) -> u8 {
    let Some(session) = Session::get() else { return 0 };
    let Some(process) = register_process(session) else { return 0 };
    session.first_calls().record(ip, process + 1);
    0
}

/// Returns the present time of the session's clock.
fn stamp(control: &Control) -> u64 {
    match control.clock.load(Relaxed) {
        c if c == Clock::Coarse as u32 => control.tick.load(Relaxed),
        c if c == Clock::Counter as u32 => control.counter.fetch_add(1, Relaxed),
        _ => ticks(control),
    }
}

/// Returns the time stamp counter, computed from another clock if this thread may not read it.
fn ticks(control: &Control) -> u64 {
    if !word::may_read_counter() {
        return control.tsc_line.ticks(sys::monotonic_raw_ns());
    }
    // SAFETY: rdtsc reads a counter; calltap refuses systems where it is unreliable, and a thread
    // that may not read it says so in its word.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Stores a word at an address that this thread has reserved.
pub fn store(address: u64, word: u64) {
    // SAFETY: the address was reserved by this thread (an `xadd` on its cursor) inside a chunk it
    // holds: `in_data` was checked, and CHUNK_LIMIT leaves room behind the last address for the
    // words of one event. 8-byte aligned since all reservations are.
    unsafe { &*(address as *const AtomicU64) }.store(word, Relaxed);
}

fn store_half(address: u64, word: u32) {
    // SAFETY: as `store`, in units of 4 bytes.
    unsafe { &*(address as *const AtomicU32) }.store(word, Relaxed);
}

/// Records one event. `low` is its low half, `parent` the return address of the call where the
/// event has one, `reserved` an address that a fast path reserved and did not use (0: none), `slot`
/// the address of its return address (0: not to be recorded). Returns 1 if recorded, 0 if counted
/// as lost.
pub extern "C" fn record_slow(low: u32, parent: u64, reserved: u64, slot: u64) -> u8 {
    finish(low, try_record(low, parent, reserved, slot, None))
}

/// Counts a failed event as lost, and returns whether it was recorded.
fn finish(low: u32, result: Result<(), Full>) -> u8 {
    match result {
        Ok(()) => 1,
        Err(Full) => {
            lose(low);
            0
        }
    }
}

/// The goroutine that a thread runs.
#[derive(Clone, Copy)]
struct Goroutine {
    /// Address of its `g`.
    g: u64,
    /// Number of the goroutine; 0 for the stacks of the thread itself.
    number: u64,
    /// Beginning of its stack.
    top: u64,
    /// Number of the goroutine that started it, and address of the function that it was started
    /// with; `None` for the stacks of the thread itself, and where the offsets are unknown.
    start: Option<[u64; 2]>,
}

/// Number of words about the start of a goroutine.
const START_WORDS: u64 = 2;

/// Offset in `runtime.g` of the end of its stack, in all versions of Go: it follows the beginning.
pub const STACK_TOP: u64 = 8;
/// Offset of a hook's return address from its last push.
pub const FRAME_RETURN: u64 = 40;
/// Offset of the traced function's return address, at an entry.
pub const FRAME_SLOT: u64 = 48;
/// Offset of the traced function's return address, at a return.
pub const FRAME_SLOT_LEFT: u64 = 56 + stub::RED_ZONE as u64;

/// Records an event of a Go function, behind the words that name its goroutine. `frame` points to
/// the hook's last push.
pub extern "C" fn record_goroutine(low: u32, parent: u64, reserved: u64, g: u64, frame: u64) -> u8 {
    let word = |address: u64| {
        // SAFETY: words of the hook's frame, and of the `g` that the function's stack check has
        // read: the offsets lie within `runtime.g` of the program's version of Go.
        unsafe { *(address as *const u64) }
    };
    let in_stub = word(frame + FRAME_RETURN) / stub::SIZE as u64 * stub::SIZE as u64;
    let place = |offset: usize| {
        // SAFETY: a byte of that stub.
        u64::from(unsafe { *((in_stub + offset as u64) as *const u8) })
    };
    let number = word(g + 8 * place(stub::GOID));
    let started = Some(place(stub::STARTED_BY)).filter(|place| *place != 0 && number != 0);
    let start = started.map(|place| [place, place + stub::STARTED_AT].map(|place| word(g + 8 * place)));
    let goroutine = Goroutine { g, number, top: word(g + STACK_TOP), start };
    let slot = frame + if low & code::MASK == code::GO_EXIT { FRAME_SLOT_LEFT } else { FRAME_SLOT };
    finish(low, try_record(low, parent, reserved, slot.wrapping_sub(goroutine.top), Some(goroutine)))
}

/// Records an event of a call whose slot is `slot`, from Rust. `stub` is the lower half of the
/// address of its site's stub, with the code; `parent` its second word, where it has one. Follows
/// the rule of the hooks' fast path: the event must fit the context words in front of the reserved
/// place, or it takes the slow path. Returns whether it was recorded.
pub fn record_at(session: Session, stub: u32, parent: u64, slot: u64) -> bool {
    let low = (slot as u32) << 22 ^ stub;
    let clock = session.control().clock.load(Relaxed);
    let Some(thread) = registered(session).filter(|_| clock != Clock::Sparse as u32) else {
        return record_slow(low, parent, 0, slot) != 0;
    };
    let ticks = stamp(session.control());
    let words = 1 + u64::from(has_parent(stub & code::MASK));
    let reserved = reserve(thread, 8 * words);
    let placed = slot.wrapping_sub(thread.window.load(Relaxed)) < WINDOW;
    if placed && ticks >> CLOCK_BITS == thread.epoch.load(Relaxed) && in_data(reserved) {
        if words == 2 {
            store(reserved + 8, parent_word(parent));
        }
        store(reserved, event_word(ticks, slot, low));
        if let Some(newest) = session.newest(thread) {
            newest.event.store(reserved, Relaxed);
        }
        return true;
    }
    record_slow(low, parent, reserved, slot) != 0
}

/// Records an event in the slow path, padding what the fast path reserved.
fn try_record(
    low: u32,
    parent: u64,
    reserved: u64,
    slot: u64,
    goroutine: Option<Goroutine>,
) -> Result<(), Full> {
    let session = Session::get().ok_or(Full)?;
    let control = session.control();
    let sparse = control.clock.load(Relaxed) == Clock::Sparse as u32;
    let words = 1 + u64::from(has_parent(low & code::MASK)) * if sparse { 2 } else { 1 };
    if registered(session).is_some() && reserved != 0 && in_data(reserved) {
        if sparse { pad_sparse(control, reserved, words) } else { pad(reserved, words) }
    }
    let thread = thread(session)?;
    if sparse {
        record_sparse(session, thread, low, parent, words)
    } else {
        record_words(session, thread, low, parent, words, slot, goroutine)
    }
}

/// Fills reserved words with padding.
pub fn pad(address: u64, words: u64) {
    for i in 0..words {
        store(address + 8 * i, u64::from(code::PAD));
    }
}

/// Records an event behind its EPOCH word; in front of that a STACK word, if its slot is recorded,
/// and first the GOROUTINE words, with those about the start of the goroutine.
fn record_words(
    session: Session,
    thread: &Thread,
    low: u32,
    parent: u64,
    words: u64,
    slot: u64,
    goroutine: Option<Goroutine>,
) -> Result<(), Full> {
    let ticks = stamp(session.control());
    let placed = u64::from(slot != 0);
    let start = goroutine.and_then(|goroutine| goroutine.start);
    let named = 2 * u64::from(goroutine.is_some());
    let ahead = named + START_WORDS * u64::from(start.is_some()) + placed;
    // A value of this call only, which shows below whether a signal handler has written the window
    // meanwhile.
    let unplaced = NOWHERE | &raw const ticks as u64;
    let address = loop {
        // No clock and no stack equal these values, so a signal handler from here on writes its own
        // EPOCH and STACK words.
        thread.epoch.store(u64::MAX, Relaxed);
        thread.window.store(unplaced, Relaxed);
        let address = reserve(thread, 8 * (words + 1 + ahead));
        if in_data(address) {
            break address;
        }
        ring::advance(session, thread)?;
    };
    let event = address + 8 * (1 + ahead);
    if let Some(newest) = session.newest(thread) {
        newest.event.store(event, Relaxed);
    }
    if words == 2 {
        store(event + 8, parent_word(parent));
    }
    store(event, event_word(ticks, slot, low));
    store(event - 8, epoch_word(ticks));
    if slot != 0 {
        store(event - 16, stack_word(slot, low));
    }
    if let Some(goroutine) = goroutine {
        // A thread's own stack keeps its place; a goroutine is identified by its `g` until that is
        // reused.
        let at = if goroutine.number == 0 { goroutine.top } else { goroutine.g };
        let [first, second] = goroutine_words(goroutine.number, at);
        store(address, first);
        store(address + 8, second);
        if let Some([parent, function]) = start {
            let [first, second] = start_words(parent, function);
            store(address + 8 * named, first);
            store(address + 8 * (named + 1), second);
        }
        // The two words are set before the window: until that is set, no event relies on them.
        thread.goroutine.store(goroutine.number, Relaxed);
        thread.g.store(goroutine.g, Relaxed);
    }
    thread.epoch.store(ticks >> CLOCK_BITS, Relaxed);
    // After a signal handler it is not known whose STACK word is the last.
    if slot == 0 || !exchange(&thread.window, unplaced, slot.wrapping_sub(WINDOW / 2)) {
        thread.window.store(NOWHERE, Relaxed);
        // The last GOROUTINE words may be the handler's, too.
        if goroutine.is_some() {
            thread.g.store(0, Relaxed);
        }
    }
    Ok(())
}

/// Fills reserved words of the sparse clock: the first two of a block with the time, others with
/// PAD.
fn pad_sparse(control: &Control, address: u64, words: u64) {
    let ticks = ticks(control);
    for at in (0..words).map(|i| address + 4 * i) {
        match at % SPARSE_BLOCK as u64 {
            0 => store_half(at, (ticks as u32).max(1)),
            4 => store_half(at, (ticks >> 32) as u32 | SPARSE_HIGH),
            _ => store_half(at, code::PAD),
        }
    }
}

/// Records an event of the sparse clock.
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
        pad_sparse(session.control(), address, words);
    }
}

//! The ring of a thread: chunks from a common pool, linked in order of use, emptied and returned by
//! the recorder.
//!
//! All steps are idempotent or compare-and-exchange, so that a signal handler that interrupts a
//! step at any point can complete it, and a handler that never returns (siglongjmp) leaves no step
//! half done.

use crate::state::{CHUNKS, Session, Thread, clamp_cursor, exchange_cursor, forget_context, in_data};
use crate::{sys, waits};
use calltap_abi::overwrite::forget_events;
use calltap_abi::silence::Silence;
use calltap_abi::{CHUNK_DATA, Clock, Control, THREAD_MAX, ThreadEntry, pop, push};
use core::sync::atomic::{AtomicU64, Ordering::*, fence};

/// Error: there is no room for the event.
pub struct Full;

/// Length of a piece of a wait, after which the recorder's heartbeat is checked. Thousands of
/// threads may wait.
const WAIT_PIECE_NS: u64 = 50_000_000;
/// Time without a heartbeat after which the recorder counts as stopped or dead.
const SILENCE_NS: u64 = 1_000_000_000;
/// Addition to `SILENCE_NS` for each thread of the session: that many may have to run before the
/// recorder.
const SILENCE_PER_THREAD_NS: u64 = 1_000_000;

/// Takes an entry from the list of free thread entries.
pub fn pop_thread(session: Session) -> Option<u32> {
    pop(&session.control().thread_free, |index| Some(session.thread_entry(index)?.next_free.load(Relaxed)))
}

/// Takes a free chunk, or one that was never used.
fn pop_chunk(session: Session) -> Option<u32> {
    let control = session.control();
    pop_listed(session, &control.chunk_free).or_else(|| {
        let fresh = control.chunk_bump.load(Relaxed);
        // Not fetch_add: the counter must not run away while nothing is free.
        if fresh >= control.chunk_count.load(Relaxed).min(CHUNKS.load(Relaxed)) {
            return None;
        }
        control.chunk_bump.compare_exchange(fresh, fresh + 1, Relaxed, Relaxed).is_ok().then_some(fresh)
    })
}

/// Takes a chunk off a list.
fn pop_listed(session: Session, list: &AtomicU64) -> Option<u32> {
    pop(list, |index| Some(session.chunk_header(index)?.next.load(Relaxed)))
}

/// Takes a chunk that the recorder keeps for events which must not wait for one.
fn pop_spare(session: Session) -> Result<u32, Full> {
    let control = session.control();
    let index = pop_listed(session, &control.chunk_spare).ok_or(Full)?;
    control.spares_taken.fetch_add(1, Relaxed);
    Ok(index)
}

/// Returns a chunk to the pool.
pub fn push_chunk(session: Session, index: u32) {
    if let Some(header) = session.chunk_header(index) {
        push(&session.control().chunk_free, index, &header.next);
    }
}

/// Returns a thread entry that was never live.
pub fn push_thread(session: Session, index: u32) {
    if let Some(entry) = session.thread_entry(index) {
        push(&session.control().thread_free, index, &entry.next_free);
    }
}

/// Obtains a chunk for the thread's events: a free one, if necessary after a wait, or in overwrite
/// mode its own oldest.
fn obtain(session: Session, thread: &Thread, entry: &ThreadEntry) -> Result<u32, Full> {
    let control = session.control();
    if control.overwrite.load(Relaxed) != 0 {
        // A thread with its share of chunks leaves the rest of the pool to others.
        let (held, count) = (entry.chunks.load(Relaxed), control.chunk_count.load(Relaxed));
        let free = count.saturating_sub(control.chunk_bump.load(Relaxed));
        if (held < 2 || free > control.reserved.load(Relaxed).max(count / 4))
            && let Some(index) = retry_pop(session)
        {
            entry.chunks.store(held + 1, Relaxed);
            return Ok(index);
        }
        return reuse_oldest(session, thread, entry);
    }
    await_free(session, thread, entry)
}

/// Takes a free chunk, if necessary after a wait, or in a signal handler a spare one.
pub fn await_free(session: Session, thread: &Thread, entry: &ThreadEntry) -> Result<u32, Full> {
    let control = session.control();
    if let Some(index) = retry_pop(session) {
        return Ok(index);
    }
    let wait_ns = u64::from(control.wait_us.load(Relaxed)) * 1000;
    let is_in_vain = control.in_vain.load(Relaxed) == control.chunks_returned.load(Relaxed).wrapping_add(1);
    if wait_ns == 0 || is_in_vain {
        give_up_on_the_dead(control, entry);
        return Err(Full);
    }
    let start = sys::monotonic_ns();
    if in_signal_handler(thread) || is_waiting(thread, start) {
        return pop_spare(session);
    }
    thread.waiting.store(milliseconds(start + wait_ns) | 1, Relaxed);
    let result = waits::waiting(session, wait_ns, || await_returned(session, start, wait_ns));
    thread.waiting.store(0, Relaxed);
    result
}

/// Waits for a chunk that the recorder returns or provides, as long as its heartbeat continues, and
/// at most `wait_ns`.
fn await_returned(session: Session, start: u64, wait_ns: u64) -> Result<u32, Full> {
    let control = session.control();
    let before = control.chunks_returned.load(Relaxed);
    let mut silence = Silence::new(control.heartbeat.load(Relaxed), start, 2 * WAIT_PIECE_NS);
    let threads = u64::from(control.thread_bump.load(Relaxed)).min(THREAD_MAX as u64);
    let dead_ns = SILENCE_NS + threads * SILENCE_PER_THREAD_NS;
    loop {
        let returned = control.chunks_returned.load(Acquire);
        if let Some(index) = retry_pop(session) {
            return Ok(index);
        }
        if control.recording.load(Relaxed) == 0 {
            return Err(Full);
        }
        let now = sys::monotonic_ns();
        if silence.update(control.heartbeat.load(Relaxed), now) >= dead_ns {
            control.recording.store(0, Relaxed); // the recorder sets it again when it continues
            return Err(Full);
        }
        let left = wait_ns.saturating_sub(now.wrapping_sub(start));
        if left == 0 {
            if returned == before {
                control.in_vain.store(returned.wrapping_add(1), Relaxed);
            }
            return Err(Full);
        }
        sys::futex_wait(&control.chunks_returned, returned, left.min(WAIT_PIECE_NS));
    }
}

fn milliseconds(ns: u64) -> u32 {
    (ns / 1_000_000) as u32
}

/// Whether the thread waits for a chunk, so that this is a signal handler within that wait: if
/// handlers waited as well, they would nest as long as signals come. A wait that a handler has left
/// by siglongjmp counts until it would have ended.
fn is_waiting(thread: &Thread, now: u64) -> bool {
    let until = thread.waiting.load(Relaxed);
    until != 0 && until.wrapping_sub(milliseconds(now)).cast_signed() > 0
}

/// Takes a free chunk, trying again after a lost race for a fresh one.
fn retry_pop(session: Session) -> Option<u32> {
    let control = session.control();
    let count = || control.chunk_count.load(Relaxed).min(CHUNKS.load(Relaxed));
    let left = || control.chunk_bump.load(Relaxed) < count();
    pop_chunk(session).or_else(|| (0..64).take_while(|_| left()).find_map(|_| pop_chunk(session)))
}

/// Ends recording when the rings are full and the recorder has had no heartbeat for a while: for
/// threads that do not wait, in a process that was attached to or after a wait in vain. Checks the
/// heartbeat once in `LOSSES_PER_CHECK` losses.
fn give_up_on_the_dead(control: &Control, entry: &ThreadEntry) {
    const LOSSES_PER_CHECK: u64 = 1024;
    const DEAD_NS: u64 = 1_000_000_000;
    if !entry.lost_entries.load(Relaxed).is_multiple_of(LOSSES_PER_CHECK) {
        return;
    }
    let (now, beat) = (sys::monotonic_ns(), control.heartbeat.load(Relaxed));
    // The time is written first, and only forwards: a thread that finds the beat finds its time or
    // a later one.
    if control.last_beat.load(Acquire) != beat {
        control.last_beat_ns.fetch_max(now, Relaxed);
        control.last_beat.store(beat, Release);
    } else if now.wrapping_sub(control.last_beat_ns.load(Relaxed)) > DEAD_NS {
        control.recording.store(0, Relaxed);
    }
}

/// Whether the thread seems to be in a signal handler, which must not wait: it has more signals
/// blocked than when it began, or is on the alternate stack.
fn in_signal_handler(thread: &Thread) -> bool {
    sys::blocked_signals() & !thread.blocked.load(Relaxed) != 0 || sys::on_alternate_stack()
}

/// Unlinks the thread's oldest chunk and clears it, counting its events as lost.
fn reuse_oldest(session: Session, thread: &Thread, entry: &ThreadEntry) -> Result<u32, Full> {
    if thread.busy.swap(1, Relaxed) != 0 {
        return Err(Full);
    }
    let oldest = entry.first_chunk.load(Relaxed).checked_sub(1);
    let next =
        oldest.and_then(|index| session.chunk_header(index)).map_or(0, |header| header.next.load(Relaxed));
    let found = oldest.filter(|_| next != 0).and_then(|index| Some((index, session.chunk_words(index)?)));
    if let Some((_, words)) = found {
        let reusing = entry.reuses.load(Relaxed) | 1;
        entry.reuses.store(reusing, Relaxed);
        // The count is raised before the first word is cleared, so that a reader that copies the
        // chunk finds that it was too late.
        fence(Release);
        entry.first_chunk.store(next, Release);
        let sparse = session.control().clock.load(Relaxed) == Clock::Sparse as u32;
        let forgotten = forget_events(words, sparse);
        entry.lost_entries.fetch_add(forgotten.entries, Relaxed);
        entry.lost_exits.fetch_add(forgotten.exits, Relaxed);
        entry.reuses.store(reusing.wrapping_add(1), Release);
    }
    // No signal handler unlinks a chunk until here: clearing relies on that.
    thread.busy.store(0, Release);
    found.map(|(index, _)| index).ok_or(Full)
}

/// Moves the cursor to the start of the room behind the chunk, so that events without room cannot
/// push it into the next chunk.
pub fn clamp(thread: &Thread) {
    let seen = thread.cursor.load(Relaxed);
    if !in_data(seen) {
        clamp_cursor(thread, seen);
    }
}

/// Gives the thread a chunk with room. After `Err` the cursor is back at the limit.
///
/// It clamps before it waits, too: thousands of signal handlers may interrupt the wait, each nested
/// deeper and waiting as well, and together they would push the cursor through the room behind the
/// chunk into another thread's chunk.
pub fn advance(session: Session, thread: &Thread) -> Result<(), Full> {
    clamp(thread);
    let result = try_advance(session, thread);
    if result.is_err() {
        clamp(thread);
    }
    result
}

fn try_advance(session: Session, thread: &Thread) -> Result<(), Full> {
    let own = thread.entry.load(Relaxed).wrapping_sub(1);
    let entry = session.thread_entry(own).ok_or(Full)?;
    let seen = thread.cursor.load(Relaxed);
    if in_data(seen) {
        return Ok(()); // a signal handler has advanced
    }
    // The link that names the next chunk: of the thread's first chunk, or of the chunk that is
    // full.
    let link = match session.chunk_index(seen) {
        None => &entry.first_chunk,
        Some(index) => &session.chunk_header(index).ok_or(Full)?.next,
    };
    if link.load(Acquire) == 0 {
        let index = obtain(session, thread, entry)?;
        let header = session.chunk_header(index).ok_or(Full)?;
        header.next.store(0, Relaxed);
        // Events lost so far precede the events that the chunk will hold.
        header.lost_entries.store(entry.lost_entries.load(Relaxed), Relaxed);
        header.lost_exits.store(entry.lost_exits.load(Relaxed), Relaxed);
        header.lost_jumps.store(entry.lost_jumps.load(Relaxed), Relaxed);
        let had = session.newest(thread).map_or(0, |newest| newest.chunks.load(Relaxed));
        header.number.store(had.wrapping_add(1), Relaxed);
        // A signal handler may have linked a chunk before, or in overwrite mode with one chunk, the
        // link may be that of the chunk just reused.
        if link.compare_exchange(0, index + 1, AcqRel, Acquire).is_err() {
            push_chunk(session, index);
        }
    }
    let next = link.load(Acquire).checked_sub(1).and_then(|index| session.chunk(index)).ok_or(Full)?;
    // Each chunk can be read alone, as those before it may be overwritten: its first event has its
    // own EPOCH and STACK words.
    forget_context(thread);
    // Fails only if a signal handler has moved the cursor since it was read: then there is room, or
    // the caller tries again.
    if exchange_cursor(thread, seen, (next + CHUNK_DATA) as u64)
        && let Some(newest) = session.newest(thread)
    {
        newest.chunks.fetch_add(1, Relaxed);
    }
    Ok(())
}

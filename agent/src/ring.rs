//! Where a thread's events go: chunks from a common pool, linked in order of use, emptied and returned by the recorder.
//!
//! All steps are idempotent or compare-and-exchange, so that a signal handler that interrupts one at any point can carry it through itself,
//! and a handler that never returns (siglongjmp) leaves nothing half done.

use crate::state::{CHUNKS, Session, Thread, clamp_cursor, exchange_cursor, forget_context, in_data};
use crate::{sys, waits};
use calltap_abi::overwrite::forget_events;
use calltap_abi::silence::Silence;
use calltap_abi::{CHUNK_DATA, Clock, Control, THREAD_MAX, ThreadEntry, pop, push};
use core::sync::atomic::{Ordering::*, fence};

/// There is no room for the event.
pub struct Full;

/// A wait is cut into pieces of this length, to look at the recorder's heartbeat. Threads may wait by thousands.
const WAIT_PIECE_NS: u64 = 50_000_000;
/// A recorder whose heartbeat stands still for this long is stopped or gone,
const SILENCE_NS: u64 = 1_000_000_000;
/// and for each thread of the session this much longer: that many may have to run before it has its turn.
const SILENCE_PER_THREAD_NS: u64 = 1_000_000;

/// A free thread entry.
pub fn pop_thread(session: Session) -> Option<u32> {
    pop(&session.control().thread_free, |index| Some(session.thread_entry(index)?.next_free.load(Relaxed)))
}

fn pop_chunk(session: Session) -> Option<u32> {
    let control = session.control();
    pop(&control.chunk_free, |index| Some(session.chunk_header(index)?.next.load(Relaxed))).or_else(|| {
        let fresh = control.chunk_bump.load(Relaxed);
        // Not fetch_add: the counter must not run away while nothing is free.
        if fresh >= control.chunk_count.load(Relaxed).min(CHUNKS.load(Relaxed)) {
            return None;
        }
        control.chunk_bump.compare_exchange(fresh, fresh + 1, Relaxed, Relaxed).is_ok().then_some(fresh)
    })
}

pub fn push_chunk(session: Session, index: u32) {
    if let Some(header) = session.chunk_header(index) {
        push(&session.control().chunk_free, index, &header.next);
    }
}

/// Gives an entry back that was never live.
pub fn push_thread(session: Session, index: u32) {
    if let Some(entry) = session.thread_entry(index) {
        push(&session.control().thread_free, index, &entry.next_free);
    }
}

/// A chunk for the thread's events: a free one, or after a wait, or (overwrite) its own oldest.
fn obtain(session: Session, thread: &Thread, entry: &ThreadEntry) -> Result<u32, Full> {
    let control = session.control();
    if control.overwrite.load(Relaxed) != 0 {
        // A thread that has its share leaves the rest of the pool to others.
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

/// A free chunk, perhaps after a wait.
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
        return Err(Full);
    }
    thread.waiting.store(milliseconds(start + wait_ns) | 1, Relaxed);
    let result = waits::waiting(session, wait_ns, || await_returned(session, start, wait_ns));
    thread.waiting.store(0, Relaxed);
    result
}

/// A chunk that the recorder returns or provides, as long as its heartbeat shows that it works, but no longer than the session allows.
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
        if silence.look(control.heartbeat.load(Relaxed), now) >= dead_ns {
            control.recording.store(0, Relaxed); // the recorder sets it again when it goes on
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

/// Whether this is a signal handler of a thread that waits: handlers that wait likewise would nest as long as signals come. A handler that left a wait by
/// siglongjmp is forgotten when that wait would have ended.
fn is_waiting(thread: &Thread, now: u64) -> bool {
    let until = thread.waiting.load(Relaxed);
    until != 0 && until.wrapping_sub(milliseconds(now)).cast_signed() > 0
}

/// A lost race for a fresh chunk is no reason to give up.
fn retry_pop(session: Session) -> Option<u32> {
    let control = session.control();
    let count = || control.chunk_count.load(Relaxed).min(CHUNKS.load(Relaxed));
    let left = || control.chunk_bump.load(Relaxed) < count();
    pop_chunk(session).or_else(|| (0..64).take_while(|_| left()).find_map(|_| pop_chunk(session)))
}

/// Ends recording when the rings are full and the recorder has shown no sign of life for a while: for threads that do not wait, of a process that was attached to
/// or where a wait was in vain. The heartbeat is looked at once in so many losses.
fn give_up_on_the_dead(control: &Control, entry: &ThreadEntry) {
    const LOOK: u64 = 1024;
    const DEAD_NS: u64 = 1_000_000_000;
    if !entry.lost_entries.load(Relaxed).is_multiple_of(LOOK) {
        return;
    }
    let (now, beat) = (sys::monotonic_ns(), control.heartbeat.load(Relaxed));
    // The time first and never backwards: another thread that finds the beat finds a time that belongs to it or to a later one.
    if control.last_beat.load(Acquire) != beat {
        control.last_beat_ns.fetch_max(now, Relaxed);
        control.last_beat.store(beat, Release);
    } else if now.wrapping_sub(control.last_beat_ns.load(Relaxed)) > DEAD_NS {
        control.recording.store(0, Relaxed);
    }
}

/// More signals blocked than when the thread began, or on the alternate stack: taken for a signal handler, which must not be held up.
fn in_signal_handler(thread: &Thread) -> bool {
    sys::blocked_signals() & !thread.blocked.load(Relaxed) != 0 || sys::on_alternate_stack()
}

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
        // What copies the chunk meanwhile sees by the count that it was too late: the count is raised before the first word is cleared.
        fence(Release);
        entry.first_chunk.store(next, Release);
        let sparse = session.control().clock.load(Relaxed) == Clock::Sparse as u32;
        let forgotten = forget_events(words, sparse);
        entry.lost_entries.fetch_add(forgotten.entries, Relaxed);
        entry.lost_exits.fetch_add(forgotten.exits, Relaxed);
        entry.reuses.store(reusing.wrapping_add(1), Release);
    }
    // Until here no handler unlinks a chunk: what clears one relies on that.
    thread.busy.store(0, Release);
    found.map(|(index, _)| index).ok_or(Full)
}

/// Leaves the cursor at the start of the room behind the chunk, so that events that find no room cannot push it into the next chunk.
pub fn clamp(thread: &Thread) {
    let seen = thread.cursor.load(Relaxed);
    if !in_data(seen) {
        clamp_cursor(thread, seen);
    }
}

/// Gives the thread a chunk with room. After `Err` the cursor is back at the limit.
///
/// Clamps before it waits, too: while it waits, signal handlers may come by thousands, each of them one deeper and waiting likewise, and
/// together they would push the cursor through the room behind the chunk into another thread's.
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
        return Ok(()); // a signal handler has done it
    }
    // The link that names the next chunk: of the thread's first chunk, or of the chunk that is full.
    let link = match session.chunk_index(seen) {
        None => &entry.first_chunk,
        Some(index) => &session.chunk_header(index).ok_or(Full)?.next,
    };
    if link.load(Acquire) == 0 {
        let index = obtain(session, thread, entry)?;
        let header = session.chunk_header(index).ok_or(Full)?;
        header.next.store(0, Relaxed);
        // What was lost lies in front of what the chunk will hold.
        header.lost_entries.store(entry.lost_entries.load(Relaxed), Relaxed);
        header.lost_exits.store(entry.lost_exits.load(Relaxed), Relaxed);
        let had = session.newest(thread).map_or(0, |newest| newest.chunks.load(Relaxed));
        header.number.store(had.wrapping_add(1), Relaxed);
        // A signal handler may have been faster, or (overwrite, one chunk) the link may be of the chunk just reused.
        if link.compare_exchange(0, index + 1, AcqRel, Acquire).is_err() {
            push_chunk(session, index);
        }
    }
    let next = link.load(Acquire).checked_sub(1).and_then(|index| session.chunk(index)).ok_or(Full)?;
    // A chunk is read by itself where the ones before it are overwritten: its first event says when and where it happened.
    forget_context(thread);
    // Fails only if a signal handler has moved the cursor since it was read: then there is room, or the caller comes again.
    if exchange_cursor(thread, seen, (next + CHUNK_DATA) as u64)
        && let Some(newest) = session.newest(thread)
    {
        newest.chunks.fetch_add(1, Relaxed);
    }
    Ok(())
}

//! Registers the processes and threads of the session: each gets an entry at its first event, and
//! so does a forked child.
//!
//! Registration happens at any point of any thread, signal handlers included.

use crate::ring::{self, Full};
use crate::state::{PARKED, PROCESS_BEFORE_FORK, Session, Thread, forget_context, in_data};
use crate::{sys, tables, word};
use calltap_abi::event::{code, is_nonlocal};
use calltap_abi::{
    CHUNK_SIZE, Control, Image, NO_EVENTS, PROCESS_MAX, ProcessEntry, THREAD_MAX, ThreadState, stub,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// Addresses of the agent's parts, since the session was joined.
pub static IMAGE: Image = Image {
    stubs: AtomicU64::new(0),
    hooks: [const { AtomicU64::new(0) }; stub::HOOK_COUNT],
    loader_brk: AtomicU64::new(0),
    loader_hook: AtomicU64::new(0),
    thread_word: AtomicU64::new(0),
    first_hook: AtomicU64::new(0),
};

/// Returns the process entry of the calling process, if it has one.
pub fn process(session: Session) -> Option<&'static ProcessEntry> {
    session.process(session.private().process.load(Relaxed).checked_sub(1)?)
}

/// Registers the calling process, even a forked child, and returns its index.
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
    if parent != 0 {
        tell_fork(session, process);
    }
    let known = match parent.checked_sub(1).and_then(|parent| session.process(parent)) {
        Some(parent) => {
            inherit(&process.image, &parent.image);
            &parent.pid_namespace
        }
        None => {
            inherit(&process.image, &IMAGE);
            &control.pid_namespace
        }
    };
    let own = sys::open(b"/proc/thread-self/ns/pid\0", sys::O_RDONLY).and_then(|file| file.inode());
    process.pid_namespace.store(own.unwrap_or_else(|_| known.load(Relaxed)), Relaxed);
    process.pid.store(sys::pid(), Release);
    private.process.store(index + 1, Relaxed);
    Some(index)
}

/// Records the position of the thread that forked this process. The first thread of the child has
/// that thread's word.
fn tell_fork(session: Session, process: &ProcessEntry) {
    // Another thread was created in the child since, and knows nothing of the parent.
    if sys::tid() != sys::pid() {
        return;
    }
    let own = word::get();
    if own == 0 {
        return process.forked_by.store(NO_EVENTS, Relaxed);
    }
    let own = word::index(session, own);
    let newest = own.and_then(|own| Some((own, session.private().kept.newest.get(own)?)));
    // The word may also be that of a thread that has ended, or of the thread's creator: only its
    // owner's thread pointer matches.
    let Some((own, newest)) =
        newest.filter(|(_, newest)| newest.thread_pointer.load(Relaxed) == word::thread_pointer())
    else {
        return;
    };
    let event = newest.event.load(Relaxed);
    if let Some(chunk) = session.chunk_index(event).filter(|_| in_data(event)) {
        process.forked_number.store(newest.chunks.load(Relaxed), Relaxed);
        process.forked_chunk.store(chunk, Relaxed);
        process.forked_offset.store((event % CHUNK_SIZE as u64) as u32, Relaxed);
        process.forked_by.store(own as u32 + 1, Relaxed);
    }
}

/// Copies the addresses of the agent's parts from the agent, or from the parent process.
fn inherit(own: &Image, known: &Image) {
    for (own, known) in own.words().zip(known.words()) {
        own.store(known.load(Relaxed), Relaxed);
    }
}

/// Takes an entry that was never used. Not fetch_add: the counter must not run away while the table
/// is full.
fn fresh_thread(control: &Control) -> Option<u32> {
    let bump = &control.thread_bump;
    bump.fetch_update(Relaxed, Relaxed, |index| ((index as usize) < THREAD_MAX).then_some(index + 1)).ok()
}

/// Whether a thread of this process, or of one that it was forked from, may not read the time stamp
/// counter. Threads inherit that from their creator.
static IS_FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread may read the time stamp counter. `seen` is the thread's word.
///
/// A seccomp filter that the program installs later could kill a thread for this system call. So
/// the thread asks the kernel in two cases only: if another thread is known that may not read the
/// counter, and if the process had no filter when calltap attached. In a forked child the second
/// case holds only if the forking thread had not asked. If a filter forbids the call, the thread
/// counts as one that may not.
fn may_read_counter(control: &Control, process: &ProcessEntry, seen: u64) -> bool {
    let is_first = process.parent.load(Relaxed) == 0 || seen == 0 && sys::tid() == sys::pid();
    let is_forbidden = IS_FORBIDDEN.load(Relaxed);
    let asks = is_forbidden || is_first && control.unfiltered.load(Relaxed) != 0;
    let may_read = !asks || control.unasked.load(Relaxed) == 0 && sys::may_read_counter();
    if !may_read {
        IS_FORBIDDEN.store(true, Relaxed);
    }
    may_read
}

/// Asks whether the thread by which the agent joins the session may read the time stamp counter.
pub fn ask_for_counter(session: Session) {
    let control = session.control();
    let asks = control.reads_tsc() && control.unasked.load(Relaxed) == 0;
    IS_FORBIDDEN.store(asks && !sys::may_read_counter(), Relaxed);
}

/// Keeps the calling thread's hooks from reading the time stamp counter from here on. A thread that
/// cannot be registered records no events.
pub fn forbid_counter(session: Session) {
    if !session.control().reads_tsc() {
        return;
    }
    IS_FORBIDDEN.store(true, Relaxed);
    if registered(session).or_else(|| register_thread(session)).is_some() {
        word::forbid_counter();
    }
}

/// Registers the calling thread, unless it is registered.
pub fn register_thread(session: Session) -> Option<&'static Thread> {
    // The word is read once: from here on a signal handler may register this thread, and its work
    // must not be undone.
    let seen = word::get();
    if let Some(thread) = word::state(session, seen) {
        if thread.entry.load(Relaxed) != 0 {
            return Some(thread);
        }
        // A forked child inherits its parent's word, and finds zeros behind it. If it gets no
        // entry, no event must find room there.
        thread.cursor.store(PARKED, Relaxed);
    }
    let process = register_process(session)?;
    let control = session.control();
    let index = ring::pop_thread(session).or_else(|| fresh_thread(control))?;
    let entry = session.thread_entry(index)?;
    let thread = session.private().threads.get(index as usize)?;
    entry.process.store(process, Relaxed);
    entry.tid.store(sys::tid(), Relaxed);
    entry.block.store(word::thread_pointer(), Relaxed);
    for (place, word) in entry.name.iter().zip(sys::thread_name()) {
        place.store(word, Relaxed);
    }
    entry.first_chunk.store(0, Relaxed);
    entry.first_profile.store(0, Relaxed);
    tables::forget(thread, index);
    entry.chunks.store(0, Relaxed);
    entry.lost_entries.store(0, Relaxed);
    entry.lost_exits.store(0, Relaxed);
    entry.lost_jumps.store(0, Relaxed);
    thread.cursor.store(PARKED, Relaxed);
    forget_context(thread);
    if let Some(newest) = session.newest(thread) {
        newest.event.store(0, Relaxed);
        newest.chunks.store(0, Relaxed);
        newest.thread_pointer.store(word::thread_pointer(), Relaxed);
    }
    thread.busy.store(0, Relaxed);
    thread.waiting.store(0, Relaxed);
    thread.blocked.store(sys::blocked_signals(), Relaxed);
    thread.entry.store(index + 1, Relaxed);
    word::sign(thread);
    let may_read = !control.reads_tsc() || may_read_counter(control, session.process(process)?, seen);
    if !word::set(seen, thread, index, may_read) {
        // A signal handler has registered this thread meanwhile.
        thread.entry.store(0, Relaxed);
        ring::push_thread(session, index);
        return word::thread(session);
    }
    entry.state.store(ThreadState::Live as u32, Release);
    Some(thread)
}

/// Returns the calling thread's state, if it is registered. A forked child inherits its parent's
/// pointer, and finds zeros behind it.
pub fn registered(session: Session) -> Option<&'static Thread> {
    word::thread(session).filter(|thread| thread.entry.load(Relaxed) != 0)
}

/// Returns the calling thread's state, registering the thread if necessary, while events are
/// recorded.
pub fn thread(session: Session) -> Result<&'static Thread, Full> {
    let known = registered(session);
    if session.control().recording.load(Relaxed) == 0 {
        match known {
            Some(thread) => ring::clamp(thread),
            // A forked child that never registers: no event must find room behind the zeros.
            None => word::thread(session).into_iter().for_each(|wiped| wiped.cursor.store(PARKED, Relaxed)),
        }
        return Err(Full);
    }
    known.or_else(|| register_thread(session)).ok_or(Full)
}

/// Counts an event that is not recorded; `low` is its low half.
pub fn lose(low: u32) {
    let Some(session) = Session::get() else { return };
    let kind = low & code::MASK;
    let thread = registered(session).or_else(|| register_thread(session));
    if let Some(newest) = thread.and_then(|thread| session.newest(thread)) {
        // The open calls behind a missing event are not known.
        newest.event.store(0, Relaxed);
    }
    let entry = thread.and_then(|thread| session.thread_entry(thread.entry.load(Relaxed).wrapping_sub(1)));
    if let Some(entry) = entry.filter(|_| matches!(kind, code::TAIL_ENTRY | code::TAIL_ENTRY_FROM)) {
        entry.lost_jumps.fetch_add(1, Relaxed);
    }
    let counter = match entry {
        Some(entry) if matches!(kind, code::EXIT | code::GO_EXIT) => &entry.lost_exits,
        Some(entry) if is_nonlocal(kind) => &entry.lost_jumps,
        Some(entry) => &entry.lost_entries,
        None if is_nonlocal(kind) => return,
        None => &session.control().lost_unregistered,
    };
    counter.fetch_add(1, Relaxed);
}

//! A thread's word: the pointer to its [`Thread`], which a hook loads in two steps.
//!
//! An agent that is loaded with the program has its own thread-local variable (initial-exec). glibc
//! clears it for every new thread, which tells a new thread from an old one on a recycled stack.
//!
//! In a running process the agent has no such variable. glibc would make room for it in all threads
//! under two locks, of its thread-local storage and of its cache of stacks, which `setuid` and
//! `pthread_create` take in the opposite order: a program that does both at that moment deadlocks.
//! And an agent that the recorder has placed has no dynamic linker to make the room. Then the word
//! is a field of the thread library, `sysinfo` in the thread's control block: glibc and musl both
//! have it, and use it on other processors only. No thread library clears it for a new thread: musl
//! copies it from the thread's creator, glibc leaves the value from a thread that has ended,
//! perhaps of an earlier session. So it holds a number instead of an address, the state's index
//! plus one, and the state holds the thread id of its owner, which the library keeps in the same
//! control block; the hooks compare the two.
//!
//! The word of a thread that may not read the time stamp counter has a bit set by which its hooks
//! find no state: all its events take the slow path, which uses another clock.
//!
//! Uses `unsafe` because the word is at an offset from the thread pointer, and its value becomes a
//! reference.

use crate::state::{Session, Thread};
#[cfg(feature = "attached")]
use crate::sys;
use core::arch::asm;
#[cfg(feature = "attached")]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(not(feature = "attached"))]
core::arch::global_asm!(
    ".section .tbss.calltap_thread,\"awT\",@nobits",
    ".balign 8",
    ".globl calltap_thread",
    ".hidden calltap_thread",
    ".type calltap_thread, @object",
    ".size calltap_thread, 8",
    "calltap_thread: .skip 8",
    ".text",
);

/// Returns the offset of a thread's word from its thread pointer.
#[cfg(not(feature = "attached"))]
pub fn offset() -> u64 {
    let offset: u64;
    // SAFETY: reads a word of the agent's own table of offsets.
    unsafe {
        asm!("mov {0}, qword ptr [rip + calltap_thread@gottpoff]", out(reg) offset,
             options(nostack, readonly, preserves_flags));
    }
    offset
}

/// Returns the offset of a thread's word from its thread pointer.
#[cfg(feature = "attached")]
pub fn offset() -> u64 {
    calltap_abi::SYSINFO
}

/// Bit of the word of a thread that may not read the time stamp counter. No address of a program
/// has it.
#[cfg(not(feature = "attached"))]
const WITHOUT_COUNTER: u64 = 1 << 63;
/// Bit of the word of a thread that may not read the time stamp counter. No number of a state has
/// it.
#[cfg(feature = "attached")]
const WITHOUT_COUNTER: u64 = 1 << 32;

/// Offset of the thread's id in the thread library's control block, from the thread pointer.
#[cfg(feature = "attached")]
pub static OWNER_AT: AtomicU64 = AtomicU64::new(0);

/// Returns the thread's id as its library has it; 0 if the library does not.
#[cfg(feature = "attached")]
fn library_id() -> u32 {
    let id: u32;
    // SAFETY: reads four bytes of this thread's control block: the recorder has checked that place
    // before the session was joined.
    unsafe {
        asm!("mov {0:e}, dword ptr fs:[{1}]", out(reg) id, in(reg) OWNER_AT.load(Relaxed),
             options(nostack, readonly, preserves_flags));
    }
    id
}

/// Returns the thread's id.
#[cfg(feature = "attached")]
fn own_id() -> u32 {
    // A thread of Go's runtime at its beginning, or of musl at its end, has no id: its hooks take
    // the slow path.
    match library_id() {
        0 => sys::tid(),
        id => id,
    }
}

/// Whether hooks find the calling thread's state, once it has one.
pub fn is_found() -> bool {
    #[cfg(feature = "attached")]
    let has_id = library_id() != 0;
    #[cfg(not(feature = "attached"))]
    let has_id = true;
    has_id && may_read_counter()
}

/// Whether the calling thread may read the time stamp counter, as far as its word says.
pub fn may_read_counter() -> bool {
    get() & WITHOUT_COUNTER == 0
}

/// Notes that the calling thread, which has a state, may not read the time stamp counter.
pub fn forbid_counter() {
    // SAFETY: one instruction on this thread's own word. Not `lock`ed: no other thread writes it.
    unsafe {
        asm!("or qword ptr fs:[{0}], {1}", in(reg) offset(), in(reg) WITHOUT_COUNTER, options(nostack));
    }
}

/// Returns the calling thread's word.
pub fn get() -> u64 {
    let word: u64;
    // SAFETY: reads this thread's own word, which exists in every thread.
    unsafe {
        asm!("mov {0}, qword ptr fs:[{1}]", out(reg) word, in(reg) offset(),
             options(nostack, readonly, preserves_flags));
    }
    word
}

/// Returns the thread state for a word of the calling thread.
#[cfg(not(feature = "attached"))]
pub fn state(_: Session, word: u64) -> Option<&'static Thread> {
    let address = word & !WITHOUT_COUNTER;
    // SAFETY: only `set` stores words, addresses of elements of Private::threads, which stay mapped
    // as long as any thread can see one; `forbid_counter` adds the bit.
    (address != 0).then(|| unsafe { &*(address as *const Thread) })
}

/// Returns the thread state for a word of the calling thread, if it is this thread's.
#[cfg(feature = "attached")]
pub fn state(session: Session, word: u64) -> Option<&'static Thread> {
    let thread = session.private().threads.get(index(session, word)?)?;
    (thread.owner.load(Relaxed) == own_id()).then_some(thread)
}

/// Returns the calling thread's state, if it has one.
pub fn thread(session: Session) -> Option<&'static Thread> {
    state(session, get())
}

/// Returns the index of the thread state for a word of any thread, or for one that a forked child
/// inherits.
#[cfg(not(feature = "attached"))]
pub fn index(session: Session, word: u64) -> Option<usize> {
    session.index_of(word & !WITHOUT_COUNTER)
}

/// Returns the index of the thread state for a word of any thread, or for one that a forked child
/// inherits.
#[cfg(feature = "attached")]
pub fn index(_: Session, word: u64) -> Option<usize> {
    usize::try_from((word & !WITHOUT_COUNTER).checked_sub(1)?).ok()
}

/// Returns the first word of the calling thread's control block: the pointer to that block, where a
/// C library has made the thread.
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the thread pointer of a registered thread points to memory: to its control block, or
    // into `runtime.m` of Go's runtime, where the word is part of `tls`. Any value will do.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// Returns the word for the state with an index.
#[cfg(not(feature = "attached"))]
fn word(thread: &'static Thread, _: u32) -> u64 {
    core::ptr::from_ref(thread) as u64
}

/// Returns the word for the state with an index.
#[cfg(feature = "attached")]
fn word(_: &'static Thread, index: u32) -> u64 {
    u64::from(index) + 1
}

/// Address of the thread states, less the size of one; the hooks add a word times that size.
#[cfg(feature = "attached")]
pub static STATES: AtomicU64 = AtomicU64::new(0);

/// Gives the hooks the addresses of a session that will be joined.
#[cfg(feature = "attached")]
pub fn prepare(states: usize, owner_at: u64) {
    OWNER_AT.store(owner_at, Relaxed);
    STATES.store((states - size_of::<Thread>()) as u64, Relaxed);
}

/// Notes the calling thread as the owner of the state.
pub fn sign(_thread: &Thread) {
    #[cfg(feature = "attached")]
    _thread.owner.store(own_id(), Relaxed);
}

/// Sets the calling thread's word to its state, unless a signal handler has done so since the word
/// was `seen`. `may_read`: whether the thread may read the time stamp counter.
pub fn set(seen: u64, thread: &'static Thread, index: u32, may_read: bool) -> bool {
    let word = word(thread, index) | if may_read { 0 } else { WITHOUT_COUNTER };
    let found: u64;
    // SAFETY: one instruction on this thread's own word. Not `lock`ed: no other thread writes it.
    unsafe {
        asm!("cmpxchg qword ptr fs:[{0}], {1}", in(reg) offset(), in(reg) word,
             inout("rax") seen => found, options(nostack));
    }
    found == seen
}

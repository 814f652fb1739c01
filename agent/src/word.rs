//! A thread's word: its pointer to its [`Thread`], which a hook finds by two loads.
//!
//! Loaded with the program, the agent has a thread-local variable of its own (initial-exec). glibc clears it for every new thread, which is how
//! a new thread is told from an old one on a recycled stack.
//!
//! In a process that runs already, it has none. glibc makes room for such a variable in all threads under two locks, of its thread-local storage and of
//! its cache of stacks, which `setuid` and `pthread_create` take the other way round: a program that does both at that moment stands still for
//! ever. And an agent that the recorder has placed has no dynamic linker to make the room. Then the word is one of the thread library's own, `sysinfo` in the
//! thread's control block: glibc and musl alike have it, and use it on other processors only. No thread library clears it for a new thread: musl copies it
//! from the thread's creator, glibc leaves what was there in the stack of a thread that has ended, perhaps of an earlier session. So it holds no address but
//! a number, the state's index plus one, and the state has a note of its owner, the thread id that the library keeps in the same block; the hooks compare.
//!
//! Unsafe because the word is at an offset from the thread pointer, and what it stands for becomes a reference.

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

/// Where a thread's word is, counted from its thread pointer.
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

/// Where a thread's word is, counted from its thread pointer.
#[cfg(feature = "attached")]
pub fn offset() -> u64 {
    calltap_abi::SYSINFO
}

/// Where the thread library has the thread's id, counted from its thread pointer.
#[cfg(feature = "attached")]
pub static OWNER_AT: AtomicU64 = AtomicU64::new(0);

/// The thread's id, as far as its library knows it; else 0.
#[cfg(feature = "attached")]
fn library_id() -> u32 {
    let id: u32;
    // SAFETY: reads four bytes of this thread's control block: the recorder has looked at that place before it let the session be joined.
    unsafe {
        asm!("mov {0:e}, dword ptr fs:[{1}]", out(reg) id, in(reg) OWNER_AT.load(Relaxed),
             options(nostack, readonly, preserves_flags));
    }
    id
}

#[cfg(feature = "attached")]
fn own_id() -> u32 {
    // A thread of Go's runtime that has only begun, one of musl's at its end: its hooks take the slow way.
    match library_id() {
        0 => sys::tid(),
        id => id,
    }
}

/// Do hooks find the calling thread's state, once it has one?
pub fn is_found() -> bool {
    #[cfg(feature = "attached")]
    return library_id() != 0;
    #[cfg(not(feature = "attached"))]
    true
}

/// What the calling thread's word is.
pub fn get() -> u64 {
    let word: u64;
    // SAFETY: reads this thread's own word, which exists in every thread.
    unsafe {
        asm!("mov {0}, qword ptr fs:[{1}]", out(reg) word, in(reg) offset(),
             options(nostack, readonly, preserves_flags));
    }
    word
}

/// The state that a word of the calling thread stands for.
#[cfg(not(feature = "attached"))]
pub fn state(_: Session, word: u64) -> Option<&'static Thread> {
    // SAFETY: only `set` stores words, addresses of elements of Private::threads, which stay mapped as long as any thread can see one.
    (word != 0).then(|| unsafe { &*(word as *const Thread) })
}

/// The state that a word of the calling thread stands for, if it is this thread's.
#[cfg(feature = "attached")]
pub fn state(session: Session, word: u64) -> Option<&'static Thread> {
    let thread = session.private().threads.get(usize::try_from(word.checked_sub(1)?).ok()?)?;
    (thread.owner.load(Relaxed) == own_id()).then_some(thread)
}

/// The calling thread's state, if it has one.
pub fn thread(session: Session) -> Option<&'static Thread> {
    state(session, get())
}

/// The index of the state that a word stands for, whichever thread's that is: also of one that a forked child has of its parent.
#[cfg(not(feature = "attached"))]
pub fn index(session: Session, word: u64) -> Option<usize> {
    session.index_of(word)
}

/// The index of the state that a word stands for, whichever thread's that is: also of one that a forked child has of its parent.
#[cfg(feature = "attached")]
pub fn index(_: Session, word: u64) -> Option<usize> {
    usize::try_from(word.checked_sub(1)?).ok()
}

/// The first word of the calling thread's control block: the pointer to it, where a C library has made the thread.
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the thread pointer of a thread that is registered leads to memory: to its control block, or into `runtime.m` of Go's runtime, where the word is
    // one of `tls`. Any value will do.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// The word for the state with an index.
#[cfg(not(feature = "attached"))]
fn word(thread: &'static Thread, _: u32) -> u64 {
    core::ptr::from_ref(thread) as u64
}

/// The word for the state with an index.
#[cfg(feature = "attached")]
fn word(_: &'static Thread, index: u32) -> u64 {
    u64::from(index) + 1
}

/// What the hooks add to a word (times the size of a state): where the states are, less one.
#[cfg(feature = "attached")]
pub static STATES: AtomicU64 = AtomicU64::new(0);

/// Tells the hooks of a session that will be joined.
#[cfg(feature = "attached")]
pub fn prepare(states: usize, owner_at: u64) {
    OWNER_AT.store(owner_at, Relaxed);
    STATES.store((states - size_of::<Thread>()) as u64, Relaxed);
}

/// Writes down whose the state is.
pub fn sign(_thread: &Thread) {
    #[cfg(feature = "attached")]
    _thread.owner.store(own_id(), Relaxed);
}

/// Gives the calling thread its state, unless a signal handler has done so since its word was `seen`.
pub fn set(seen: u64, thread: &'static Thread, index: u32) -> bool {
    let found: u64;
    // SAFETY: one instruction on this thread's own word. Not `lock`ed: no other thread writes it.
    unsafe {
        asm!("cmpxchg qword ptr fs:[{0}], {1}", in(reg) offset(), in(reg) word(thread, index),
             inout("rax") seen => found, options(nostack));
    }
    found == seen
}

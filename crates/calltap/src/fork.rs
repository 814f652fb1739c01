//! Fork: in the child everything that was registered goes on working.
//!
//! The child has a copy of text, gates and combinations. A fork waits for the thread that is changing them, so that the copy is whole; the child has one thread, so
//! the counts of the others are forgotten. A callback may fork, too: it cannot wait, as another thread may be waiting for the callback, and if a thread is in the middle of a
//! change then, the child goes on tracing as it is and refuses changes.
//!
//! Unsafe because pthread_atfork is C, and because the lock is held from one of its handlers to the next.
#![allow(unsafe_code)]

use crate::control::{self, BROKEN, Lock};
use crate::{grace, trampoline};
use std::cell::UnsafeCell;
use std::sync::Once;
use std::sync::atomic::Ordering::*;

/// The lock, while its owner forks.
struct Held(UnsafeCell<Option<Lock>>);

// SAFETY: used by the thread that holds the lock only.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// From now on forks are seen. (vfork and posix_spawn share memory with their parent and need nothing; a raw clone without it is not seen.)
pub fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: three functions without arguments.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(parent), Some(child));
    });
}

extern "C" fn before() {
    if trampoline::is_outside() {
        let lock = control::lock();
        // SAFETY: this thread holds the lock.
        unsafe { *HELD.0.get() = Some(lock) };
    }
}

extern "C" fn parent() {
    if trampoline::is_outside() {
        // SAFETY: this thread holds the lock, since `before`.
        drop(unsafe { (*HELD.0.get()).take() });
    }
}

extern "C" fn child() {
    grace::forget_threads();
    trampoline::enter_again();
    parent();
    if !control::is_free() {
        BROKEN.store(true, SeqCst);
    }
}

//! The lock for all changes. A fork takes it as well, so that registered ops keep working in the
//! child.
//!
//! The child has a copy of text, gates and combinations. A fork waits for the thread that is
//! changing them, so that the copy is whole; the child has one thread, so the counts of the others
//! are reset. A callback may fork, too: it cannot wait, as another thread may be waiting for the
//! callback. If a thread is in the middle of a change then, the child continues to trace as it is
//! and refuses changes.
//!
//! Uses `unsafe` because pthread_atfork is C, and because the lock is held from one of its handlers
//! to the next.
#![allow(unsafe_code)]

use crate::control::Control;
use crate::error::Error;
use crate::grace;
use crate::trampoline::{self, InLibrary, MAX_OPS};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static CONTROL: Mutex<Option<Control>> = Mutex::new(None);

/// Bits of ops whose registration was dropped inside a callback: the next change unregisters them.
pub(crate) static ABANDONED: AtomicU32 = AtomicU32::new(0);

/// Whether this process was forked while another thread held the lock.
static BROKEN: AtomicBool = AtomicBool::new(false);

type Lock = MutexGuard<'static, Option<Control>>;

/// Waits for the lock.
fn lock() -> Lock {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the lock is free.
fn is_free() -> bool {
    !matches!(CONTROL.try_lock(), Err(std::sync::TryLockError::WouldBlock))
}

/// Runs `work` with the lock. Calls of the thread meanwhile are not reported.
pub(crate) fn with<R>(work: impl FnOnce(&mut Control) -> Result<R, Error>) -> Result<R, Error> {
    let _inside = InLibrary::enter().ok_or(Error::InCallback)?;
    if BROKEN.load(SeqCst) {
        return Err(Error::Forked);
    }
    let mut abandoned = Vec::new();
    let result = {
        watch();
        let mut lock = lock();
        let control = lock.get_or_insert_default();
        let prepared = control.prepare();
        let bits = ABANDONED.swap(0, SeqCst);
        abandoned.extend((0..MAX_OPS).filter(|n| bits & 1 << n != 0).map(|n| control.remove(n).ok()));
        prepared.and_then(|()| work(control))
    };
    // A callback's data may run any code when it is dropped.
    drop(abandoned);
    result
}

/// The lock, held by its owner during a fork.
struct LockOfFork(UnsafeCell<Option<Lock>>);

// SAFETY: only the thread that holds the lock uses it.
unsafe impl Sync for LockOfFork {}

static HELD: LockOfFork = LockOfFork(UnsafeCell::new(None));

/// Watches forks from now on. vfork and posix_spawn share memory with their parent and need
/// nothing; a raw clone without shared memory is not noticed.
fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: three functions without arguments.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(parent), Some(child));
    });
}

extern "C" fn before() {
    if trampoline::is_outside() {
        let lock = lock();
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
    if !is_free() {
        BROKEN.store(true, SeqCst);
    }
}

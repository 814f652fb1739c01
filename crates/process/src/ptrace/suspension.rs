//! Ctrl-Z at a calltap that holds threads of another process: it takes effect when they run again.
//! Otherwise these would stand still until calltap is continued.
//!
//! Unsafe because the function that is called for a signal may do little, which the compiler does
//! not check.
#![allow(unsafe_code)]

use crate::status::Status;
use signal_hook::low_level::{emulate_default_handler, raise, register};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

/// Signals of a terminal that suspend a process.
const SUSPEND: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Number of threads of calltap that hold others.
static HOLDING: AtomicUsize = AtomicUsize::new(0);
/// The signal that is to take effect; 0 if there is none.
static DEFERRED: AtomicI32 = AtomicI32::new(0);

/// A guard of a thread that holds others: calltap is not suspended meanwhile.
#[derive(Debug)]
pub(super) struct Holding(());

impl Holding {
    /// Defers suspension, unless calltap ignores it.
    pub(super) fn now() -> Holding {
        static BEGUN: Once = Once::new();
        BEGUN.call_once(|| {
            let ignored = Status::own().ok().and_then(|status| status.signals("SigIgn")).unwrap_or(0);
            for signal in SUSPEND.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
                // SAFETY: `suspend` uses atomics, and a function that may be called for signals.
                // Without a handler, calltap is suspended at once.
                let _ = unsafe { register(signal, move || suspend(signal)) };
            }
        });
        HOLDING.fetch_add(1, AcqRel);
        Holding(())
    }
}

/// Suspends calltap, or notes that it is to be suspended.
fn suspend(signal: i32) {
    if HOLDING.load(Acquire) > 0 {
        DEFERRED.store(signal, Release);
    } else {
        let _ = emulate_default_handler(signal);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if HOLDING.fetch_sub(1, AcqRel) == 1 {
            let deferred = DEFERRED.swap(0, AcqRel);
            let _ = (deferred != 0).then(|| raise(deferred));
        }
    }
}

//! A callback in the form in which the trampoline calls it.
//!
//! Uses `unsafe` because the trampoline passes pointers, and because a pointer is declared usable
//! by all threads.
#![allow(unsafe_code)]

use crate::call::Call;
use crate::trampoline::{Callee, Regs};
use std::ptr;

/// A callee whose data may be used by every thread.
#[derive(Clone, Copy)]
pub(crate) struct SendCallee(Callee);

// SAFETY: made only of a callback that is Send and Sync (`new`).
unsafe impl Send for SendCallee {}

impl SendCallee {
    /// Creates a callee of a boxed callback, which has to live as long as the callee is used.
    pub(crate) fn new<F: Fn(&Call) + Send + Sync + 'static>(callback: &F) -> SendCallee {
        SendCallee(Callee { run: run::<F>, data: ptr::from_ref(callback).cast() })
    }

    pub(crate) fn get(&self) -> Callee {
        self.0
    }
}

/// Runs the callback for the trampoline. A panic ends the program, with its message: there is no
/// way to unwind out of another function's first instruction.
unsafe extern "C" fn run<F: Fn(&Call)>(callback: *const (), regs: *const Regs) {
    // SAFETY: `SendCallee::new` paired this function with a callback of this type, which lives
    // until a grace period after it was unregistered; the registers are on the stack of the
    // trampoline that calls this.
    let (callback, regs) = unsafe { (&*callback.cast::<F>(), &*regs) };
    callback(&Call(regs));
}

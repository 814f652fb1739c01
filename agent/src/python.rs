//! Python functions of CPython: what the hooks of its evaluator do.
//!
//! Up to CPython 3.10 the evaluator is called for every call of a Python function, and for every resumption of a generator: its hooks record them
//! ([`frames`]). From 3.11 on it runs the Python functions that a Python function calls itself, so its entry is only where a thread is given what
//! tells the agent of calls: a [profile function](profile), from 3.12 on [callbacks](monitoring) of `sys.monitoring`.
//!
//! An evaluator runs with the interpreter's lock held, which protects all that is read here.
//!
//! Unsafe because it reads the interpreter's structures, at the offsets that its version has them.

mod frames;
mod functions;
#[cfg(not(feature = "placed"))]
mod gate;
mod layout;
#[cfg(not(feature = "placed"))]
mod monitoring;
mod names;
#[cfg(not(feature = "placed"))]
mod profile;
mod scopes;
mod text;

use crate::state::Session;
use calltap_abi::python::program;
use calltap_abi::values::Program;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// An 8-byte word of the interpreter.
fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: the interpreter has an aligned word there: callers add offsets of its version to addresses of live objects that it has passed
    // in, or that such an object leads to. It lives while the thread holds the interpreter's lock and the frame is on its stack.
    unsafe { &*(address as *const AtomicU64) }
}

/// A 4-byte word of the interpreter.
fn half(address: u64) -> &'static AtomicU32 {
    // SAFETY: as `word`.
    unsafe { &*(address as *const AtomicU32) }
}

/// A byte of the interpreter.
fn byte(address: u64) -> &'static AtomicU8 {
    // SAFETY: as `word`.
    unsafe { &*(address as *const AtomicU8) }
}

/// A word of the evaluator's program; 0 if it has none there.
fn word_of(program: &[AtomicU64], place: usize) -> u64 {
    program.get(place).map_or(0, |word| word.load(Relaxed))
}

/// The evaluator is called with these arguments; `slot` is where its return address is, `stub` where the hook returns to in its stub. 1: its return is
/// recorded, too.
pub extern "C" fn enter(first: u64, second: u64, third: u64, slot: u64, stub: u64) -> u8 {
    let Some(session) = Session::get().filter(|session| session.traces_python()) else {
        return 0;
    };
    let Some(program) = session.program_of(stub) else { return 0 };
    match word_of(program, program::VERSION) {
        // What gives the interpreter's lock away has no arguments.
        version if version & program::WAITS != 0 => {
            register(session, program, 0, 0);
            0
        }
        8 => u8::from(frames::enter(session, first, slot, stub)),
        9 | 10 => u8::from(frames::enter(session, second, slot, stub)),
        _ => {
            register(session, program, first, third);
            0
        }
    }
}

/// Sees to it that the interpreter calls the agent. `state`: the thread's; 0: it is not known.
#[cfg(not(feature = "placed"))]
fn register(session: Session, program: &Program, state: u64, thrown: u64) {
    match word_of(program, program::VERSION) & !program::WAITS {
        11 => profile::enter(session, word_of(program, program::CURRENT), state),
        12 | 13 => monitoring::enter(session, program, state, thrown as u32 != 0),
        _ => {}
    }
}

/// A placed agent may be unmapped, and the interpreter would still lead to it.
#[cfg(feature = "placed")]
fn register(session: Session, _: &Program, _: u64, _: u64) {
    session.python().header.placed.store(1, Relaxed);
}

/// An evaluator returns whose entry was recorded.
pub extern "C" fn returns(slot: u64) {
    if let Some(session) = Session::get() {
        frames::leave(session, slot);
    }
}

/// An evaluator is left whose exits are rewritten; `stub` is an address in its stub.
pub extern "C" fn leave(slot: u64, stub: u64) {
    if let Some(session) = Session::get().filter(|_| frames::unmark(slot, stub)) {
        frames::leave(session, slot);
    }
}

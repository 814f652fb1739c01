//! Python functions of CPython: the work of its evaluator's hooks.
//!
//! Up to CPython 3.10 the evaluator is called for every call of a Python function, and for every
//! resumption of a generator: its hooks record them ([`frames`]). From 3.11 on one evaluator also
//! runs the Python functions that its function calls. There the hooks only register a function that
//! tells the agent of calls: a [profile function](profile) for each thread, or from 3.12 on
//! [callbacks](monitoring) of `sys.monitoring`.
//!
//! An evaluator runs with the interpreter's lock held, which protects all that is read here.
//!
//! Uses `unsafe` because it reads the interpreter's structures, at the offsets of its version.

mod arguments;
mod coroutines;
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

/// Returns an 8-byte word of the interpreter.
fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: the interpreter has an aligned word there: callers add offsets of its version to
    // addresses of live objects that it has passed in, or to which such an object leads. It lives
    // while the thread holds the interpreter's lock and the frame is on its stack.
    unsafe { &*(address as *const AtomicU64) }
}

/// Returns a 4-byte word of the interpreter.
fn half(address: u64) -> &'static AtomicU32 {
    // SAFETY: as `word`.
    unsafe { &*(address as *const AtomicU32) }
}

/// Returns a byte of the interpreter.
fn byte(address: u64) -> &'static AtomicU8 {
    // SAFETY: as `word`.
    unsafe { &*(address as *const AtomicU8) }
}

/// Reads an 8-byte word of the interpreter.
fn word_at(address: u64) -> u64 {
    word(address).load(Relaxed)
}

/// Reads a 4-byte word of the interpreter.
fn half_at(address: u64) -> u32 {
    half(address).load(Relaxed)
}

/// Returns a word of the evaluator's program; 0 if the program is shorter.
fn word_of(program: &[AtomicU64], place: usize) -> u64 {
    program.get(place).map_or(0, |word| word.load(Relaxed))
}

/// Called at the entry of the evaluator, with its arguments. `slot` is the address of its return
/// address, `stub` the hook's return address in its stub. Returns 1 if the return is to be
/// recorded, too.
pub extern "C" fn enter(first: u64, second: u64, third: u64, slot: u64, stub: u64) -> u8 {
    let Some(session) = Session::get().filter(|session| session.traces_python()) else {
        return 0;
    };
    let Some(program) = session.program_of(stub) else { return 0 };
    match word_of(program, program::VERSION) {
        // The function that gives up the interpreter's lock has no arguments.
        version if version & program::WAITS != 0 => {
            register(session, program, 0, 0, 0);
            0
        }
        8 => u8::from(frames::enter(session, 8, first, slot, stub)),
        version @ (9 | 10) => u8::from(frames::enter(session, version, second, slot, stub)),
        _ => {
            register(session, program, first, second, third);
            0
        }
    }
}

/// Makes the interpreter call the agent. `state`: the thread state; 0: not known. `frame`: the
/// frame that is entered.
#[cfg(not(feature = "placed"))]
fn register(session: Session, program: &Program, state: u64, frame: u64, thrown: u64) {
    let is_thrown = thrown as u32 != 0;
    match word_of(program, program::VERSION) & !program::WAITS {
        11 => {
            profile::enter(session, word_of(program, program::CURRENT), state);
            if frame != 0 && !is_thrown {
                profile::expect(session, frame);
            }
        }
        12 | 13 => monitoring::enter(session, program, state, is_thrown),
        _ => {}
    }
}

/// Only notes the omission: a placed agent may be unmapped, and the interpreter would still call
/// it.
#[cfg(feature = "placed")]
fn register(session: Session, _: &Program, _: u64, _: u64, _: u64) {
    session.python().header.placed.store(1, Relaxed);
}

/// Called when an evaluator returns whose entry was recorded.
pub extern "C" fn returns(slot: u64) {
    if let Some(session) = Session::get() {
        frames::leave(session, slot);
    }
}

/// Called when an evaluator returns whose exits are rewritten; `stub` is an address in its stub.
pub extern "C" fn leave(slot: u64, stub: u64) {
    if let Some(session) = Session::get().filter(|_| frames::unmark(slot, stub)) {
        frames::leave(session, slot);
    }
}

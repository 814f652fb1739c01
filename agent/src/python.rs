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
//! Uses `unsafe` because the hooks pass the interpreter's structures as numbers, which become
//! [places](Place) here.

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
mod place;
#[cfg(not(feature = "placed"))]
mod profile;
mod scopes;
mod text;

use crate::state::Session;
use calltap_abi::python::program;
use calltap_abi::values::Program;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use place::Place;

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
        version @ 8..=10 => {
            // SAFETY: from 3.9 on the frame is the second argument. The thread holds the
            // interpreter's lock, and the evaluator's caller a reference to the frame.
            let frame = unsafe { Place::new(if version == 8 { first } else { second }) };
            u8::from(frames::enter(session, version, frame, slot, stub))
        }
        _ => {
            register(session, program, first, second, third);
            0
        }
    }
}

/// Makes the interpreter call the agent. `state`: the thread state; 0: not known. `frame`: the
/// frame that is entered; 0: none.
#[cfg(not(feature = "placed"))]
fn register(session: Session, program: &Program, state: u64, frame: u64, thrown: u64) {
    let is_thrown = thrown as u32 != 0;
    let [state, frame] = [state, frame].map(|address| {
        // SAFETY: from 3.11 on the evaluator gets a thread state and a frame, which live while it
        // runs. The thread holds the interpreter's lock.
        (address != 0).then(|| unsafe { Place::new(address) })
    });
    match word_of(program, program::VERSION) & !program::WAITS {
        11 => {
            // SAFETY: a variable of the interpreter, which stays.
            let current = unsafe { Place::new(word_of(program, program::CURRENT)) };
            profile::enter(session, current, state);
            if let Some(frame) = frame.filter(|_| !is_thrown) {
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

//! The profile function of a thread of CPython 3.11, which records the entries and returns of its
//! functions.
//!
//! The evaluator's entry hook calls [`enter`] with the evaluator's thread state. The thread holds
//! the interpreter's lock there, and only it changes the fields that [`enter`] writes, which
//! `PyEval_SetProfile(profile, NULL)` writes as well. The interpreter then calls [`profile`], also
//! with the lock held, when a Python function is entered and when it is left by a return, a yield
//! or an exception.
//!
//! When the session has ended, each thread removes its profile function at its next call. A thread
//! that calls nothing keeps it; the agent stays loaded, so it still leads to code. The recorder
//! closes the [gate](calltap_python_gate) while all threads are stopped and none is in the agent's
//! code: later calls use nothing of the session.
//!
//! An event's slot is the address of the evaluator's `_PyCFrame`. It lies in the evaluator's stack
//! frame: below the return addresses of the evaluator and of its callers, above those of its
//! callees. Python functions that one evaluator runs inside each other share it, and are told apart
//! by the order of their events.
//!
//! Uses `unsafe` because the interpreter passes its structures to [`profile`] as numbers.

use super::arguments;
use super::coroutines::{self, Frames};
use super::functions::{function, stub_of};
use super::gate::calltap_python_gate;
use super::layout::V3_11;
use super::place::Place;
use crate::record::record_at;
use crate::register::registered;
use crate::state::Session;
use calltap_abi::event::code;
use calltap_abi::python::{Entry, coroutine, state};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

/// Events of a profile function: a function is entered, or left.
const CALL: i32 = 0;
const RETURN: i32 = 3;

// Offsets in PyThreadState.
const TRACING: u64 = 44;
const CFRAME: u64 = 56;
const PROFILE_FUNCTION: u64 = 64;
const PROFILE_OBJECT: u64 = 80;
// Offset in PyFrameObject.
const FRAME: u64 = 24;
// Offsets in _PyInterpreterFrame. The first byte of a _PyCFrame is its `use_tracing`.
const GLOBALS: u64 = 8;
const CODE: u64 = 32;
const IS_ENTRY: u64 = 68;
const BELOW: u64 = 48;
// Offsets in _PyCFrame: the frame that its evaluator runs, and the evaluator outside.
const RUNNING: u64 = 8;
const OUTER: u64 = 16;
/// Evaluators that are searched for a frame.
const EVALUATORS: usize = 4;
/// The instructions that call the profile function when a function is entered, and their size.
const RESUME: [u8; 2] = [150, 151];
const INSTRUCTION_SIZE: u64 = 2;
/// The instruction by which a coroutine waits.
const YIELD_VALUE: u8 = 86;
/// Value of `use_tracing` while there is a trace or profile function.
const TRACED: u8 = 255;

/// Address at which the interpreter keeps the current thread state; 0 until [`enter`] has checked
/// one.
static CURRENT: AtomicU64 = AtomicU64::new(0);

/// Returns the address of the profile function.
fn own() -> u64 {
    profile as *const () as u64
}

/// Called when the evaluator is entered with a thread state. `current`: place at which the
/// interpreter keeps the state of the thread that holds its lock.
pub fn enter(session: Session, current: Place, state: Option<Place>) {
    // There is no state while no thread holds the lock.
    let Some(state) = state.or_else(|| current.follow(0)) else { return };
    let header = &session.python().header;
    let found = state.word(PROFILE_FUNCTION);
    if found == own() {
        // The function may be left from the previous session.
        calltap_python_gate.store(1, Relaxed);
        return;
    }
    let frame = state.follow(CFRAME).filter(|frame| frame.address().is_multiple_of(8));
    let Some(frame) = frame.filter(|_| current.word(0) == state.address()) else {
        header.unknown.fetch_add(1, Relaxed);
        return;
    };
    if found != 0 || state.word(PROFILE_OBJECT) != 0 {
        header.occupied.fetch_add(1, Relaxed);
        return;
    }
    if state.half(TRACING) != 0 {
        // A trace function runs: the next entry of the evaluator will do.
        return;
    }
    CURRENT.store(current.address(), Relaxed);
    calltap_python_gate.store(1, Relaxed);
    state.store_word(PROFILE_FUNCTION, own());
    // This is the _PyCFrame of the running evaluator, or the thread state's own.
    frame.store_byte(0, TRACED);
}

/// The profile function (`Py_tracefunc`).
extern "C" fn profile(_object: u64, frame: u64, what: i32, argument: u64) -> i32 {
    // SAFETY: `enter` has noted the variable before the interpreter got this function, and the
    // interpreter passes a frame object, which its evaluator holds. The thread holds the lock.
    let (current, frame) = unsafe { (Place::new(CURRENT.load(Relaxed)), Place::new(frame)) };
    let state = current.target(0);
    let is_open = calltap_python_gate.load(Relaxed) != 0;
    let session = Session::get().filter(|session| is_open && session.traces_python());
    if let Some(session) = session {
        announce(session, state);
    }
    match session {
        // Same as `PyEval_SetProfile(NULL, NULL)`, which a profile function may call: the
        // interpreter reads the field again afterwards.
        None => state.store_word(PROFILE_FUNCTION, 0),
        Some(session) if what == CALL || what == RETURN => {
            trace(session, state, frame, what == CALL, argument);
        }
        Some(_) => {}
    }
    0
}

/// Called when the evaluator is entered for a frame. Notes the frame of a coroutine that is resumed
/// without a call of the profile function, for [`announce`]: if an awaited coroutine has handled an
/// exception that was thrown into both, the interpreter resumes the awaiting one behind the
/// instruction that calls the function.
pub fn expect(session: Session, frame: Place) {
    if session.python().header.coroutines.load(Relaxed) == 0 || !coroutines::V3_11.is_generator(frame) {
        return;
    }
    let next = Frames::instruction(frame).byte(INSTRUCTION_SIZE);
    let is_silent = coroutines::V3_11.has_begun(frame) && !RESUME.contains(&next);
    if let Some(thread) = registered(session).filter(|_| is_silent) {
        thread.frame.store(frame.address(), Relaxed);
    }
}

/// Records the entry of the coroutine that [`expect`] has noted, at the first event behind it.
fn announce(session: Session, state: Place) {
    let Some(thread) = registered(session) else { return };
    let noted = thread.frame.load(Relaxed);
    if noted == 0 {
        return;
    }
    thread.frame.store(0, Relaxed);
    // Only a frame that runs is known to exist still.
    let Some((frame, slot)) = running_frame(state, noted) else { return };
    let entry = function(session, &V3_11, frame.target(CODE), true, || frame.follow(GLOBALS));
    let Some(entry) = entry.filter(|entry| entry.state.load(Acquire) == state::ON) else { return };
    if session.python().identifies(entry) {
        let stub = stub_of(entry);
        tell(session, entry, frame, (stub, slot));
        record_at(session, stub | code::ENTRY, 0, slot);
    }
}

/// Finds the frame of this thread that has an address, and returns it if it runs, with the address
/// of its evaluator's `_PyCFrame`.
fn running_frame(state: Place, wanted: u64) -> Option<(Place, u64)> {
    let mut evaluator = state.target(CFRAME);
    for _ in 0..EVALUATORS {
        let mut running = evaluator.follow(RUNNING);
        while let Some(frame) = running {
            if frame.address() == wanted {
                return Some((frame, evaluator.address()));
            }
            running = if frame.byte(IS_ENTRY) == 0 { frame.follow(BELOW) } else { None };
        }
        evaluator = evaluator.follow(OUTER)?;
    }
    None
}

/// Records that the function of a frame object is entered or left. `result`: the result of a
/// return; 0 if an exception leaves the function.
fn trace(session: Session, state: Place, object: Place, enters: bool, result: u64) {
    let frame = object.target(FRAME);
    let globals = || frame.follow(GLOBALS);
    let Some(entry) = function(session, &V3_11, frame.target(CODE), enters, globals) else { return };
    if entry.state.load(Acquire) != state::ON {
        return;
    }
    let slot = state.word(CFRAME);
    let code = match (enters, frame.byte(IS_ENTRY)) {
        (false, _) => code::EXIT,
        (true, 0) => code::NESTED_ENTRY,
        (true, _) => code::ENTRY,
    };
    let stub = stub_of(entry);
    if enters {
        tell(session, entry, frame, (stub, slot));
    } else if session.python().identifies(entry) {
        coroutines::leave(session, stub, slot, state_of(frame, result));
    }
    record_at(session, stub | code, 0, slot);
}

/// Writes which coroutine is entered, and its arguments.
fn tell(session: Session, entry: &Entry, frame: Place, event: (u32, u64)) {
    let run = session.python().identifies(entry).then(|| coroutines::V3_11.run(frame)).flatten();
    arguments::enter(session, &V3_11, (entry, run, Frames::locals(frame)), event);
}

/// Returns the state of a coroutine that is left.
fn state_of(frame: Place, result: u64) -> u8 {
    match (result, Frames::instruction(frame).byte(0)) {
        (0, _) => coroutine::RAISED,
        (_, YIELD_VALUE) => coroutine::WAITS,
        _ => coroutine::RETURNED,
    }
}

//! Calls of Python functions up to CPython 3.10: each is a call of the evaluator, which gets the
//! frame as an argument.
//!
//! The number of the function's site is kept in the shadow stack, below the return address, for the
//! return. Where the evaluator's exits are rewritten, the shadow-stack slot of the return address
//! holds a mark while the call is open, as for other functions. The frame of a coroutine is kept
//! below the site, where the evaluator saves another register.
//!
//! Uses `unsafe` because it reads the return address, and because a frame that was kept becomes a
//! place again.

use super::arguments;
use super::coroutines::{self, FrameObjects};
use super::functions::{function, stub_of};
use super::layout::FRAMES;
use super::place::Place;
use crate::record::record_at;
use crate::shadow;
use crate::state::{STUBS, Session};
use calltap_abi::event::code;
use calltap_abi::python::state;
use calltap_abi::stub;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

// Offsets in PyFrameObject.
const CODE: u64 = 32;
const GLOBALS: u64 = 48;

/// Version of the interpreter: 8 for CPython 3.8.
static VERSION: AtomicU64 = AtomicU64::new(0);

/// Returns the address below the return address, where the evaluator saves rbp: no other call keeps
/// a value in its shadow-stack slot.
fn below(slot: u64) -> u64 {
    slot.wrapping_sub(8)
}

/// Called when the evaluator is entered for a frame. Returns whether the call is recorded, and its
/// return has to be. `version`: 8 for CPython 3.8. `stub`: the hook's return address.
#[inline(never)]
pub fn enter(session: Session, version: u64, frame: Place, slot: u64, stub: u64) -> bool {
    let is_recorded = record(session, version, frame, slot);
    if stub as usize % stub::SIZE == stub::AFTER_CALL {
        if is_recorded {
            return shadow::mark(slot, stub);
        }
        // A call that never returned may have left a mark.
        shadow::unmark(slot, stub);
    }
    is_recorded
}

/// Whether the call in a slot was recorded, which returns through a rewritten exit. `stub`: the
/// return address of the exit's hook.
pub fn unmark(slot: u64, stub: u64) -> bool {
    shadow::unmark(slot, stub.wrapping_sub((stub::AFTER_LEAVE - stub::AFTER_CALL) as u64))
}

/// Records the entry of the function of a frame. Returns whether its return has to be recorded.
fn record(session: Session, version: u64, frame: Place, slot: u64) -> bool {
    let globals = || frame.follow(GLOBALS);
    let Some(entry) = function(session, &FRAMES, frame.target(CODE), true, globals) else { return false };
    if entry.state.load(Acquire) != state::ON {
        return false;
    }
    let site = stub_of(entry);
    let offsets = FrameObjects::of(version);
    let run = if session.python().identifies(entry) { offsets.run(frame) } else { None };
    VERSION.store(version, Relaxed);
    // SAFETY: the evaluator's return address lies there.
    let back = unsafe { &*(slot as *const AtomicU64) }.load(Relaxed);
    if back.wrapping_sub(STUBS.load(Relaxed) as u64) < stub::REGION as u64 {
        // The evaluator was entered by a jump from a C function, with which it shares the return.
        record_at(session, site | code::TAIL_ENTRY, 0, slot);
        return false;
    }
    let left = if run.is_some() { frame.address() } else { 0 };
    if !(shadow::keep(below(slot), site.into()) && shadow::keep(below(below(slot)), left)) {
        return false;
    }
    arguments::enter(session, &FRAMES, (entry, run, offsets.locals(frame)), (site, slot));
    record_at(session, site | code::ENTRY, 0, slot)
}

/// Records the return of the call in a slot.
pub fn leave(session: Session, slot: u64) {
    if let Some(site) = shadow::kept(below(slot)) {
        if let Some(frame) = shadow::kept(below(below(slot))).filter(|frame| *frame != 0) {
            // SAFETY: the frame of a coroutine, which `record` has kept. The evaluator's caller
            // holds a reference to it, and the thread the interpreter's lock.
            let frame = unsafe { Place::new(frame) };
            let state = FrameObjects::of(VERSION.load(Relaxed)).state(frame);
            coroutines::leave(session, site as u32, slot, state);
        }
        record_at(session, site as u32 | code::EXIT, 0, slot);
    }
}

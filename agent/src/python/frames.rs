//! Calls of Python functions up to CPython 3.10: each is a call of the evaluator, which is given the frame.
//!
//! The number of the function's site is kept in the shadow stack, below the return address, for the return. Where the evaluator's exits are rewritten, the place of
//! the return address has a mark there while the call is open, as of other functions.

use super::functions::{function, stub_of};
use super::layout::FRAMES;
use super::word;
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

/// The word below the return address is where the evaluator saves rbp: no other call keeps anything in its shadow-stack slot.
fn below(slot: u64) -> u64 {
    slot.wrapping_sub(8)
}

/// The evaluator is called for a frame. True if that is recorded, and its return is to be. `stub`: where the hook returns to.
pub fn enter(session: Session, frame: u64, slot: u64, stub: u64) -> bool {
    let is_recorded = record(session, frame, slot);
    if stub as usize % stub::SIZE == stub::AFTER_CALL {
        if is_recorded {
            return shadow::mark(slot, stub);
        }
        // What may be left of a call that never returned.
        shadow::unmark(slot, stub);
    }
    is_recorded
}

/// Was the call in a slot recorded that is left through a rewritten exit? `stub`: where the exit's hook returns to.
pub fn unmark(slot: u64, stub: u64) -> bool {
    shadow::unmark(slot, stub.wrapping_sub((stub::AFTER_LEAVE - stub::AFTER_CALL) as u64))
}

fn record(session: Session, frame: u64, slot: u64) -> bool {
    let code_object = word(frame + CODE).load(Relaxed);
    let Some(entry) = function(session, &FRAMES, code_object, true, || word(frame + GLOBALS).load(Relaxed))
    else {
        return false;
    };
    if entry.state.load(Acquire) != state::ON {
        return false;
    }
    let site = stub_of(entry);
    // SAFETY: the evaluator's return address lies there.
    let back = unsafe { &*(slot as *const AtomicU64) }.load(Relaxed);
    if back.wrapping_sub(STUBS.load(Relaxed) as u64) < stub::REGION as u64 {
        // It was entered by a jump, from a function in C whose return is both's.
        record_at(session, site | code::TAIL_ENTRY, slot);
        return false;
    }
    shadow::keep(below(slot), site.into()) && record_at(session, site | code::ENTRY, slot)
}

/// It returns.
pub fn leave(session: Session, slot: u64) {
    if let Some(site) = shadow::kept(below(slot)) {
        record_at(session, site as u32 | code::EXIT, slot);
    }
}

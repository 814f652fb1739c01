//! Calls of Python functions: the profile function that a thread of CPython 3.11 gets, and what it makes of a frame.
//!
//! The evaluator's entry hook calls [`enter`] with the thread state that the evaluator is called with. The thread holds the interpreter's lock there,
//! and only it changes the fields that [`enter`] writes: they are the ones that `PyEval_SetProfile(profile, NULL)` writes. The interpreter then
//! calls [`profile`], also with the lock held, when a Python function is entered and when it is left: by a return, a yield or an exception.
//!
//! When the session is over, each thread that is called here takes its profile function away itself. A thread that calls nothing keeps it; the agent
//! stays loaded, so it leads to code that is there. The recorder closes the [gate](calltap_python_gate) while all threads are stopped and none
//! is in the agent's code: what is called behind that touches nothing of the session.
//!
//! An event's slot is the address of the evaluator's `_PyCFrame`. It lies in the evaluator's stack frame: below the return addresses of the
//! evaluator and of its callers, above those of what it calls. Python functions that one evaluator runs inside each other share it, and are told
//! apart by the order of their events.
//!
//! Unsafe because it reads and writes the interpreter's structures, at the offsets that CPython 3.11 has them.

mod names;

use crate::state::{STUBS, Session};
use crate::{record, register};
use calltap_abi::event::code;
use calltap_abi::python::{Entry, state};
use calltap_abi::stub;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Events of a profile function: a function is entered, or left.
const CALL: i32 = 0;
const RETURN: i32 = 3;

// Offsets in PyThreadState,
const TRACING: u64 = 44;
const CFRAME: u64 = 56;
const PROFILE_FUNCTION: u64 = 64;
const PROFILE_OBJECT: u64 = 80;
// PyFrameObject,
const FRAME: u64 = 24;
// and _PyInterpreterFrame. The first byte of a _PyCFrame is its `use_tracing`.
const GLOBALS: u64 = 8;
const CODE: u64 = 32;
const IS_ENTRY: u64 = 68;
/// What `use_tracing` is while there is a trace or profile function.
const TRACED: u8 = 255;

/// 1 while the session's memory may be touched by [`profile`]. It lies in the agent's own memory, as the session's is unmapped while threads run.
#[unsafe(no_mangle)]
pub static calltap_python_gate: AtomicU64 = AtomicU64::new(0);

/// Where the interpreter keeps the current thread state; 0 until a thread was found to be it.
static CURRENT: AtomicU64 = AtomicU64::new(0);

/// An 8-byte word of the interpreter.
fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: the interpreter has an aligned word there: callers add offsets of CPython 3.11 to addresses of live objects that it has passed
    // in, or that such an object leads to. It lives while the thread holds the interpreter's lock and the frame is on its stack.
    unsafe { &*(address as *const AtomicU64) }
}

fn byte(address: u64) -> u8 {
    // SAFETY: as `word`.
    unsafe { &*(address as *const AtomicU8) }.load(Relaxed)
}

fn own() -> u64 {
    profile as *const () as u64
}

/// The evaluator is called with a thread state. `current`: where the interpreter keeps the state of the thread that has its lock.
pub fn enter(session: Session, current: u64, state: u64) {
    if session.control().python.load(Relaxed) == 0 {
        return;
    }
    let header = &session.python().header;
    let found = word(state + PROFILE_FUNCTION).load(Relaxed);
    if found == own() {
        // Perhaps of the session before.
        calltap_python_gate.store(1, Relaxed);
        return;
    }
    let frame = word(state + CFRAME).load(Relaxed);
    if word(current).load(Relaxed) != state || frame == 0 || !frame.is_multiple_of(8) {
        header.unknown.fetch_add(1, Relaxed);
        return;
    }
    if found != 0 || word(state + PROFILE_OBJECT).load(Relaxed) != 0 {
        header.occupied.fetch_add(1, Relaxed);
        return;
    }
    // SAFETY: as `word`; the field has 4 bytes.
    let tracing = unsafe { &*((state + TRACING) as *const AtomicU32) }.load(Relaxed);
    if tracing != 0 {
        // A trace function runs: the next call of the evaluator behind it will do.
        return;
    }
    CURRENT.store(current, Relaxed);
    calltap_python_gate.store(1, Relaxed);
    word(state + PROFILE_FUNCTION).store(own(), Relaxed);
    // SAFETY: the _PyCFrame of the evaluator that is running, or the thread state's own; the field is its first byte.
    unsafe { &*(frame as *const AtomicU8) }.store(TRACED, Relaxed);
}

/// The profile function (`Py_tracefunc`).
extern "C" fn profile(_object: u64, frame: u64, what: i32, _argument: u64) -> i32 {
    let state = word(CURRENT.load(Relaxed)).load(Relaxed);
    let is_open = calltap_python_gate.load(Relaxed) != 0;
    let session = Session::get().filter(|session| is_open && session.control().python.load(Relaxed) != 0);
    match session {
        // As `PyEval_SetProfile(NULL, NULL)`, which a profile function may call: the interpreter looks at the field again when this returns.
        None => word(state + PROFILE_FUNCTION).store(0, Relaxed),
        Some(session) if what == CALL || what == RETURN => trace(session, state, frame, what == CALL),
        Some(_) => {}
    }
    0
}

fn trace(session: Session, state: u64, frame: u64, enters: bool) {
    let frame = word(frame + FRAME).load(Relaxed);
    let code_object = word(frame + CODE).load(Relaxed);
    let Some(process) = register::register_process(session) else { return };
    let table = session.python();
    if table.header.paused.load(Relaxed) != 0 {
        return;
    }
    let known = table.find(code_object, process);
    let Some(entry) = known.or_else(|| introduce(session, process, code_object, frame)) else {
        if enters {
            table.header.missed.fetch_add(1, Relaxed);
        }
        return;
    };
    if entry.state.load(Relaxed) != state::ON {
        return;
    }
    let slot = word(state + CFRAME).load(Relaxed);
    let code = match (enters, byte(frame + IS_ENTRY)) {
        (false, _) => code::EXIT,
        (true, 0) => code::NESTED_ENTRY,
        (true, _) => code::ENTRY,
    };
    let site = entry.site.load(Relaxed) as usize % stub::COUNT;
    record::record_at(session, (STUBS.load(Relaxed) + site * stub::SIZE) as u32 | code, slot);
}

/// Gives a code object that is called for the first time an entry.
#[cold]
#[inline(never)]
fn introduce(session: Session, process: u32, code_object: u64, frame: u64) -> Option<&'static Entry> {
    let table = session.python();
    let (index, entry) = table.take()?;
    entry.code.store(code_object, Relaxed);
    entry.process.store(process, Relaxed);
    names::write(entry, code_object, word(frame + GLOBALS).load(Relaxed));
    // A reference, which the lock protects: the object stays, and no other one comes to be at its address.
    // SAFETY: the count is the first word of every object.
    let references = unsafe { &*(code_object as *const AtomicI64) };
    references.store(references.load(Relaxed) + 1, Relaxed);
    // Only what may have events takes a number: those in a trace have no gaps.
    let state = match names::with_name(entry, |name| table.selects(name)) {
        true => {
            let next = &table.header.next_site;
            let more = |site| (site < stub::COUNT as u32).then_some(site + 1);
            entry.site.store(next.fetch_update(Relaxed, Relaxed, more).ok()?, Relaxed);
            state::ON
        }
        false => state::UNSELECTED,
    };
    table.publish(index, entry, state).then_some(entry)
}

//! Calls of Python functions from CPython 3.12 on: the agent is a tool of `sys.monitoring`, with C
//! functions of the agent as callbacks.
//!
//! [`enter`] runs at the entry of the evaluator. The thread holds the interpreter's lock there, and
//! is about to run Python code, so [`enter`] may call Python functions. Once per interpreter, it
//! takes a tool id and registers the callbacks, for all threads. The interpreter then calls them
//! when a function is entered, resumed or thrown into, and when it returns, yields or is left by an
//! exception. For a function that is not selected they return `DISABLE`, and the interpreter
//! removes the instrumentation from it.
//!
//! When the session has ended, the next callback gives the tool id back. The agent stays loaded, so
//! callbacks still lead to code. The recorder closes the [gate](calltap_python_gate) while all
//! threads are stopped and no agent's code is on their stacks.
//!
//! An event's slot lies in the stack frame of the evaluator. In 3.12 it is the address of the
//! evaluator's `_PyCFrame`, from 3.13 on the address of the entry frame that the evaluator pushes
//! first.
//!
//! Uses `unsafe` because it calls functions of the interpreter by their addresses, and because they
//! and the interpreter's calls pass structures as numbers.

use super::arguments;
use super::coroutines::{self, Frames};
use super::functions::{function, stub_of};
use super::gate::calltap_python_gate;
use super::layout::V3_12;
use super::place::Place;
use super::word_of;
use crate::record::record_at;
use crate::register;
use crate::state::Session;
use calltap_abi::event::code;
use calltap_abi::python::evaluators::Evaluators;
use calltap_abi::python::{coroutine, phase, program, state};
use calltap_abi::values::Program;
use core::ffi::{CStr, c_int};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

/// Offsets in the thread states of a version.
struct States {
    /// Offset of whether a callback or trace function runs.
    tracing: u64,
    /// Offset of the exception that is raised.
    exception: u64,
    /// Offset of the evaluator's `_PyCFrame`, which leads to the frame that it runs, or of that
    /// frame.
    frame: u64,
    /// Whether `frame` is the offset of a `_PyCFrame`.
    is_c: bool,
    /// Approximate offset of the names of tools in the interpreter. Releases of a version may
    /// differ.
    names: u64,
    /// Offsets about coroutines.
    coroutines: &'static Frames,
}

const V12: States = States {
    tracing: 44,
    exception: 96,
    frame: 56,
    is_c: true,
    names: 382872,
    coroutines: &coroutines::V3_12,
};
const V13: States = States {
    tracing: 60,
    exception: 112,
    frame: 72,
    is_c: false,
    names: 194264,
    coroutines: &coroutines::V3_13,
};
/// Offset of how far C may still recurse, in a thread state of CPython 3.13.
const RECURSION_LEFT: u64 = 52;
/// Offset of the interpreter in a thread state.
const INTERPRETER: u64 = 16;

// Offsets in _PyInterpreterFrame, and the owner of a frame that the evaluator puts below others.
const PREVIOUS: u64 = 8;
const GLOBALS: u64 = 24;
const OWNER: u64 = 70;
const OWNED_BY_EVALUATOR: u8 = 3;
/// Number of frames that are searched for that one.
const MAX_FRAMES: usize = 1 << 20;

// Events of `sys.monitoring`, of both versions.
const STARTS: [c_int; 2] = [1, 2];
const RETURNS: c_int = 4;
const YIELDS: c_int = 8;
const UNWOUND: c_int = 4096;
const THROWN: c_int = 8192;
const ALL: c_int = 1 | 2 | 4 | 8 | UNWOUND | THROWN;

/// Tool ids without a predefined use.
const TOOLS: [c_int; 2] = [4, 3];
/// Value instead of a tool id where all are taken.
const TAKEN: u64 = 7;
/// Maximum number of interpreters of a process that are known at once.
const INTERPRETERS: usize = 16;

/// Bytes before [`States::names`] that are searched for the names.
const BEFORE: u64 = 4096;
/// Bytes from there on that are searched; an interpreter's state has as many.
const BEHIND: u64 = 512;

/// An interpreter with callbacks.
struct InterpreterState {
    /// Address of the interpreter, with the tool id in the lowest bits.
    interpreter: AtomicU64,
    /// [`calltap_abi::python::Header::selection`] when its events were last restarted.
    selection: AtomicU32,
    /// Offset of the interpreter's pointer to the name of its tool; 0 if it was not found.
    name_at: AtomicU64,
    /// Address of that name.
    name: AtomicU64,
}

impl InterpreterState {
    const fn new() -> InterpreterState {
        InterpreterState {
            interpreter: AtomicU64::new(0),
            selection: AtomicU32::new(0),
            name_at: AtomicU64::new(0),
            name: AtomicU64::new(0),
        }
    }

    /// Whether the interpreter has the tool. `interpreter`: the one that is known here, if any is.
    /// An interpreter that is initialized again, or that is new, may have the address of a former
    /// one.
    fn has_tool(&self, interpreter: Place) -> bool {
        let at = self.name_at.load(Relaxed);
        self.interpreter.load(Relaxed) != 0 && (at == 0 || interpreter.word(at) == self.name.load(Relaxed))
    }

    /// Notes where the interpreter has the name of the tool.
    fn note_name(&self, interpreter: Place, tool: c_int) {
        let name = invoke(c"get_tool", c"i", tool, 0, 0);
        if name == 0 {
            return;
        }
        // The interpreter keeps it.
        release(name);
        let middle = version().names + 8 * tool as u64;
        let mut all = (middle - BEFORE..middle + BEHIND).step_by(8);
        let found = all.find(|at| interpreter.word(*at) == name);
        self.name.store(name, Relaxed);
        self.name_at.store(found.unwrap_or(0), Relaxed);
    }
}

/// The known interpreters.
static KNOWN: [InterpreterState; INTERPRETERS] = [const { InterpreterState::new() }; INTERPRETERS];
/// Addresses of the interpreter's functions and objects, by their places in the evaluator's
/// program.
static ADDRESSES: [AtomicU64; program::ADDRESSES] = [const { AtomicU64::new(0) }; program::ADDRESSES];
/// `sys.monitoring.DISABLE`.
static DISABLE: AtomicU64 = AtomicU64::new(0);
/// Not 0 while a thread registers callbacks: that may run Python code, which enters the evaluator.
static BUSY: AtomicU64 = AtomicU64::new(0);

/// PyMethodDef of a callback: name, function, flags, documentation.
type Definition = [AtomicU64; 4];
static DEFINITIONS: [Definition; 5] = [const { [const { AtomicU64::new(0) }; 4] }; 5];
/// METH_FASTCALL.
const FASTCALL: u64 = 0x80;

type Callback = extern "C" fn(u64, *const u64, isize) -> u64;
const CALLBACKS: [Callback; 5] = [started, returned, yielded, unwound, thrown];

/// Returns the address of an interpreter's function or object.
fn address(place: usize) -> u64 {
    word_of(&ADDRESSES, place)
}

/// Returns the offsets of the interpreter's version.
fn version() -> &'static States {
    if address(program::VERSION) & !program::WAITS == 12 { &V12 } else { &V13 }
}

/// Returns an attribute of `sys`, borrowed; 0 if there is none.
fn of_sys(name: &CStr) -> u64 {
    // SAFETY: `PySys_GetObject` of this interpreter; the thread holds its lock.
    let get: extern "C" fn(*const i8) -> u64 = unsafe { core::mem::transmute(address(program::SYS_OBJECT)) };
    get(name.as_ptr())
}

/// Calls a method of `sys.monitoring` with the arguments that the format names. Returns false if it
/// raised an exception, which is cleared.
fn call(name: &CStr, format: &CStr, tool: c_int, second: u64, third: u64) -> bool {
    let result = invoke(name, format, tool, second, third);
    if result != 0 {
        release(result);
    }
    result != 0
}

/// Calls a method like [`call`], and returns its result; 0 if it raised an exception.
fn invoke(name: &CStr, format: &CStr, tool: c_int, second: u64, third: u64) -> u64 {
    type Call = unsafe extern "C" fn(u64, *const i8, *const i8, ...) -> u64;
    let monitoring = of_sys(c"monitoring");
    if monitoring == 0 {
        return 0;
    }
    // SAFETY: `PyObject_CallMethod` and `PyErr_Clear` of this interpreter; the thread holds its
    // lock. The format names no more arguments than are passed.
    unsafe {
        let call: Call = core::mem::transmute(address(program::CALL_METHOD));
        let result = call(monitoring, name.as_ptr(), format.as_ptr(), tool, second, third);
        if result == 0 {
            let clear: extern "C" fn() = core::mem::transmute(address(program::CLEAR));
            clear();
        }
        result
    }
}

/// Releases a reference.
fn release(object: u64) {
    // SAFETY: `Py_DecRef` of this interpreter; the thread holds its lock.
    let release: extern "C" fn(u64) = unsafe { core::mem::transmute(address(program::RELEASE)) };
    release(object);
}

/// Returns the place of an interpreter among the known ones, or a free place.
fn place(interpreter: u64) -> Option<&'static InterpreterState> {
    let has = |wanted: u64| KNOWN.iter().find(|known| known.interpreter.load(Relaxed) & !TAKEN == wanted);
    has(interpreter).or_else(|| has(0))
}

/// Called when the evaluator is entered with a thread state, or without one when a thread is about
/// to give up the interpreter's lock. `thrown`: the evaluator was entered to raise an exception.
pub fn enter(session: Session, program: &Program, state: Option<Place>, thrown: bool) {
    let state = match state {
        None => current(program),
        Some(state) => {
            if let Some(known) = evaluators(session) {
                known.enter(state.address(), recursion_left(state));
            }
            state
        }
    };
    let interpreter = state.target(INTERPRETER);
    let Some(place) = place(interpreter.address()) else { return };
    let is_known = place.has_tool(interpreter);
    let selection = session.python().header.selection.load(Acquire);
    let is_selected = selection == place.selection.load(Relaxed) || selection & phase::MASK != phase::SETTLED;
    let gate = calltap_python_gate.load(Relaxed) != 0;
    if is_known && gate && is_selected || thrown || BUSY.load(Relaxed) != 0 {
        return;
    }
    for (known, word) in ADDRESSES.iter().zip(program) {
        known.store(word.load(Relaxed), Relaxed);
    }
    let States { tracing, exception, .. } = version();
    if state.half(*tracing) != 0 || state.word(*exception) != 0 {
        return;
    }
    BUSY.store(1, Relaxed);
    let is_first = place.name.load(Relaxed) == 0;
    if !is_known {
        place.interpreter.store(0, Relaxed);
        register_callbacks(session, place, interpreter);
    }
    let now = place.interpreter.load(Relaxed);
    if now != 0 {
        // Functions that were not selected before may be selected now. Events that the program's
        // own tools have disabled come back, too, so that it is not done without need.
        let is_ours = now & TAKEN != TAKEN;
        place.selection.store(selection, Relaxed);
        let _ = is_ours && !is_first && call(c"restart_events", c"", 0, 0, 0);
        calltap_python_gate.store(1, Relaxed);
    }
    BUSY.store(0, Relaxed);
}

/// Returns the state of the calling thread, which holds the interpreter's lock.
fn current(addresses: &[AtomicU64]) -> Place {
    let get = word_of(addresses, program::CURRENT_STATE);
    // SAFETY: `PyThreadState_Get` of this interpreter. The state lives while the thread runs.
    unsafe {
        let get: extern "C" fn() -> u64 = core::mem::transmute(get);
        Place::new(get())
    }
}

/// Takes a tool id of an interpreter and registers the callbacks.
fn register_callbacks(session: Session, place: &InterpreterState, interpreter: Place) {
    let monitoring = of_sys(c"monitoring");
    if monitoring == 0 {
        // The interpreter is still being initialized.
        return;
    }
    let name = c"calltap".as_ptr() as u64;
    let own = interpreter.address();
    let Some(tool) = TOOLS.into_iter().find(|tool| call(c"use_tool_id", c"is", *tool, name, 0)) else {
        place.name_at.store(0, Relaxed);
        place.interpreter.store(own | TAKEN, Relaxed);
        session.python().header.occupied.fetch_add(1, Relaxed);
        return;
    };
    place.note_name(interpreter, tool);
    // SAFETY: `PyObject_GetAttrString` and `PyCMethod_New` of this interpreter; the thread holds
    // its lock. The definitions lie in the agent, which stays.
    let (attribute, new) = unsafe {
        let attribute: extern "C" fn(u64, *const i8) -> u64 =
            core::mem::transmute(address(program::ATTRIBUTE));
        let new: extern "C" fn(*const Definition, u64, u64, u64) -> u64 =
            core::mem::transmute(address(program::NEW_FUNCTION));
        (attribute, new)
    };
    DISABLE.store(attribute(monitoring, c"DISABLE".as_ptr()), Relaxed);
    let events = [&STARTS[..], &[RETURNS], &[YIELDS], &[UNWOUND], &[THROWN]];
    let mut is_done = true;
    for ((definition, callback), events) in DEFINITIONS.iter().zip(CALLBACKS).zip(events) {
        let [method, function, flags, _] = definition;
        method.store(name, Relaxed);
        function.store(callback as usize as u64, Relaxed);
        flags.store(FASTCALL, Relaxed);
        let object = new(definition, 0, 0, 0);
        is_done &= object != 0
            && events.iter().all(|event| call(c"register_callback", c"iiO", tool, *event as u64, object));
        if object != 0 {
            release(object);
        }
    }
    place.interpreter.store(own | tool as u64, Relaxed);
    calltap_python_gate.store(1, Relaxed);
    if !(is_done && call(c"set_events", c"ii", tool, ALL as u64, 0)) {
        // An audit hook of the program may forbid it.
        give_back(place);
        place.name_at.store(0, Relaxed);
        place.interpreter.store(own | TAKEN, Relaxed);
        session.python().header.occupied.fetch_add(1, Relaxed);
    }
}

/// Gives the tool id back, which removes the instrumentation from all functions.
fn give_back(place: &InterpreterState) {
    let tool = (place.interpreter.swap(0, Relaxed) & TAKEN) as c_int;
    let _ = call(c"set_events", c"ii", tool, 0, 0);
    let none = address(program::NONE);
    for event in STARTS.into_iter().chain([RETURNS, YIELDS, UNWOUND, THROWN]) {
        let _ = call(c"register_callback", c"iiO", tool, event as u64, none);
    }
    let _ = call(c"free_tool_id", c"i", tool, 0, 0);
}

extern "C" fn started(_: u64, arguments: *const u64, _: isize) -> u64 {
    event(arguments, None, true)
}

extern "C" fn returned(_: u64, arguments: *const u64, _: isize) -> u64 {
    event(arguments, Some(coroutine::RETURNED), true)
}

extern "C" fn yielded(_: u64, arguments: *const u64, _: isize) -> u64 {
    event(arguments, Some(coroutine::WAITS), true)
}

extern "C" fn unwound(_: u64, arguments: *const u64, _: isize) -> u64 {
    event(arguments, Some(coroutine::RAISED), false)
}

extern "C" fn thrown(_: u64, arguments: *const u64, _: isize) -> u64 {
    event(arguments, None, false)
}

/// Records an event of a callback, as a function is entered, or left in a state. Returns `DISABLE`
/// to disable the event for a function, if it may.
fn event(arguments: *const u64, left: Option<u8>, may_disable: bool) -> u64 {
    let enters = left.is_none();
    let none = address(program::NONE);
    let state = current(&ADDRESSES);
    let is_open = calltap_python_gate.load(Relaxed) != 0;
    let Some(session) = Session::get().filter(|session| is_open && session.traces_python()) else {
        place(state.word(INTERPRETER))
            .filter(|place| place.interpreter.load(Relaxed) != 0)
            .into_iter()
            .for_each(give_back);
        return none;
    };
    // SAFETY: the first argument of every callback is the code object, which its frame holds. The
    // thread holds the interpreter's lock.
    let code_object = unsafe { Place::new(*arguments) };
    let (frame, slot) = frame_of(session, state);
    let globals = || frame.follow(GLOBALS);
    let Some(entry) = function(session, &V3_12, code_object, enters, globals) else { return none };
    match entry.state.load(Acquire) {
        state::ON => {}
        state::UNSELECTED if may_disable => return DISABLE.load(Relaxed),
        _ => return none,
    }
    let code = match enters {
        false => code::EXIT,
        true if frame.follow(PREVIOUS).is_some_and(is_bottom) => code::ENTRY,
        true => code::NESTED_ENTRY,
    };
    let stub = stub_of(entry);
    let is_coroutine = session.python().identifies(entry);
    match left {
        Some(state) if is_coroutine => coroutines::leave(session, stub, slot, state),
        Some(_) => {}
        None => {
            let run = is_coroutine.then(|| version().coroutines.run(frame)).flatten();
            arguments::enter(session, &V3_12, (entry, run, Frames::locals(frame)), (stub, slot));
        }
    }
    record_at(session, stub | code, 0, slot);
    none
}

/// Whether this is the frame that an evaluator puts below those of the functions that it runs.
fn is_bottom(frame: Place) -> bool {
    frame.byte(OWNER) == OWNED_BY_EVALUATOR
}

/// Returns the frame of a thread that is entered or left, and the slot of its evaluator.
fn frame_of(session: Session, state: Place) -> (Place, u64) {
    let States { frame: at, is_c, .. } = version();
    let found = state.target(*at);
    if *is_c {
        return (found.target(0), found.address());
    }
    let known = evaluators(session);
    let left = recursion_left(state);
    if let Some(slot) = known.and_then(|known| known.slot(state.address(), left)) {
        return (found, slot);
    }
    let mut frame = Some(found);
    for _ in 0..MAX_FRAMES {
        let Some(above) = frame.filter(|frame| !is_bottom(*frame)) else { break };
        frame = above.follow(PREVIOUS);
    }
    let slot = frame.map_or(0, Place::address);
    if let Some(known) = known {
        known.note(state.address(), left, slot);
    }
    (found, slot)
}

/// Returns the known evaluators of the calling thread. They are forgotten when the hooks may have
/// been gone: an evaluator that is entered then is not seen.
fn evaluators(session: Session) -> Option<&'static Evaluators> {
    let thread = register::registered(session)?;
    let since = session.python().hooked_since();
    if thread.hooked_since.load(Relaxed) != since {
        thread.hooked_since.store(since, Relaxed);
        thread.evaluators.clear();
    }
    Some(&thread.evaluators)
}

/// Returns how far C may still recurse in the innermost evaluator of a thread state, CPython 3.13.
fn recursion_left(state: Place) -> u32 {
    state.half(RECURSION_LEFT)
}

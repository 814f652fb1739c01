//! Coroutines: the values by which the recorder joins the runs of each.
//!
//! A coroutine is entered whenever it is resumed, and left whenever it waits. Its frame lies in the
//! coroutine object, or leads to it, and has the object's address until the object is freed. The
//! values tell which coroutine runs, whether it has run before, and whether it waits, has returned
//! or was left by an exception. They are read of the frame and of its code, in front of the event.

use super::place::Place;
use crate::state::Session;
use crate::values;
use calltap_abi::event::code;
use calltap_abi::python::coroutine::RETURN;

/// CO_COROUTINE: flag of the code of a function of `async def`.
const IS_COROUTINE: u32 = 0x80;

/// Whether the code is that of a coroutine. `flags`: offset of the flags.
pub fn is_coroutine(code: Place, flags: u64) -> bool {
    code.half(flags) & IS_COROUTINE != 0
}

/// A coroutine that is about to run.
pub struct Run {
    /// Address of the coroutine object.
    pub object: u64,
    /// Whether it has run before.
    pub resumed: bool,
    /// Whether no coroutine or generator resumes it.
    pub outermost: bool,
}

/// Writes the state after a run, in front of the event of the return.
pub fn leave(session: Session, stub: u32, slot: u64, state: u8) {
    let bytes: [u8; RETURN] = [0, 0, state];
    let _ = values::write(session, (slot as u32) << 22 ^ stub | code::RESULTS, &bytes);
}

/// Offsets of a version whose frames lie in the coroutine objects.
#[cfg(not(feature = "placed"))]
pub struct Frames {
    /// Offset of the code, in a frame.
    pub code: u64,
    /// Offset of the frame that resumed it, in a frame.
    pub previous: u64,
    /// Offset of the owner, in a frame.
    pub owner: u64,
    /// Offset of the frame, in a coroutine.
    pub of_object: u64,
    /// Offset of the index of the first instruction that is not preparation, in a code object.
    pub first: u64,
    /// Offset of the instructions, in a code object.
    pub instructions: u64,
}

#[cfg(not(feature = "placed"))]
pub static V3_11: Frames =
    Frames { code: 32, previous: 48, owner: 69, of_object: 80, first: 168, instructions: 184 };
#[cfg(not(feature = "placed"))]
pub static V3_12: Frames =
    Frames { code: 0, previous: 8, owner: 70, of_object: 72, first: 176, instructions: 192 };
#[cfg(not(feature = "placed"))]
pub static V3_13: Frames =
    Frames { code: 0, previous: 8, owner: 70, of_object: 72, first: 184, instructions: 200 };

// Offsets of the current instruction and of the locals in a frame, and owners of frames.
#[cfg(not(feature = "placed"))]
const INSTRUCTION: u64 = 56;
#[cfg(not(feature = "placed"))]
const LOCALS: u64 = 72;
#[cfg(not(feature = "placed"))]
const OWNED_BY_GENERATOR: u8 = 1;
#[cfg(not(feature = "placed"))]
const OWNED_BY_EVALUATOR: u8 = 3;

#[cfg(not(feature = "placed"))]
impl Frames {
    /// Returns the current instruction of a frame.
    pub fn instruction(frame: Place) -> Place {
        frame.target(INSTRUCTION)
    }

    /// Returns the place of the first local of a frame.
    pub fn locals(frame: Place) -> Place {
        frame.at(LOCALS)
    }

    /// Whether the frame is that of a generator or coroutine.
    pub fn is_generator(&self, frame: Place) -> bool {
        frame.byte(self.owner) == OWNED_BY_GENERATOR
    }

    /// Returns the index of the current instruction, relative to the first that is not preparation.
    fn behind_first(&self, frame: Place) -> i64 {
        let code = frame.target(self.code);
        let first = code.half(self.first);
        let instructions = code.at(self.instructions).address();
        let at = Frames::instruction(frame).address().wrapping_sub(instructions) as i64 / 2;
        at - i64::from(first)
    }

    /// Whether a generator or coroutine was suspended in its body.
    pub fn has_begun(&self, frame: Place) -> bool {
        self.behind_first(frame) > 0
    }

    /// Describes the coroutine whose frame is entered; `None` if the frame is none of a coroutine.
    pub fn run(&self, frame: Place) -> Option<Run> {
        let owner = |frame: Place| frame.byte(self.owner);
        if !self.is_generator(frame) {
            return None;
        }
        let mut below = frame.follow(self.previous);
        // The evaluator has put its own frame in between.
        if let Some(between) = below.filter(|below| owner(*below) == OWNED_BY_EVALUATOR) {
            below = between.follow(self.previous);
        }
        Some(Run {
            object: frame.address() - self.of_object,
            resumed: self.has_begun(frame),
            outermost: below.is_none_or(|below| owner(below) != OWNED_BY_GENERATOR),
        })
    }
}

// Offsets in PyFrameObject, up to CPython 3.10.
const BACK: u64 = 24;
const CODE: u64 = 32;
/// Offset of the bytecode in PyCodeObject, and of its bytes in the bytecode.
const BYTECODE: u64 = 48;
const BYTES: u64 = 32;
/// The instruction that returns.
const RETURN_VALUE: u8 = 83;

/// Offsets of a version whose frames are objects.
pub struct FrameObjects {
    /// Offset of the coroutine.
    object: u64,
    /// Offset of the offset of the last instruction, -1 before the first.
    last: u64,
    /// Offset of the top of its stack, 0 if it has ended; or of its state.
    state: u64,
    /// Whether `state` is that of its state.
    has_state: bool,
    /// Offset of the locals.
    locals: u64,
}

static V3_8: FrameObjects = FrameObjects { object: 96, last: 104, state: 72, has_state: false, locals: 360 };
static V3_10: FrameObjects = FrameObjects { object: 88, last: 96, state: 108, has_state: true, locals: 352 };
/// Values of the state: it waits, or has returned.
const SUSPENDED: i8 = -1;
const RETURNED: i8 = 1;

impl FrameObjects {
    /// Returns the offsets of a version, up to 3.10.
    pub fn of(version: u64) -> &'static FrameObjects {
        if version == 10 { &V3_10 } else { &V3_8 }
    }

    /// Returns the place of the first local of a frame.
    pub fn locals(&self, frame: Place) -> Place {
        frame.at(self.locals)
    }

    /// Describes the coroutine whose frame is entered.
    pub fn run(&self, frame: Place) -> Option<Run> {
        let object = frame.word(self.object);
        let outermost = frame.follow(BACK).is_none_or(|below| below.word(self.object) == 0);
        let resumed = frame.half(self.last) as i32 >= 0;
        (object != 0).then_some(Run { object, resumed, outermost })
    }

    /// Returns the state of a coroutine that was left, by its frame.
    pub fn state(&self, frame: Place) -> u8 {
        use calltap_abi::python::coroutine::{RAISED, RETURNED as HAS_RETURNED, WAITS};
        if self.has_state {
            return match frame.byte(self.state) as i8 {
                SUSPENDED => WAITS,
                RETURNED => HAS_RETURNED,
                _ => RAISED,
            };
        }
        if frame.word(self.state) != 0 {
            return WAITS;
        }
        // An exception that was thrown into it before it began has no instruction.
        let Ok(last) = u64::try_from(frame.half(self.last) as i32) else { return RAISED };
        let instruction = frame.target(CODE).target(BYTECODE).byte(BYTES + last);
        if instruction == RETURN_VALUE { HAS_RETURNED } else { RAISED }
    }
}

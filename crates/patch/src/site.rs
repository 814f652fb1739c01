//! A patch site: its bytes in each state, and the stores that move it between states while threads
//! execute it.
//!
//! ```text
//!   Original --normalize--> Disabled --switch--> Enabled    and back; a switch also leads from one target to another
//!   (the file)              one instruction      jmp or call
//! ```
//!
//! A switch takes three phases, each followed by a core-serializing barrier:
//!
//! 1. Byte 0 becomes `A9`: the site decodes as `test eax, imm32`. It stays one instruction of five
//!    bytes, so no thread can resume inside it; it changes only flags, which are dead at a
//!    function's entry and at a call.
//! 2. Bytes 1 to 4 receive the new operand, in any order.
//! 3. Byte 0 becomes the opcode of the new instruction.
//!
//! Every store that matters is one byte wide, so alignment and the granularity of `/proc/PID/mem`
//! do not matter. Every intermediate state is a valid program, so the writer may be killed between
//! any two stores.
//!
//! Two other instructions can be chosen for the first phase ([`Transition`]). `jmp 3f`, `EB 03`,
//! which the first dynamic ftrace used, needs a store of two bytes at once over the old
//! instruction; behind `A9` the 03 is part of an operand, so one byte after the other will do. A
//! breakpoint, `CC`, needs a signal handler in the program, which resumes behind the five bytes.
//!
//! Steps of a batch, each followed by a barrier if it writes anything:
//!
//! | step | entry | entry, through `jmp 3f` | padding jump, and a short jump at the entry | exit |
//! |--:|---|---|---|---|
//! | 0 | normalize | normalize | normalize; disabling: the short jump's first byte becomes 66 | normalize |
//! | 1 | A9 (or CC) | A9 | the padding jump: A9 (or CC); disabling: the short jump's second byte | A9 (or CC), or `ret` |
//! | 2 | | second byte: 03 | the same | |
//! | 3 | | EB | the same | |
//! | 4 | | third to fifth byte; A9 | the same | operand |
//! | 5 | operand | second byte | operand | first byte |
//! | 6 | first byte | first byte | first byte; enabling: the short jump's second byte | |
//! | 7 | restore | restore | restore; enabling: the short jump's first byte | restore |
//!
//! The short jump goes through `66 90`, `66 F9` and `EB F9`; `F9` and `F5` set and complement the
//! carry, which is dead there.
//!
//! The prologue of a function that was not built for tracing is overwritten with a jump and
//! executed out of line. `A9` cannot stand for several instructions, so such a site is written in
//! one step while all threads are stopped and none is inside it; the step is whole within a page,
//! so the site has no intermediate states.
//!
//! Exits of such a function are written the same way. Exits for which the compiler left room (XRay
//! sleds) are a `ret` with a NOP behind it, or a jump over one. They are switched while threads
//! run, a step before entries: a call whose entry was recorded also has its exit recorded.
//!
//! Where only two bytes are free, they become a short jump to a jump in the padding in front of the
//! function. Both are written in the same step.
//!
//! Where no jump fits, the function's first byte may become a breakpoint that stays (`int3`): one
//! store, in step 0, at any time, and no thread is ever inside it. The program's SIGTRAP handler
//! knows where it leads.
//!
//! A function that is replaced as a whole (the profiling function, the dynamic linker's empty one)
//! has a `ret` where other sites have `A9`, in every mode: disabled, it returns at once.

mod forms;
mod found;

use crate::address::Avma;
use crate::bytes::Bytes;
use crate::encoding::{CALL, JMP, OutOfReach, distance};
use crate::steps::{INT3, JUMP, LAST_BYTE, RESTORE, Steps, TEST, Transition};
pub use forms::calls_out;

const NOP2: [u8; 2] = [0x66, 0x90];
const NOP1: u8 = 0x90;
/// Bytes of a short jump.
const SHORT_JUMP: usize = NOP2.len();
const JMP_SHORT: u8 = 0xEB;
const RET: u8 = 0xC3;

/// The state of a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// The file's bytes.
    Original,
    /// A single instruction without effect, which can be switched.
    Disabled,
    /// A jump or call to a stub or veneer.
    Enabled(Avma),
}

/// Demand of a change on the program's threads. A thread is inside a site if its next instruction
/// begins behind the site's first byte: now, when it is scheduled again, or when a signal handler
/// returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Demand {
    /// None: threads may run.
    Nothing,
    /// No thread is inside when step 0 is done.
    Outside,
    /// All threads are stopped, and none is inside.
    Stopped,
}

/// A site in a running program. It fills a cache line, as a batch goes through a hundred thousand
/// of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    address: Avma,
    original: Bytes,
    disabled: Bytes,
    kind: Kind,
    /// Offset of the five bytes that are switched: behind a prefix without effect, in a site of six
    /// bytes that is one instruction in every state.
    at: u8,
    normalizing: Demand,
    restoring: Demand,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Jump,
    Call,
    /// The function's first instructions.
    Prologue,
    /// A short jump at the entry to a jump in the padding in front of it; with the offset of the
    /// short jump.
    PaddingJump(u8),
    /// A breakpoint that stays in place of the first byte.
    Trap,
    /// An exit: a return, with instructions in front of it and padding behind it.
    Exit,
    /// An exit with room that the compiler left: a return, or a jump over that room.
    Sled,
    /// A function that is replaced as a whole.
    Function,
    /// A short jump at the entry to a jump in front of it, in room that the compiler left; with the
    /// offset of the short jump.
    ShortJump(u8),
}

/// Encodes the short jump from offset `at` to the beginning of the site.
fn short_jump(at: u8) -> [u8; 2] {
    [JMP_SHORT, (at + 2).wrapping_neg()]
}

impl Site {
    /// Return address of a call from the site.
    pub fn after(&self) -> Avma {
        Avma(self.address.0 + u64::from(self.at) + JUMP as u64)
    }

    /// Address of the first byte.
    #[inline]
    pub fn address(&self) -> Avma {
        self.address
    }

    /// Number of bytes.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.original.len()
    }

    /// Whether the disabled site differs from the file.
    #[inline]
    pub fn is_normalized(&self) -> bool {
        self.disabled != self.original
    }

    /// Returns the demand of a change on the program's threads.
    #[inline]
    pub fn demand(&self, from: State, to: State) -> Demand {
        if self.is_trap() {
            return Demand::Nothing;
        }
        if self.is_displaced() {
            let is_off = |state| !matches!(state, State::Enabled(_));
            let same = from == to || is_off(from) && is_off(to);
            return if same { Demand::Nothing } else { Demand::Stopped };
        }
        let normalizing = if from == State::Original { self.normalizing } else { Demand::Nothing };
        let has_a9 = matches!(self.kind, Kind::Jump | Kind::Call | Kind::Sled);
        let restoring = match (from, to) {
            (_, State::Disabled | State::Enabled(_)) => Demand::Nothing,
            // Threads get inside while the site is A9, after step 0.
            (State::Enabled(_), State::Original) if has_a9 && self.restoring != Demand::Nothing => {
                Demand::Stopped
            }
            (_, State::Original) => self.restoring,
        };
        normalizing.max(restoring)
    }

    /// Returns the range of addresses inside the site, which must be free of threads for
    /// [`Demand::Outside`]. All bytes in front of a function are inside, and its entry is not.
    pub fn inside(&self) -> (u64, u64) {
        let (first, length) = match self.kind {
            // The first instruction has two bytes or more.
            Kind::ShortJump(_) | Kind::PaddingJump(_) => (0, JUMP),
            // The bytes behind the jump stay.
            Kind::Prologue | Kind::Exit => (1, JUMP),
            Kind::Trap => (1, 1),
            Kind::Jump | Kind::Call | Kind::Sled | Kind::Function => (1, self.original.len()),
        };
        (self.address.0 + first, self.address.0 + length as u64)
    }

    /// Returns where a thread inside the site may resume instead: behind the site, if it consists
    /// of one-byte NOPs, which lead there anyway.
    pub fn way_out(&self, pc: u64) -> Option<u64> {
        let nops = matches!(self.kind, Kind::Jump) && self.original.iter().all(|byte| *byte == NOP1);
        (nops && self.is_inside(pc)).then(|| self.address.0 + self.original.len() as u64)
    }

    /// Whether an address is inside the site.
    pub fn is_inside(&self, pc: u64) -> bool {
        let (start, end) = self.inside();
        (start..end).contains(&pc)
    }

    /// Whether an address inside may be a return address: that behind a call in the file, or behind
    /// the site's own.
    pub fn may_return_to(&self, pc: u64) -> bool {
        let before = pc.wrapping_sub(self.address.0) as usize;
        let code = self.original.get(..before).unwrap_or_default();
        let last = |length: usize| code.len().checked_sub(length).map(|at| &code[at..]);
        // The longest call through memory has a prefix, an index, and a displacement of four bytes.
        let is_indirect = |code: &[u8]| matches!(code, [0xFF, operand, ..] if operand >> 3 & 7 == 2);
        let is_call = last(JUMP).is_some_and(|code| code.starts_with(CALL))
            || (2..=7).filter_map(last).any(is_indirect);
        is_call || pc == self.after().0
    }

    /// Returns the address of the breakpoint while the site is switched through one.
    pub fn breakpoint(&self) -> Option<Avma> {
        let has = !self.is_displaced() && self.disabled[0] != RET;
        has.then_some(Avma(self.address.0 + u64::from(self.at)))
    }

    /// Whether the site is the dynamic linker's empty function.
    pub fn is_empty_function(&self) -> bool {
        self.original[0] == RET && self.kind == Kind::Jump
    }

    /// Whether the site is a function that is [replaced](Site::function) as a whole.
    pub fn is_function(&self) -> bool {
        self.kind == Kind::Function
    }

    /// Whether the site is an exit of a function.
    #[inline]
    pub fn is_exit(&self) -> bool {
        matches!(self.kind, Kind::Exit | Kind::Sled)
    }

    /// Whether the site is a breakpoint that stays. Its bytes do not tell its target.
    #[inline]
    pub fn is_trap(&self) -> bool {
        self.kind == Kind::Trap
    }

    /// Whether the site consists of the function's own instructions.
    #[inline]
    fn is_displaced(&self) -> bool {
        matches!(self.kind, Kind::Prologue | Kind::PaddingJump(_) | Kind::Trap | Kind::Exit)
    }

    /// Whether the site is a call in the file, whose five bytes are switched like those of a jump.
    #[inline]
    fn is_call(&self) -> bool {
        self.original[self.at as usize] == CALL[0] && !self.is_displaced() && self.kind != Kind::Function
    }

    /// The five switched bytes: disabled, enabled, or (of a call) as in the file.
    #[inline]
    fn switched(&self, state: State) -> Result<[u8; JUMP], OutOfReach> {
        let at = self.at as usize;
        let target = match state {
            State::Enabled(target) => target,
            State::Original if self.is_call() => {
                return self.original[at..at + JUMP].try_into().map_err(|_| OutOfReach);
            }
            State::Original | State::Disabled => {
                return self.disabled[at..at + JUMP].try_into().map_err(|_| OutOfReach);
            }
        };
        let opcode = if self.kind == Kind::Call { CALL[0] } else { JMP[0] };
        let [a, b, c, d] = distance(Avma(self.address.0 + (at + JUMP) as u64), target)?;
        Ok([opcode, a, b, c, d])
    }

    /// Returns all bytes of the site in a state.
    #[inline]
    pub fn bytes(&self, state: State) -> Result<Bytes, OutOfReach> {
        let mut bytes = match state {
            State::Original => return Ok(self.original),
            State::Disabled | State::Enabled(_) => self.disabled,
        };
        if let State::Enabled(_) = state {
            if self.is_trap() {
                bytes[0] = INT3;
                return Ok(bytes);
            }
            bytes[self.at as usize..][..JUMP].copy_from_slice(&self.switched(state)?);
            if let Kind::ShortJump(at) | Kind::PaddingJump(at) = self.kind {
                bytes[at as usize..][..SHORT_JUMP].copy_from_slice(&short_jump(at));
            }
        }
        Ok(bytes)
    }

    /// Returns the stores that lead from one state to another.
    pub fn steps(&self, from: State, to: State, transition: Transition) -> Result<Steps, OutOfReach> {
        let mut steps = Steps::default();
        self.add_steps(from, to, transition, 0, &mut steps)?;
        Ok(steps)
    }

    /// Adds the stores that lead from one state to another to those of a span, in which this site
    /// has the offset `start`.
    #[inline]
    pub(crate) fn add_steps(
        &self,
        from: State,
        to: State,
        transition: Transition,
        start: u16,
        steps: &mut Steps,
    ) -> Result<(), OutOfReach> {
        let (was_on, will_be_on) = (matches!(from, State::Enabled(_)), matches!(to, State::Enabled(_)));
        if self.is_trap() {
            if was_on != will_be_on {
                steps.put(0, start, &self.bytes(to)?[..1]);
            }
            return Ok(());
        }
        // Computed first, so that an error leaves `steps` unchanged.
        let new = self.switched(to)?;
        if self.is_displaced() {
            if self.demand(from, to) != Demand::Nothing {
                // A single write covers both jumps, and the bytes between them, which stay.
                let width =
                    if let Kind::PaddingJump(at) = self.kind { at as usize + SHORT_JUMP } else { JUMP };
                steps.put(0, start, &self.bytes(to)?[..width]);
            }
            return Ok(());
        }
        let normalized = from != to && self.disabled != self.original && !self.is_call();
        if from == State::Original && normalized {
            steps.put(0, start, &self.disabled);
        }
        if was_on || will_be_on || (self.is_call() && from != to) {
            if let Kind::ShortJump(at) = self.kind {
                add_short_steps(start + u16::from(at), short_jump(at), was_on, will_be_on, steps);
            }
            // No thread runs the bytes behind a `ret`, so the operand is written while the first
            // byte is one. A9 would lead on into the code behind the function.
            let at = start + u16::from(self.at);
            let during = match transition {
                _ if self.disabled[0] == RET => RET,
                Transition::Test | Transition::Jmp3f => TEST,
                Transition::Int3 => INT3,
            };
            match transition {
                _ if self.kind == Kind::Sled => steps.switch_exit(at, during, new),
                Transition::Jmp3f if during != RET => steps.switch_by_jump(at, new),
                _ => steps.switch(at, during, new),
            }
        }
        if to == State::Original && normalized {
            steps.put(RESTORE, start, &self.original);
        }
        Ok(())
    }
}

/// Adds the steps of the short jump at `at`.
fn add_short_steps(at: u16, jump: [u8; 2], was_on: bool, will_be_on: bool, steps: &mut Steps) {
    if was_on {
        steps.put(0, at, &NOP2[..1]);
    }
    if will_be_on {
        steps.put(LAST_BYTE, at + 1, &jump[1..]);
        steps.put(RESTORE, at, &jump[..1]);
    } else {
        steps.put(1, at + 1, &NOP2[1..]);
    }
}

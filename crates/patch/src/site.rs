//! Changing code that is running: which bytes to write, in which order, so that a thread may execute the site at any moment.
//!
//! ```text
//!   original --dress--> ready --switch--> on        and back; a switch also leads from one target to another
//!   (the file)          one instruction   jmp or call
//! ```
//!
//! A switch is the seeds' `jmp 3f` with a better byte. Its first byte becomes A9, and the site is `test eax, imm32`: five bytes long as before,
//! so no thread finds itself inside an instruction, and of no effect but on flags, which are dead where a function begins and where
//! one is called. Then the other four bytes are written - an operand, so in any order and torn at will - and last the first
//! byte of what shall be there. Between the three, every processor that runs the program is made to serialise. Every store that matters is
//! *one byte*, so that alignment plays no part and `/proc/PID/mem`, which promises no more, will do; and every state
//! in between is a valid program, so the writer may be killed at any instant.
//!
//! Two other instructions can be chosen to stand there meanwhile ([`Transition`]). The seeds' own `jmp 3f`, `EB 03`, needs a store of two bytes at once where it is
//! written for the old ones; behind A9 the 03 is part of an operand, so one byte after the other will do. A breakpoint, `CC`, needs a signal handler in the program, which resumes
//! behind the five bytes.
//!
//! Steps of a batch, a core sync behind each that writes anything:
//!
//! | step | a site at the entry | through `jmp 3f` | a jump in front of it and a short one at the entry | where a function is left |
//! |--:|---|---|---|---|
//! | 0 | dress | dress | dress; off: the short jump's first byte becomes 66 | dress |
//! | 1 | A9 (or CC) | A9 | the long jump: A9 (or CC); off: the short jump's second byte | A9 (or CC), or `ret` |
//! | 2 | | second byte: 03 | the same | |
//! | 3 | | EB | the same | |
//! | 4 | | third to fifth byte; A9 | the same | operand |
//! | 5 | operand | second byte | operand | first byte |
//! | 6 | first byte | first byte | first byte; on: the short jump's second byte | |
//! | 7 | undress | undress | undress; on: the short jump's first byte | undress |
//!
//! The short site goes `66 90`, `66 F9` (or F5: set or complement the carry, of no effect), `EB F9`.
//!
//! The first instructions of a function that was not built for tracing become a jump, and are run from a [copy](crate::copy): nothing that A9 could stand for. Such a site is
//! written while all threads are stopped and none is inside, in one step, which is whole within a page: it has no states in between.
//!
//! So are the places where such a function is left. Those for which the compiler left room (the sleds of XRay) are a `ret` with a NOP behind it, or jump over one; they are
//! switched under running threads, and a step earlier than entries are: who is seen to come in is seen to leave.
//!
//! Where there is room for two bytes only, those lead to a jump in the padding in front of the function; both are written in the same step.
//!
//! Where there is no room for any jump, the function's first byte may become a breakpoint that stays (`int3`): one store, in step 0, at any time, and no thread is ever inside. Where it
//! leads, the program's handler of SIGTRAP knows.
//!
//! A function that is replaced as a whole (the profiling function, the dynamic linker's empty one) has a `ret` where the others have A9, whichever is chosen: off, it
//! returns at once.

mod forms;
mod found;

use crate::steps::{INT3, JUMP, LAST_BYTE, Steps, TEST, Transition, UNDRESS};
use crate::{Avma, Bytes, CALL, JMP, OutOfReach, distance};
pub use forms::calls_out;

const NOP2: [u8; 2] = [0x66, 0x90];
const NOP1: u8 = 0x90;
/// Bytes of a short jump.
const SHORT: usize = NOP2.len();
const JMP_SHORT: u8 = 0xEB;
const RET: u8 = 0xC3;

/// What a site is at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// The bytes of the file.
    Original,
    /// Off, in a form that can be switched.
    Ready,
    /// Leading to a stub or hop.
    On(Avma),
}

/// What a change of a site demands of the program's threads. A thread is inside a site if its next instruction begins there behind the first
/// byte: now, when it is scheduled again, or when a signal handler returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Demand {
    /// Nothing: they may run.
    Nothing,
    /// That none is inside when step 0 is done.
    Outside,
    /// That none is inside, and all are stopped.
    Stopped,
}

/// A site in a running program. It fills a cache line: a batch goes through a hundred thousand of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    address: Avma,
    original: Bytes,
    ready: Bytes,
    kind: Kind,
    /// Where the five bytes are that are switched: behind a prefix of no effect, in a site of six bytes that is one instruction in every state.
    at: u8,
    dressing: Demand,
    undressing: Demand,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Jump,
    Call,
    /// The function's own first instructions.
    Prologue,
    /// Its first one, with the jump in front of it: offset of the two bytes at the entry.
    Beside(u8),
    /// The same, with a breakpoint that stays in the place of its first byte.
    Trap,
    /// Where it is left: instructions in front of a return, or of a jump to another function.
    Exit,
    /// The same, with room that the compiler left: a return, or a jump over that room.
    Sled,
    /// A function that something else takes the place of.
    Function,
    /// Offset of the two bytes at the entry.
    Short(u8),
}

/// The short jump from `at` to the beginning of the site.
fn short_jump(at: u8) -> [u8; 2] {
    [JMP_SHORT, (at + 2).wrapping_neg()]
}

impl Site {
    /// Where a call from the site returns to.
    pub fn after(&self) -> Avma {
        Avma(self.address.0 + u64::from(self.at) + JUMP as u64)
    }

    /// First byte.
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

    /// What a change demands of the threads.
    #[inline]
    pub fn demand(&self, from: State, to: State) -> Demand {
        if self.is_trap() {
            return Demand::Nothing;
        }
        if self.is_displaced() {
            let is_off = |state| !matches!(state, State::On(_));
            let same = from == to || is_off(from) && is_off(to);
            return if same { Demand::Nothing } else { Demand::Stopped };
        }
        let dressing = if from == State::Original { self.dressing } else { Demand::Nothing };
        let has_a9 = matches!(self.kind, Kind::Jump | Kind::Call | Kind::Sled);
        let undressing = match (from, to) {
            (_, State::Ready | State::On(_)) => Demand::Nothing,
            // Behind A9 threads come inside, after step 0.
            (State::On(_), State::Original) if has_a9 && self.undressing != Demand::Nothing => {
                Demand::Stopped
            }
            (_, State::Original) => self.undressing,
        };
        dressing.max(undressing)
    }

    /// The addresses inside the site, at which no thread may be that is said to be outside. In front of a function all of it is inside, and its
    /// entry is not.
    pub fn inside(&self) -> (u64, u64) {
        let (first, length) = match self.kind {
            // (Its first instruction is two bytes or more.)
            Kind::Short(_) | Kind::Beside(_) => (0, JUMP),
            // Behind the jump it stays as it is.
            Kind::Prologue | Kind::Exit => (1, JUMP),
            Kind::Trap => (1, 1),
            Kind::Jump | Kind::Call | Kind::Sled | Kind::Function => (1, self.original.len()),
        };
        (self.address.0 + first, self.address.0 + length as u64)
    }

    /// Where a thread that is inside may as well go on: behind the site, where all of it are NOPs of one byte. (It would only come there by and by.)
    pub fn way_out(&self, pc: u64) -> Option<u64> {
        let nops = matches!(self.kind, Kind::Jump) && self.original.iter().all(|byte| *byte == NOP1);
        (nops && self.is_inside(pc)).then(|| self.address.0 + self.original.len() as u64)
    }

    /// Is this one of them?
    pub fn is_inside(&self, pc: u64) -> bool {
        let (start, end) = self.inside();
        (start..end).contains(&pc)
    }

    /// Where a breakpoint is while it is switched through one.
    pub fn breakpoint(&self) -> Option<Avma> {
        let has = !self.is_displaced() && self.ready[0] != RET;
        has.then_some(Avma(self.address.0 + u64::from(self.at)))
    }

    /// Is it the dynamic linker's empty function?
    pub fn is_empty_function(&self) -> bool {
        self.original[0] == RET && self.kind == Kind::Jump
    }

    /// Is it a function that something else [takes the place](Site::function) of?
    pub fn is_function(&self) -> bool {
        self.kind == Kind::Function
    }

    /// Is it where a function is left?
    #[inline]
    pub fn is_exit(&self) -> bool {
        matches!(self.kind, Kind::Exit | Kind::Sled)
    }

    /// Is it a breakpoint that stays? Where it leads, its bytes do not tell.
    #[inline]
    pub fn is_trap(&self) -> bool {
        self.kind == Kind::Trap
    }

    /// Is it instructions of the function's own?
    #[inline]
    fn is_displaced(&self) -> bool {
        matches!(self.kind, Kind::Prologue | Kind::Beside(_) | Kind::Trap | Kind::Exit)
    }

    /// In the file it is a call, of which the five bytes are switched like those that we write.
    #[inline]
    fn is_call(&self) -> bool {
        self.original[self.at as usize] == CALL[0] && !self.is_displaced() && self.kind != Kind::Function
    }

    /// The five bytes that are switched, ready or on, or (of a call) as in the file.
    #[inline]
    fn switched(&self, state: State) -> Result<[u8; JUMP], OutOfReach> {
        let at = self.at as usize;
        let target = match state {
            State::On(target) => target,
            State::Original if self.is_call() => {
                return self.original[at..at + JUMP].try_into().map_err(|_| OutOfReach);
            }
            State::Original | State::Ready => {
                return self.ready[at..at + JUMP].try_into().map_err(|_| OutOfReach);
            }
        };
        let opcode = if self.kind == Kind::Call { CALL[0] } else { JMP[0] };
        let [a, b, c, d] = distance(Avma(self.address.0 + (at + JUMP) as u64), target)?;
        Ok([opcode, a, b, c, d])
    }

    /// All bytes in a state.
    #[inline]
    pub fn bytes(&self, state: State) -> Result<Bytes, OutOfReach> {
        let mut bytes = match state {
            State::Original => return Ok(self.original),
            State::Ready | State::On(_) => self.ready,
        };
        if let State::On(_) = state {
            if self.is_trap() {
                bytes[0] = INT3;
                return Ok(bytes);
            }
            bytes[self.at as usize..][..JUMP].copy_from_slice(&self.switched(state)?);
            if let Kind::Short(at) | Kind::Beside(at) = self.kind {
                bytes[at as usize..][..SHORT].copy_from_slice(&short_jump(at));
            }
        }
        Ok(bytes)
    }

    /// The stores that lead from one state to another.
    pub fn steps(&self, from: State, to: State, transition: Transition) -> Result<Steps, OutOfReach> {
        let mut steps = Steps::default();
        self.add_steps(from, to, transition, 0, &mut steps)?;
        Ok(steps)
    }

    /// Adds them to those of other sites of a span, in which this one is at `start`.
    #[inline]
    pub fn add_steps(
        &self,
        from: State,
        to: State,
        transition: Transition,
        start: u16,
        steps: &mut Steps,
    ) -> Result<(), OutOfReach> {
        let (was_on, will_be_on) = (matches!(from, State::On(_)), matches!(to, State::On(_)));
        if self.is_trap() {
            if was_on != will_be_on {
                steps.put(0, start, &self.bytes(to)?[..1]);
            }
            return Ok(());
        }
        // Found out before anything is added.
        let new = self.switched(to)?;
        if self.is_displaced() {
            if self.demand(from, to) != Demand::Nothing {
                // (All at once, also what lies between the two jumps and stays.)
                let width = if let Kind::Beside(at) = self.kind { at as usize + SHORT } else { JUMP };
                steps.put(0, start, &self.bytes(to)?[..width]);
            }
            return Ok(());
        }
        let dressed = from != to && self.ready != self.original && !self.is_call();
        if from == State::Original && dressed {
            steps.put(0, start, &self.ready);
        }
        if was_on || will_be_on || (self.is_call() && from != to) {
            if let Kind::Short(at) = self.kind {
                add_short_steps(start + u16::from(at), short_jump(at), was_on, will_be_on, steps);
            }
            // Behind a `ret` nothing runs: its padding is written while it is one. A9 would lead on to what follows the function.
            let at = start + u16::from(self.at);
            let during = match transition {
                _ if self.ready[0] == RET => RET,
                Transition::Test | Transition::Jmp3f => TEST,
                Transition::Int3 => INT3,
            };
            match transition {
                _ if self.kind == Kind::Sled => steps.switch_exit(at, during, new),
                Transition::Jmp3f if during != RET => steps.switch_by_jump(at, new),
                _ => steps.switch(at, during, new),
            }
        }
        if to == State::Original && dressed {
            steps.put(UNDRESS, start, &self.original);
        }
        Ok(())
    }
}

/// Those of the short jump at `at`.
fn add_short_steps(at: u16, jump: [u8; 2], was_on: bool, will_be_on: bool, steps: &mut Steps) {
    if was_on {
        steps.put(0, at, &NOP2[..1]);
    }
    if will_be_on {
        steps.put(LAST_BYTE, at + 1, &jump[1..]);
        steps.put(UNDRESS, at, &jump[..1]);
    } else {
        steps.put(1, at + 1, &NOP2[1..]);
    }
}

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
//! in between is a valid program, so whoever writes may be killed at any instant.
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
//! Where there is no room for any jump, the function's first byte may become a breakpoint that stays (`int3`): one store, in step 0, at any time, and nobody is ever inside. Where it
//! leads, the program's handler of SIGTRAP knows.
//!
//! A function that is replaced as a whole (the profiling function, the dynamic linker's empty one) has a `ret` where the others have A9, whichever is chosen: off, it
//! returns at once.

use crate::steps::{INT3, JMP_3F, JUMP, LAST_BYTE, Steps, TEST, Transition, UNDRESS};
use crate::{Avma, Bias, Bytes, CALL, JMP, OutOfReach, distance};
use calltap_sites::{Exit, SiteForm};

/// Five bytes that are one NOP, each suffix of which is a NOP too, as is every mixture with five NOPs of one byte.
const NOP5: [u8; 5] = [0x66, 0x66, 0x66, 0x66, 0x90];
/// Address size: changes nothing in an instruction without a memory operand, nor in a NOP.
const PREFIX: u8 = 0x67;
const NOP6: [u8; 6] = [PREFIX, 0x0F, 0x1F, 0x44, 0, 0];
const NOP2: [u8; 2] = [0x66, 0x90];
const NOP1: u8 = 0x90;
/// Bytes of a stack check that a site keeps.
const CHECKED: usize = 16;
/// Bytes of a short jump.
const SHORT: usize = NOP2.len();
const JMP_SHORT: u8 = 0xEB;
const RET: u8 = 0xC3;
/// The number of an exit among the kinds of sites,
const EXIT: u8 = 128;
/// of a breakpoint that stays,
const TRAP: u8 = 129;
/// and of an exit with room.
const SLED: u8 = 130;

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
    NobodyInside,
    /// That none is inside, and all are stopped.
    NobodyRuns,
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

/// Length of a NOP of one instruction, five bytes or more, of which those from the fifth on may have any value.
fn nop_length(code: &[u8]) -> Option<usize> {
    let length = match code {
        [0x0F, 0x1F, 0x44, _, _, ..] => 5,
        [0x66, 0x0F, 0x1F, 0x44, _, _, ..] => 6,
        [0x0F, 0x1F, 0x80, _, _, _, _, ..] => 7,
        [0x0F, 0x1F, 0x84, _, _, _, _, _, ..] => 8,
        [0x66, 0x0F, 0x1F, 0x84, _, _, _, _, _, ..] => 9,
        [0x66, 0x2E, 0x0F, 0x1F, 0x84, _, _, _, _, _, ..] => 10,
        _ if code.starts_with(&NOP5) => 5,
        _ => return None,
    };
    Some(length)
}

/// The ready form of five or more bytes, where it is switched, what dressing demands, and what undressing does.
fn dress(original: Bytes) -> (Bytes, u8, Demand, Demand) {
    let mut ready = original;
    match *original {
        // A call becomes a NOP by a switch like any other.
        [0xE8, _, _, _, _] => {
            ready.copy_from_slice(&NOP6[1..]);
            return (ready, 0, Demand::Nothing, Demand::Nothing);
        }
        [PREFIX, 0xE8, _, _, _, _] => {
            ready.copy_from_slice(&NOP6);
            return (ready, 1, Demand::Nothing, Demand::Nothing);
        }
        // Another prefix in front of the same NOP.
        [0x66, 0x0F, 0x1F, 0x44, _, _] => {
            ready[0] = PREFIX;
            return (ready, 1, Demand::Nothing, Demand::Nothing);
        }
        // A call through a pointer has no byte that could be the first to change.
        [0xFF, 0x15, _, _, _, _] => {
            ready.copy_from_slice(&NOP6);
            return (ready, 1, Demand::NobodyRuns, Demand::NobodyRuns);
        }
        _ => {}
    }
    if let [RET, ..] = *original {
        return (ready, 0, Demand::Nothing, Demand::Nothing);
    }
    // What is jumped over nobody runs, until A9 makes it instructions.
    if let [JMP_SHORT, over, ..] = *original
        && usize::from(over) + SHORT == original.len()
    {
        ready[JUMP..].fill(NOP1);
        return (ready, 0, Demand::Nothing, Demand::NobodyInside);
    }
    if let Some(length) = nop_length(&original) {
        // One instruction still: the NOPs are its operand, until A9 makes them instructions of their own.
        ready[JUMP..length].fill(NOP1);
        let back = if ready == original { Demand::Nothing } else { Demand::NobodyInside };
        return (ready, 0, Demand::Nothing, back);
    }
    ready.fill(NOP1);
    ready[..JUMP].copy_from_slice(&NOP5);
    if original.iter().all(|byte| *byte == NOP1) {
        return (ready, 0, Demand::NobodyInside, Demand::Nothing);
    }
    (ready, 0, Demand::NobodyRuns, Demand::NobodyRuns)
}

/// Does a site call the profiling function, as it is in the file?
pub fn calls_out(form: &SiteForm) -> bool {
    match form {
        SiteForm::Entry { old, .. } | SiteForm::AfterPrologue { old, .. } => {
            matches!(old[..], [0xE8, ..] | [PREFIX, 0xE8, ..] | [0xFF, 0x15, ..])
        }
        SiteForm::Prologue { .. }
        | SiteForm::Checked { .. }
        | SiteForm::Beside { .. }
        | SiteForm::Trap { .. }
        | SiteForm::Prefix { .. } => false,
    }
}

/// What lies between the five bytes in front of a function and the two at its entry; it stays.
fn between(gap: u64) -> Option<&'static [u8]> {
    match gap {
        0 => Some(&[]),
        4 => Some(&[0xF3, 0x0F, 0x1E, 0xFA]), // endbr64
        _ => None,
    }
}

/// The short jump from `at` to the beginning of the site.
fn short_jump(at: u8) -> [u8; 2] {
    [JMP_SHORT, (at + 2).wrapping_neg()]
}

impl Site {
    /// The site of a form in a module that the loader moved by `bias`.
    pub fn new(form: &SiteForm, bias: Bias) -> Option<Site> {
        let address = bias.apply(form.address());
        match form {
            SiteForm::Entry { old, .. } => Site::whole(address, old, Kind::Jump),
            SiteForm::AfterPrologue { old, .. } => Site::whole(address, old, Kind::Call),
            SiteForm::Prologue { old, .. } => Site::displacing(address, old, Kind::Prologue),
            // (Compared as far as it can be written down; only the jump's bytes change.)
            SiteForm::Checked { old, .. } => {
                Site::displacing(address, &old[..old.len().min(CHECKED)], Kind::Prologue)
            }
            SiteForm::Trap { old, .. } => Site::displacing(address, old, Kind::Trap),
            SiteForm::Beside { front_old, old, .. } => {
                Site::beside(address, &[&front_old[..], old].concat(), front_old.len())
            }
            SiteForm::Prefix { prefix, prefix_old, entry, entry_old } => {
                let between = between(entry.0.checked_sub(prefix.0 + JUMP as u64)?)?;
                Site::prefixed(address, &[prefix_old, between, entry_old].concat())
            }
        }
    }

    /// The same site, made to *call* what it leads to: the body resumes behind the call, and the return address tells which site it was.
    /// None for a jump in front of the function, which has no body behind it, and for one in the place of its first instructions.
    pub fn calling(form: &SiteForm, bias: Bias) -> Option<Site> {
        match form {
            SiteForm::Entry { at, old } | SiteForm::AfterPrologue { at, old } => {
                Site::whole(bias.apply(*at), old, Kind::Call)
            }
            SiteForm::Prologue { .. }
            | SiteForm::Checked { .. }
            | SiteForm::Beside { .. }
            | SiteForm::Trap { .. }
            | SiteForm::Prefix { .. } => None,
        }
    }

    /// The site of a function's exit.
    pub fn exit(exit: &Exit, bias: Bias) -> Option<Site> {
        let at = bias.apply(exit.at);
        if exit.is_sled {
            Site::whole(at, &exit.old, Kind::Sled)
        } else {
            Site::displacing(at, &exit.old, Kind::Exit)
        }
    }

    /// Where a call from the site returns to.
    pub fn after(&self) -> Avma {
        Avma(self.address.0 + u64::from(self.at) + JUMP as u64)
    }

    fn whole(address: Avma, original: &[u8], kind: Kind) -> Option<Site> {
        let original = Bytes::new(original).filter(|bytes| bytes.len() >= JUMP)?;
        let (ready, at, dressing, undressing) = dress(original);
        Some(Site { address, original, ready, kind, at, dressing, undressing })
    }

    fn displacing(address: Avma, original: &[u8], kind: Kind) -> Option<Site> {
        let width = if kind == Kind::Trap { 1 } else { JUMP };
        let original = Bytes::new(original).filter(|bytes| bytes.len() >= width)?;
        let (dressing, undressing) = (Demand::Nothing, Demand::Nothing);
        Some(Site { address, original, ready: original, kind, at: 0, dressing, undressing })
    }

    fn beside(address: Avma, original: &[u8], at: usize) -> Option<Site> {
        let has_room = at >= JUMP && original.len().checked_sub(at).is_some_and(|rest| rest >= SHORT);
        let original = Bytes::new(original).filter(|_| has_room)?;
        let (dressing, undressing) = (Demand::Nothing, Demand::Nothing);
        let kind = Kind::Beside(at as u8);
        Some(Site { address, original, ready: original, kind, at: 0, dressing, undressing })
    }

    fn prefixed(address: Avma, original: &[u8]) -> Option<Site> {
        let gap = original.len().checked_sub(JUMP + NOP2.len())?;
        let between = between(gap as u64)?;
        // What is in front of a function runs only by way of the short jump, and whoever took it may be there for as long as it
        // likes; whoever is between the two bytes at the entry finds, in every later state, something harmless.
        Some(Site {
            address,
            original: Bytes::new(original)?,
            ready: Bytes::join(&[&NOP5, between, &NOP2])?,
            kind: Kind::Short((JUMP + gap) as u8),
            at: 0,
            dressing: Demand::Nothing,
            undressing: Demand::NobodyInside,
        })
    }

    /// What the site is made of besides its address, to write it down: a number for its kind, and the bytes of the file.
    pub fn parts(&self) -> (u8, &[u8]) {
        let kind = match self.kind {
            Kind::Jump if self.original[0] == RET => 3,
            Kind::Jump => 0,
            Kind::Call => 1,
            Kind::Short(_) => 2,
            Kind::Function => 4,
            Kind::Prologue => 5,
            Kind::Exit => EXIT,
            Kind::Trap => TRAP,
            Kind::Sled => SLED,
            // (How far its parts are from each other, the kind says.)
            Kind::Beside(at) => 6 + at - JUMP as u8,
        };
        (kind, &self.original)
    }

    /// From its parts.
    pub fn from_parts(address: Avma, kind: u8, original: &[u8]) -> Option<Site> {
        match kind {
            0 => Site::whole(address, original, Kind::Jump),
            1 => Site::whole(address, original, Kind::Call),
            2 => Site::prefixed(address, original),
            3 => Site::empty_function(address, original.try_into().ok()?),
            4 => Site::function(address, original.try_into().ok()?),
            5 => Site::displacing(address, original, Kind::Prologue),
            EXIT => Site::displacing(address, original, Kind::Exit),
            TRAP => Site::displacing(address, original, Kind::Trap),
            SLED => Site::whole(address, original, Kind::Sled),
            6.. => Site::beside(address, original, JUMP + usize::from(kind - 6)),
        }
    }

    /// An empty function (`ret` and padding behind it) that is to become a jump.
    pub fn empty_function(address: Avma, bytes: [u8; JUMP]) -> Option<Site> {
        let padding = matches!(bytes[1..], [0x66, ..] | [0x0F, 0x1F, ..] | [NOP1, ..] | [0xCC, ..]);
        let bytes = Bytes::new(&bytes).filter(|_| bytes[0] == RET && padding)?;
        Some(Site {
            address,
            original: bytes,
            ready: bytes,
            kind: Kind::Jump,
            at: 0,
            dressing: Demand::Nothing,
            undressing: Demand::Nothing,
        })
    }

    /// A function that shall become a jump to what takes its place, of which nothing is ever run again meanwhile: its first five bytes need not be whole
    /// instructions. Ready, it returns at once, and only its first byte differs from the file's: so nobody who is inside it comes to harm, and it can
    /// be brought back under running threads.
    pub fn function(address: Avma, bytes: [u8; JUMP]) -> Option<Site> {
        let original = Bytes::new(&bytes)?;
        let mut ready = original;
        ready[0] = RET;
        Some(Site {
            address,
            original,
            ready,
            kind: Kind::Function,
            at: 0,
            dressing: Demand::NobodyInside,
            undressing: Demand::Nothing,
        })
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
            return if same { Demand::Nothing } else { Demand::NobodyRuns };
        }
        let dressing = if from == State::Original { self.dressing } else { Demand::Nothing };
        let has_a9 = matches!(self.kind, Kind::Jump | Kind::Call | Kind::Sled);
        let undressing = match (from, to) {
            (_, State::Ready | State::On(_)) => Demand::Nothing,
            // Behind A9 threads come inside, after step 0.
            (State::On(_), State::Original) if has_a9 && self.undressing != Demand::Nothing => {
                Demand::NobodyRuns
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

    /// The state that these bytes are, if it is one: the file's, ready, or one of `others`.
    pub fn state_of(&self, actual: &[u8], others: impl IntoIterator<Item = State>) -> Option<State> {
        let mut states = [State::Original, State::Ready].into_iter().chain(others);
        states.find(|state| self.is(*state, actual))
    }

    /// Is something in these bytes, which somebody else has changed, that leads where one of these states does? (Its displacement, wherever in the site that is; or a breakpoint,
    /// which hides what is behind it.)
    pub fn leads_there(&self, actual: &[u8], states: impl IntoIterator<Item = State>) -> bool {
        let bytes = |state| self.bytes(state).ok();
        let holds = |on: Bytes| {
            let mut windows = actual.windows(4).zip(on.windows(4)).zip(self.original.windows(4));
            windows.any(|((actual, on), original)| actual == on && on != original)
        };
        actual.first() == Some(&INT3) || states.into_iter().filter_map(bytes).any(holds)
    }

    /// Where a breakpoint is while it is switched through one.
    pub fn breakpoint(&self) -> Option<Avma> {
        let has = !self.is_displaced() && self.ready[0] != RET;
        has.then_some(Avma(self.address.0 + u64::from(self.at)))
    }

    /// The state from which a change begins where batches between some states were cut short, if these bytes can be what they left. A breakpoint is believed to be
    /// theirs only where they may have left one.
    pub fn recognise(&self, actual: &[u8], between: &[State], to: State, int3: bool) -> Option<State> {
        let plain = [&self.original, &self.ready];
        let on: Vec<_> = between.iter().copied().filter(|state| matches!(state, State::On(_))).collect();
        let mut seen: Vec<Bytes> = plain.into_iter().copied().collect();
        seen.extend(on.iter().filter_map(|state| self.bytes(*state).ok()));
        if self.breakpoint().is_some() {
            let at = self.at as usize;
            let mut during = self.ready;
            during[at] = TEST;
            seen.push(during);
            during[at..at + JMP_3F.len()].copy_from_slice(&JMP_3F);
            seen.push(during);
            during[at] = INT3;
            seen.extend(int3.then_some(during));
        }
        if let Kind::Short(at) = self.kind {
            let mut carry = self.ready;
            carry[at as usize..][..2].copy_from_slice(&[NOP2[0], short_jump(at)[1]]);
            seen.push(carry);
        }
        let known = |(i, byte): (usize, &u8)| seen.iter().any(|bytes| bytes[i] == *byte);
        if actual.len() != self.len() || !actual.iter().enumerate().all(known) {
            return None;
        }
        if self.is_displaced() {
            let whole = self.state_of(actual, on.iter().copied());
            // (It is not what it shall become, so all of it is written.)
            let torn = if matches!(to, State::On(_)) { Some(State::Original) } else { on.first().copied() };
            return whole.or(torn);
        }
        // What leads nowhere and is no A9 may be dressed in part.
        match actual.iter().enumerate().all(|(i, byte)| plain.iter().any(|bytes| bytes[i] == *byte)) {
            // (It is not what it shall become, so all of it is written.)
            _ if self.is_call() && on.is_empty() => {
                Some(if to == State::Original { State::Ready } else { State::Original })
            }
            true if to == State::Original => Some(State::Ready),
            true if self.ready != self.original => Some(State::Original),
            _ => on.first().or(between.first()).copied(),
        }
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

    /// Are these its bytes in a state?
    #[inline]
    pub fn is(&self, state: State, actual: &[u8]) -> bool {
        match state {
            State::Original => self.original == *actual,
            State::Ready => self.ready == *actual,
            State::On(_) if self.len() == JUMP && !self.is_trap() => {
                self.switched(state).is_ok_and(|bytes| bytes == *actual)
            }
            State::On(_) => self.bytes(state).is_ok_and(|bytes| bytes == *actual),
        }
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

//! Values read at a call: arguments, results, and the condition on which the call is recorded at
//! all.
//!
//! A site's stub has a number in `TABLE`, which names a program of some words. The hook runs it
//! ([`run`]) on the registers of the call. Programs are written once and never changed, so no hook
//! can meet half of one.
//!
//! ```text
//! word 0:   63       24 23   16 15    8 7      0
//!          +-----------+-------+-------+--------+     steps of the entry begin at word 1, those of the return at `exit` (0: none);
//!          | 0         | words | exit  | 0      |     `words` are in use
//!          +-----------+-------+-------+--------+
//! a step:   63       32 31   16 15    8 7      0
//!          +-----------+-------+-------+--------+
//!          | offset    | 0     | n     | step   |     then, after IF, AND and INTERFACE, a word that is a constant; after CALLER, two
//!          +-----------+-------+-------+--------+
//! ```
//!
//! The bytes that a program stores begin with two bytes that have a bit for each value, in order,
//! set if the value could not be read. Such a value takes no more room.

mod interface;
mod prctl;
#[cfg(test)]
mod tests;
pub use prctl::{PR_SET_TSC, PR_TSC_SIGSEGV, PRCTL};

use crate::sizes::PAGE;
use crate::{frames, stub};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Words of a program.
pub const WORDS: usize = 64;
/// Maximum number of programs of a session. Number 0 is none.
pub const PROGRAMS: usize = 4096;
/// Bytes of all programs.
pub const PROGRAMS_SIZE: usize = PROGRAMS * WORDS * 8;
/// Bytes of the table behind them: by stub, the number of its program.
pub const TABLE_SIZE: usize = stub::COUNT * size_of::<AtomicU32>();
/// Maximum number of bytes that are stored for a call.
pub const STORED: usize = 504;
/// Maximum number of bytes of a text.
pub const TEXT: u8 = 127;
/// Length byte of a text whose address is 0.
pub const NULL: u8 = 0x80;
/// First byte of a word in the form of a text, as of Python's values
/// (`python::arguments::kind::WORD`).
pub const WORD_KIND: u8 = 5;
/// Maximum number of values of an entry or a return.
pub const VALUES: usize = 16;

/// A program.
pub type Program = [AtomicU64; WORDS];

/// Returns the first word of a program of `words` words that no hook runs: it has no steps.
pub fn without_steps(words: usize) -> u64 {
    (words as u64) << 16
}

/// First byte of a step. `value` is the 64-bit result of the step before.
pub mod step {
    /// value = general register n, by its number in [`register`](super::register).
    pub const REGISTER: u8 = 1;
    /// value = word n above the return address: the seventh argument is 1.
    pub const STACK: u8 = 2;
    /// value = lower half of xmm n.
    pub const XMM: u8 = 3;
    /// value = memory at value + offset, in the width n.
    pub const LOAD: u8 = 4;
    /// value = value + offset.
    pub const ADD: u8 = 5;
    /// value = value, shifted down by `offset` bits, in the width n.
    pub const NARROW: u8 = 6;
    /// value = value & constant.
    pub const AND: u8 = 7;
    /// Keeps value as the length of a following [`SLICE`].
    pub const KEEP: u8 = 8;
    /// Records the call only if value compares so (n: a [`compare`](super::compare)) with the
    /// constant. A value that could not be read compares with nothing.
    pub const IF: u8 = 9;
    /// Stores the lowest bytes of value, as many as the width n has.
    pub const STORE: u8 = 10;
    /// Stores the text at value: its length, then as many bytes, at most n. The top bit of the
    /// length is set if there is more; [`NULL`](super::NULL) if value is 0.
    pub const TEXT: u8 = 11;
    /// Stores the text at value, with the kept length, as [`TEXT`] does.
    pub const SLICE: u8 = 12;
    /// Keeps value, an address, for the return of the call.
    pub const REMEMBER: u8 = 13;
    /// value = the address kept at the entry of the call.
    pub const RECALL: u8 = 14;
    /// value = the address of the return address.
    pub const SLOT: u8 = 15;
    /// Copies this many bytes (offset) of the stack, from the return address on
    /// ([`frames`](crate::frames)).
    pub const FRAMES: u8 = 16;
    /// Stores the name of the type of a Go interface whose first word is value, and whose second is
    /// the kept one, as a word of Python's (`python::arguments::kind`). n is 1 if the interface has
    /// methods. The constant is the address of the types of its module (`runtime.types`).
    pub const INTERFACE: u8 = 17;
    /// The arguments from register n on are those of prctl. If they forbid the thread to read the
    /// time stamp counter, no hook of the thread reads it from here on.
    pub const FORBID: u8 = 18;
    /// Records the call only if code between the two constants makes it. The return address tells:
    /// it lies there, or in the return stub of a traced function that has ended with a jump here.
    /// The program of a library's function has this step, too, and its jumps do not count.
    pub const CALLER: u8 = 19;
}

/// Numbers of general registers: rdi, rsi, rdx, rcx, r8, r9, rax, r10; of Go functions also rbx and
/// r11.
pub mod register {
    /// Arguments one to six.
    pub const ARGUMENTS: [u8; 6] = [0, 1, 2, 3, 4, 5];
    /// Results: rax, rdx.
    pub const RESULTS: [u8; 2] = [6, 2];
    /// Arguments and results of Go functions: rax, rbx, rcx, rdi, rsi, r8, r9, r10, r11.
    pub const GO: [u8; 9] = [6, 8, 3, 0, 1, 4, 5, 7, 9];
    /// Number of registers.
    pub const COUNT: usize = 10;
}

/// Flag of a width in bytes (1, 2, 4, 8): the value has a sign.
pub const SIGNED: u8 = 0x80;

/// Comparisons of values.
pub mod compare {
    /// Equal.
    pub const EQUAL: u8 = 0;
    /// Not equal.
    pub const UNEQUAL: u8 = 1;
    /// Less.
    pub const LESS: u8 = 2;
    /// Less or equal.
    pub const AT_MOST: u8 = 3;
    /// Greater.
    pub const GREATER: u8 = 4;
    /// Greater or equal.
    pub const AT_LEAST: u8 = 5;
    /// Flag: compare as signed numbers.
    pub const SIGNED: u8 = 0x80;
}

/// Encodes a step.
pub const fn word(step: u8, n: u8, offset: i32) -> u64 {
    step as u64 | (n as u64) << 8 | (offset as u32 as u64) << 32
}

/// A call, as the hook sees it.
pub trait Call {
    /// Returns a general register.
    fn register(&self, n: usize) -> u64;
    /// Returns the lower half of a vector register.
    fn xmm(&self, n: usize) -> u64;
    /// Returns the address of the return address.
    fn slot(&self) -> u64;
    /// Copies memory of the program; false if any of it cannot be read.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// Keeps an address for the return of the call, if there is room.
    fn remember(&self, address: u64);
    /// Returns the kept address.
    fn recall(&self) -> Option<u64>;
    /// Copies this many bytes of the stack into the ring.
    fn copy_stack(&self, bytes: u32);
    /// Keeps the thread's hooks from reading the time stamp counter from here on.
    fn forbid_counter(&self);
    /// Whether code of this range made the call ([`step::CALLER`]).
    fn is_made_in(&self, range: Range<u64>) -> bool;
}

/// Bytes that a program has stored.
pub struct Stored {
    bytes: [u8; STORED],
    length: usize,
    values: u32,
}

impl Stored {
    /// Returns the bytes; empty if the program stores no value.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).filter(|_| self.values > 0).unwrap_or(&[])
    }

    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let room = self.bytes.get_mut(self.length..self.length.checked_add(length)?)?;
        self.length += length;
        Some(room)
    }

    /// Adds the next value, which is marked as unreadable if `put` fails.
    fn value(&mut self, put: impl FnOnce(&mut Stored) -> Option<()>) {
        let before = self.length;
        let (bit, n) = (1_u8 << (self.values % 8), self.values as usize / 8 % 2);
        self.values += 1;
        if put(self).is_none() {
            self.length = before;
            if let Some(byte) = self.bytes.get_mut(n) {
                *byte |= bit;
            }
        }
    }
}

/// Truncates or extends a value to a width.
fn narrow(value: u64, width: u8) -> u64 {
    match (width & !SIGNED, width & SIGNED != 0) {
        (1, false) => value as u8 as u64,
        (2, false) => value as u16 as u64,
        (4, false) => value as u32 as u64,
        (1, true) => value as i8 as u64,
        (2, true) => value as i16 as u64,
        (4, true) => value as i32 as u64,
        _ => value,
    }
}

fn holds(how: u8, left: u64, right: u64) -> bool {
    let less = if how & compare::SIGNED != 0 { (left as i64) < right as i64 } else { left < right };
    match how & !compare::SIGNED {
        compare::EQUAL => left == right,
        compare::UNEQUAL => left != right,
        compare::LESS => less,
        compare::AT_MOST => less || left == right,
        compare::GREATER => !less && left != right,
        _ => !less,
    }
}

fn put_text(call: &impl Call, address: u64, most: usize, ends: bool, stored: &mut Stored) -> Option<()> {
    let head = stored.length;
    stored.room(1)?;
    let most = most.min(TEXT as usize).min(STORED - stored.length);
    let (mut length, mut more) = (0, true);
    while length < most {
        let at = address.wrapping_add(length as u64);
        // A text is read in pieces that do not cross a page boundary, as the next page may not be
        // mapped.
        let piece = ((PAGE - at % PAGE) as usize).min(most - length);
        let from = stored.length;
        if !call.read(at, stored.room(piece)?) {
            return None;
        }
        let found = stored.bytes.get(from..from + piece)?;
        let taken = found.iter().position(|byte| ends && *byte == 0).unwrap_or(piece);
        length += taken;
        stored.length = from + taken;
        if taken < piece {
            more = false;
            break;
        }
    }
    *stored.bytes.get_mut(head)? = length as u8 | if more && ends { 0x80 } else { 0 };
    Some(())
}

/// Stores the text at an address with its length, at most `most` bytes of it.
fn put_slice(call: &impl Call, (address, whole): (u64, u64), most: u8, stored: &mut Stored) -> Option<()> {
    let length = whole.min(u64::from(most)) as usize;
    let head = stored.length;
    put_text(call, address, length, false, stored)?;
    if whole > length as u64 {
        *stored.bytes.get_mut(head)? |= 0x80;
    }
    Some(())
}

/// Runs the part of a program for a call's entry or return. None if the call is not to be recorded.
pub fn run(program: &Program, exit: bool, call: &impl Call) -> Option<Stored> {
    let mut stored = Stored { bytes: [0; STORED], length: 2, values: 0 };
    let at = |n: usize| program.get(n).map_or(0, |word| word.load(Relaxed));
    let head = at(0);
    let (behind, end) = ((head >> 8) as usize & 0xFF, (head >> 16) as usize & 0xFF);
    let (mut n, end) = match (exit, behind) {
        (true, 0) => return Some(stored),
        (true, behind) => (behind, end),
        (false, 0) => (1, end),
        (false, behind) => (1, behind),
    };
    let (mut value, mut kept) = (Some(0_u64), 0_u64);
    while n < end.min(WORDS) {
        let word = at(n);
        let (what, width, offset) = (word as u8, (word >> 8) as u8, (word >> 32) as i32);
        n += 1;
        match what {
            step::REGISTER => value = Some(call.register(width as usize)),
            step::XMM => value = Some(call.xmm(width as usize)),
            step::STACK => value = load(call, call.slot().wrapping_add(8 * u64::from(width)), 8),
            step::LOAD => {
                let base = value.map(|value| value.wrapping_add_signed(offset.into()));
                value = base.and_then(|base| load(call, base, width));
            }
            step::ADD => value = value.map(|value| value.wrapping_add_signed(offset.into())),
            step::NARROW => value = value.map(|value| narrow(value >> (offset & 63), width)),
            step::AND => {
                value = value.map(|value| value & at(n));
                n += 1;
            }
            step::KEEP => kept = value.unwrap_or(0),
            step::REMEMBER => call.remember(value.unwrap_or(0)),
            step::RECALL => value = call.recall(),
            step::SLOT => value = Some(call.slot()),
            step::FRAMES => call.copy_stack(offset.unsigned_abs().min(frames::MAX_STACK_COPY)),
            step::IF if !value.is_some_and(|value| holds(width, value, at(n))) => return None,
            step::IF => n += 1,
            step::CALLER if !call.is_made_in(at(n)..at(n + 1)) => return None,
            step::CALLER => n += 2,
            step::STORE => stored.value(|stored| {
                let bytes = value?.to_le_bytes();
                let bytes = bytes.get(..usize::from(width & !SIGNED))?;
                let room = stored.room(bytes.len())?;
                room.iter_mut().zip(bytes).for_each(|(room, byte)| *room = *byte);
                Some(())
            }),
            step::TEXT if value == Some(0) => stored.value(|stored| {
                *stored.room(1)?.first_mut()? = NULL;
                Some(())
            }),
            step::TEXT => {
                stored.value(|stored| put_text(call, value?, usize::from(width), true, stored));
            }
            step::SLICE => stored.value(|stored| put_slice(call, (value?, kept), width, stored)),
            step::INTERFACE => {
                stored.value(|stored| interface::put(call, (value?, kept), width != 0, at(n), stored));
                n += 1;
            }
            step::FORBID if prctl::forbids_counter(call, usize::from(width)) => call.forbid_counter(),
            step::FORBID => {}
            // The word is no step of a program: the memory is shared, and may hold anything.
            _ => return Some(stored),
        }
    }
    Some(stored)
}

/// Returns the indices of the words of a program that are addresses of its module.
pub fn addresses(words: &[u64]) -> impl Iterator<Item = usize> {
    let mut constants = 0_u32;
    words.iter().enumerate().skip(1).filter_map(move |(n, word)| {
        if constants > 0 {
            constants -= 1;
            return None;
        }
        let step = *word as u8;
        constants = match step {
            step::IF | step::AND | step::INTERFACE => 1,
            step::CALLER => 2,
            _ => 0,
        };
        (step == step::INTERFACE).then_some(n + 1)
    })
}

/// Whether calls of a function with this program are recorded by where they are made: the program
/// then begins with [`step::CALLER`].
pub fn depends_on_caller(program: &Program) -> bool {
    program.get(1).is_some_and(|word| word.load(Relaxed) as u8 == step::CALLER)
}

fn load(call: &impl Call, address: u64, width: u8) -> Option<u64> {
    let mut bytes = [0; 8];
    let room = bytes.get_mut(..usize::from(width & !SIGNED))?;
    call.read(address, room).then(|| narrow(u64::from_le_bytes(bytes), width))
}

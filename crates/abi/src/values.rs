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
//!          | offset    | 0     | n     | step   |     then, after IF, AND and INTERFACE, a word that is a constant
//!          +-----------+-------+-------+--------+
//! ```
//!
//! The bytes that a program stores begin with two bytes that have a bit for each value, in order,
//! set if the value could not be read. Such a value takes no more room.

mod interface;
mod prctl;
pub use prctl::{PR_SET_TSC, PR_TSC_SIGSEGV, PRCTL};

use crate::sizes::PAGE;
use crate::{frames, stub};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Words of a program.
pub const WORDS: usize = 64;
/// Most programs of a session. Number 0 is none.
pub const PROGRAMS: usize = 4096;
/// Bytes of all programs.
pub const PROGRAMS_SIZE: usize = PROGRAMS * WORDS * 8;
/// Bytes of the table behind them: by stub, the number of its program.
pub const TABLE_SIZE: usize = stub::COUNT * size_of::<AtomicU32>();
/// Most bytes that are stored for a call.
pub const STORED: usize = 504;
/// Most bytes of a text.
pub const TEXT: u8 = 127;
/// Length byte of a text whose address is 0.
pub const NULL: u8 = 0x80;
/// First byte of a word in the form of a text, as of Python's values
/// (`python::arguments::kind::WORD`).
pub const WORD_KIND: u8 = 5;
/// Most values of an entry or a return.
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
            step::FRAMES => call.copy_stack(offset.unsigned_abs().min(frames::MOST)),
            step::IF => {
                if !value.is_some_and(|value| holds(width, value, at(n))) {
                    return None;
                }
                n += 1;
            }
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
    let mut is_constant = false;
    words.iter().enumerate().skip(1).filter_map(move |(n, word)| {
        if core::mem::take(&mut is_constant) {
            return None;
        }
        let step = *word as u8;
        is_constant = matches!(step, step::IF | step::AND | step::INTERFACE);
        (step == step::INTERFACE).then_some(n + 1)
    })
}

fn load(call: &impl Call, address: u64, width: u8) -> Option<u64> {
    let mut bytes = [0; 8];
    let room = bytes.get_mut(..usize::from(width & !SIGNED))?;
    call.read(address, room).then(|| narrow(u64::from_le_bytes(bytes), width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// A call with registers 0x1000, 0x1001, ..., and memory from 0x1000 on.
    struct Made(&'static [u8], Cell<Option<u64>>);

    impl Made {
        fn new(memory: &'static [u8]) -> Made {
            Made(memory, Cell::new(None))
        }
    }

    impl Call for Made {
        fn register(&self, n: usize) -> u64 {
            0x1000 + n as u64
        }
        fn xmm(&self, n: usize) -> u64 {
            (n as f64 + 0.5).to_bits()
        }
        fn slot(&self) -> u64 {
            0x1000
        }
        fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
            let from = (address as usize).wrapping_sub(0x1000);
            let found = self.0.get(from..from.saturating_add(bytes.len()));
            found.map(|found| bytes.copy_from_slice(found)).is_some()
        }
        fn remember(&self, word: u64) {
            self.1.set(Some(word));
        }
        fn recall(&self) -> Option<u64> {
            self.1.get()
        }
        fn copy_stack(&self, bytes: u32) {
            self.1.set(Some(bytes.into()));
        }
        fn forbid_counter(&self) {
            self.1.set(Some(0));
        }
    }

    fn check(steps: &[u64], memory: &'static [u8], expected: Option<&[u8]>) {
        let program: Program = core::array::from_fn(|n| {
            let head = (steps.len() as u64 + 1) << 16;
            AtomicU64::new(if n == 0 { head } else { steps.get(n - 1).copied().unwrap_or(0) })
        });
        let stored = run(&program, false, &Made::new(memory));
        assert_eq!(stored.as_ref().map(Stored::bytes), expected);
    }

    #[test]
    fn values_are_stored_in_their_width_behind_a_mask_of_unreadable_ones() {
        use step::*;
        let steps = [
            word(REGISTER, 1, 0),
            word(STORE, 2, 0),
            word(LOAD, 4, 100),
            word(STORE, 4, 0),
            word(XMM, 2, 0),
            word(STORE, 8, 0),
        ];
        let expected = [&[2, 0, 0x01, 0x10][..], &2.5_f64.to_le_bytes()].concat();
        check(&steps, b"", Some(&expected));
        check(
            &[word(STACK, 1, 0), word(STORE, 1 | SIGNED, 0)],
            b"........\xfe\0\0\0\0\0\0\0",
            Some(&[0, 0, 0xfe]),
        );
    }

    #[test]
    fn text_ends_at_its_end_or_says_that_there_is_more() {
        use step::*;
        let steps = [word(REGISTER, 0, 0), word(TEXT, 4, 0)];
        static PAGE_AND_MORE: [u8; 4097] = [b'x'; 4097];
        check(&steps, b"ab\0...", Some(b"\0\0\x02ab"));
        check(&steps, b"abcdef\0", Some(b"\0\0\x84abcd"));
        check(&steps, b"ab", Some(b"\x01\0"));
        let over = [word(REGISTER, 0, 0), word(ADD, 0, 4094), word(TEXT, 3, 0)];
        check(&over, &PAGE_AND_MORE, Some(b"\0\0\x83xxx"));
        let slice = [
            word(REGISTER, 0, 0),
            word(AND, 0, 0),
            3,
            word(KEEP, 0, 0),
            word(REGISTER, 0, 0),
            word(SLICE, 9, 0),
        ];
        check(&slice, b"abc", Some(b"\0\0\0"));
    }

    #[test]
    fn a_condition_that_does_not_hold_drops_the_call() {
        use step::*;
        let with =
            |how: u8, constant: u64| [word(REGISTER, 2, 0), word(IF, how, 0), constant, word(STORE, 1, 0)];
        check(&with(compare::GREATER, 0x1001), b"", Some(&[0, 0, 2]));
        check(&with(compare::GREATER, 0x1002), b"", None);
        check(&with(compare::GREATER, -1_i64 as u64), b"", None);
        check(&with(compare::GREATER | compare::SIGNED, -1_i64 as u64), b"", Some(&[0, 0, 2]));
        check(&[word(REGISTER, 0, 0), word(LOAD, 8, 0), word(IF, compare::UNEQUAL, 0), 0], b"", None);
    }

    #[test]
    fn remembered_arguments_are_available_at_the_return() {
        use step::*;
        let words = [
            3 << 8 | 6 << 16,
            word(REGISTER, 1, 0),
            word(REMEMBER, 0, 0),
            word(RECALL, 0, 0),
            word(LOAD, 1, 2),
            word(STORE, 1, 0),
        ];
        let program: Program = core::array::from_fn(|n| AtomicU64::new(words.get(n).copied().unwrap_or(0)));
        let call = Made::new(b"abcdef");
        let bytes = |exit| run(&program, exit, &call).map(|stored| stored.bytes().to_vec());
        // The entry has kept nothing yet.
        assert_eq!(bytes(true), Some(vec![1, 0]));
        assert_eq!(bytes(false), Some(vec![]));
        assert_eq!(bytes(true), Some(vec![0, 0, b'd']));
    }

    #[test]
    fn no_more_of_the_stack_is_copied_than_a_row_of_pieces_holds() {
        for (asked, copied) in [(4096, 4096), (i32::MAX, frames::MOST), (-512, 512)] {
            let words = [2 << 16, word(step::FRAMES, 0, asked)];
            let program: Program =
                core::array::from_fn(|n| AtomicU64::new(words.get(n).copied().unwrap_or(0)));
            let call = Made::new(b"");
            assert!(run(&program, false, &call).is_some_and(|stored| stored.bytes().is_empty()));
            assert_eq!(call.recall(), Some(copied.into()));
        }
    }

    #[test]
    fn arbitrary_value_programs_and_memory_are_safe() {
        let mut random = 1_u64;
        for _ in 0..20_000 {
            let program: Program = core::array::from_fn(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                AtomicU64::new(if random >> 63 == 0 {
                    random >> 20
                } else {
                    random >> 20 & 0xFFFF_0000_0000_FF0F
                })
            });
            let _ = [false, true].map(|exit| run(&program, exit, &Made::new(b"some memory\0")));
        }
    }
}

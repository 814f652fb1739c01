//! Positions of arguments and results: the registers of the System V psABI for x86-64, section
//! 3.2.3, and of the Itanium C++ ABI.

use super::classes::{Class, Classes};
use super::{Shape, Type, Types, WORD};

/// Position of a parameter when the function is entered, or of a result when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// In an integer register, by its index among those of arguments, or of results.
    Integer(u8),
    /// In this and the next integer register.
    Pair(u8),
    /// In a vector register.
    Vector(u8),
    /// On the stack, this many words above the return address.
    Stack(u8),
    /// In memory whose address is in an integer register.
    Address(u8),
    /// In memory whose address is on the stack.
    AddressOnStack(u8),
    /// Not readable as a whole, with the reason.
    Unread(Unread),
}

crate::reasons! {
    /// The reason why a parameter or a result cannot be read as a whole.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Unread;

    /// The value takes integer and vector registers, or two vector registers.
    Apart = "apart", "is passed in several registers", "name its registers: arg1, fparg1";
    /// The value is larger than a word, though only one register is used.
    Wide = "wide", "is larger than a word", "read a member of it";
    /// The value is larger than a word and on the stack.
    OnStack = "on-stack", "is larger than a word and passed on the stack", "none";
    /// The value is so far up the stack that its position cannot be encoded.
    Far = "far", "is too far up the stack", "none";
    /// The value of a Go function does not fit into the registers that are left.
    GoStack = "on-go-stack", "is passed on the stack", "none";
    /// The value is a number of x87.
    X87 = "x87", "is a number of x87", "none";
    /// The value is a vector, or a number of 128 bits, in one vector register.
    Vector = "vector", "is wider than a word and passed in a vector register", "read its lower half: fparg1";
    /// The value is an empty class, which is not passed.
    Empty = "empty", "is empty: nothing is passed", "none";
    /// The value is nullptr, for which a compiler may leave a register as it is.
    Null = "null", "is nullptr: no value is passed", "none";
    /// The debugging information has another register, or names another convention.
    Convention = "other-convention", "is not passed as the calling convention of its language says: the function has another one, or the compiler has changed it", "name registers: arg1, arg2";
    /// LLVM leaves out the places of parameters that a function does not use, and does not pass
    /// these within a file.
    NoPlace = "no-place", "has no place in the debugging information: perhaps it is not used, and not passed", "name registers: arg1, arg2";
    /// The position depends on how the program was compiled, and perhaps those of later arguments,
    /// too.
    Unknown = "unknown-place", "is passed where debugging information does not tell", "name registers: arg1, arg2";
}

impl Types {
    /// Returns the position of a function's result, and whether the caller passes an address for it
    /// as the first argument.
    pub(super) fn returned(&self, of: Type, rust: bool) -> (Passed, bool) {
        let (classes, size) = (self.classes_of(of), of.shape.size());
        let own = [Passed::Address(0), Passed::Unread(Unread::X87)];
        match classes.registers()[..] {
            _ if classes.unknown => (Passed::Unread(Unread::Unknown), false),
            _ if size == 0 => (Passed::Unread(Unread::Empty), false),
            _ if classes.null => (Passed::Unread(Unread::Null), false),
            _ if classes.by_reference || classes.memory => (own[0], true),
            _ if classes.is_x87() => (own[1], false),
            [] => (Passed::Unread(Unread::Empty), false),
            // Rust returns any pair in the registers that C uses for integers.
            [_, _] if rust && of.shape != Shape::Slice => (Passed::Unread(Unread::Apart), false),
            _ => (classes.in_registers(of, 0, 0), false),
        }
    }
}

impl Classes {
    /// Position of a value in registers, from these on.
    fn in_registers(&self, of: Type, integer: u8, vector: u8) -> Passed {
        match self.registers()[..] {
            [false] if self.words[1] == Class::SseUp => Passed::Unread(Unread::Vector),
            [_] if of.shape.size() > WORD => Passed::Unread(Unread::Wide),
            [true] => Passed::Integer(integer),
            [true, true] if matches!(of.shape, Shape::Slice | Shape::View) => Passed::Pair(integer),
            [false] => Passed::Vector(vector),
            _ => Passed::Unread(Unread::Apart),
        }
    }
}

impl Shape {
    /// Bytes of a value.
    pub fn size(self) -> u64 {
        match self {
            Shape::Other(size) => size,
            Shape::Slice | Shape::View | Shape::Interface { .. } => 2 * WORD,
            Shape::Signed(size) | Shape::Unsigned(size) | Shape::Float(size) => size.into(),
            Shape::Bool | Shape::Char { .. } => 1,
            Shape::Pointer | Shape::Text | Shape::String => WORD,
        }
    }
}

/// The next free registers and stack words for arguments.
#[derive(Default)]
pub(super) struct Next {
    integer: u8,
    vector: u8,
    /// Words of the stack that are taken.
    stack: u64,
    /// Whether the positions of further arguments are unknown, as that of an earlier one was; for
    /// those in integer registers only if `integers_unknown` is set, too.
    unknown: bool,
    integers_unknown: bool,
    /// Whether a nullptr precedes, whose register compilers based on LLVM do not count.
    after_null: bool,
}

impl Next {
    const INTEGERS: u8 = 6;
    const VECTORS: u8 = 8;

    /// Positions left by a result: behind the address that a caller passes for it, or unknown if
    /// the result's position is.
    pub(super) fn behind_result(passed: Option<(Passed, bool)>) -> Next {
        let is_unknown = matches!(passed, Some((Passed::Unread(Unread::Unknown), _)));
        let takes = matches!(passed, Some((_, true)));
        Next { integer: takes.into(), unknown: is_unknown, integers_unknown: is_unknown, ..Next::default() }
    }

    /// Notes that the positions of all further arguments are unknown.
    pub(super) fn lose(&mut self) {
        (self.unknown, self.integers_unknown) = (true, true);
    }

    /// Assigns an argument its position.
    pub(super) fn place(&mut self, of: Type, classes: Classes, rust: bool, gcc: bool) -> Passed {
        let size = of.shape.size();
        if classes.unknown {
            // A vector takes a vector register or the stack; any other value may take any position.
            self.unknown = true;
            self.integers_unknown |= !classes.registers().is_empty() || !is_vector(of, size);
            return Passed::Unread(Unread::Unknown);
        }
        let registers = classes.registers();
        let integers = registers.iter().filter(|integer| **integer).count() as u8;
        let vectors = registers.len() as u8 - integers;
        let by_address = classes.by_reference || classes.memory && rust;
        let elsewhere = !by_address && (vectors > 0 || classes.memory || classes.is_x87());
        if self.unknown && (self.integers_unknown || elsewhere) {
            // A value that takes registers of both kinds is in them or on the stack as a whole.
            self.integers_unknown |= integers > 0;
            return Passed::Unread(Unread::Unknown);
        }
        if by_address {
            return self.address();
        }
        if size == 0 || registers.is_empty() && !classes.memory && !classes.is_x87() {
            return Passed::Unread(Unread::Empty);
        }
        let fits = self.integer + integers <= Next::INTEGERS && self.vector + vectors <= Next::VECTORS;
        if !fits && !gcc && (classes.wide || self.after_null && integers > 0 && size > WORD) {
            // Before version 18, compilers based on LLVM passed one half of such a number in the
            // last register, or aligned it otherwise. Behind a nullptr they take a register too
            // many to be free, and split a structure likewise.
            (self.unknown, self.integers_unknown) = (true, true);
            return Passed::Unread(Unread::Unknown);
        }
        if classes.memory || classes.is_x87() || !fits {
            let why = if classes.is_x87() { Unread::X87 } else { Unread::OnStack };
            let passed = self.on_stack(size, classes.align, why);
            return if classes.null { Passed::Unread(Unread::Null) } else { passed };
        }
        self.after_null |= classes.null;
        let passed = if classes.null {
            Passed::Unread(Unread::Null)
        } else {
            classes.in_registers(of, self.integer, self.vector)
        };
        self.integer += integers;
        self.vector += vectors;
        passed
    }

    fn on_stack(&mut self, size: u64, align: u64, why: Unread) -> Passed {
        if self.unknown {
            return Passed::Unread(Unread::Unknown);
        }
        let start = self.stack.next_multiple_of((align / WORD).max(1));
        self.stack = start.saturating_add(size.div_ceil(WORD));
        match u8::try_from(start + 1) {
            _ if size > WORD => Passed::Unread(why),
            Ok(at) => Passed::Stack(at),
            Err(_) => Passed::Unread(Unread::Far),
        }
    }

    fn address(&mut self) -> Passed {
        if self.integer < Next::INTEGERS {
            self.integer += 1;
            return Passed::Address(self.integer - 1);
        }
        match self.on_stack(WORD, WORD, Unread::OnStack) {
            Passed::Stack(at) => Passed::AddressOnStack(at),
            other => other,
        }
    }
}

/// Whether the value may be a vector wider than those that all processors have.
fn is_vector(of: Type, size: u64) -> bool {
    matches!(of.shape, Shape::Other(_)) && matches!(size, 32 | 64)
}

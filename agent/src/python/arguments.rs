//! Arguments of Python functions: which of a function's parameters are read, and their values.
//!
//! An argument is an object that the frame holds. Values of the interpreter's own simple types are
//! read by their layouts; of others, the name of the type. No code of the interpreter runs.

use super::coroutines::Run;
use super::layout::Layout;
use super::place::Place;
use super::text::Text;
use crate::state::Session;
use crate::values;
use calltap_abi::event::code;
use calltap_abi::python::arguments::{MAX_ARGUMENTS, NAMES, TEXT, kind};
use calltap_abi::python::coroutine::{OUTERMOST, RESUMED};
use calltap_abi::python::{Entry, Table};
use calltap_abi::values::STORED;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

// Flags of code: it has a parameter for further positional arguments, and one for keywords.
const TAKES_MORE: u32 = 4;
const TAKES_KEYWORDS: u32 = 8;

// Offsets in a tuple.
const SIZE: u64 = 16;
const ITEMS: u64 = 24;

// Offsets in every object, and in a type.
const TYPE: u64 = 8;
const TYPE_NAME: u64 = 24;
const TYPE_FLAGS: u64 = 168;
/// Flag of a type that a program has made, of whatever name.
const IS_MADE: u64 = 1 << 9;
/// Offset of the object in a cell, of a float's number, and of an integer's size and digits.
const IN_CELL: u64 = 16;
const NUMBER: u64 = 16;
const DIGITS: u64 = 24;
/// Bits of a digit.
const DIGIT: u32 = 30;

/// Parameters of a code object.
struct Parameters<'a> {
    layout: &'a Layout,
    /// The tuple of their names.
    names: Place,
    count: u64,
}

impl<'a> Parameters<'a> {
    fn of(layout: &'a Layout, code: Place) -> Parameters<'a> {
        let number = |offset| u64::from(code.half(offset));
        let flags = code.half(layout.flags);
        let further = u64::from(flags & TAKES_MORE != 0) + u64::from(flags & TAKES_KEYWORDS != 0);
        let names = code.target(layout.parameter_names);
        let count = number(layout.positional) + number(layout.keyword_only) + further;
        Parameters { layout, names, count: count.min(names.word(SIZE)) }
    }

    fn name(&self, n: u64) -> Option<Text> {
        Text::new(self.layout, self.names.follow(ITEMS + 8 * n)?)
    }
}

/// Returns the bytes of a text in UTF-8.
fn utf8(text: Text) -> impl Iterator<Item = u8> {
    (0..text.length).flat_map(move |n| {
        let mut bytes = [0; 4];
        let length = text.character(n).unwrap_or('\u{fffd}').encode_utf8(&mut bytes).len();
        bytes.into_iter().take(length)
    })
}

/// Notes which parameters of a new function are read, and their names.
pub fn choose(table: &Table, layout: &Layout, entry: &Entry, code: Place) {
    entry.arguments.store(0, Relaxed);
    entry.names_length.store(0, Relaxed);
    let parameters = Parameters::of(layout, code);
    for names in table.rules_for(entry) {
        if names.is_empty() {
            (0..parameters.count).for_each(|n| add(entry, &parameters, n));
        }
        for wanted in names.split(|byte| byte.load(Relaxed) == b',') {
            let is_it = |name: Text| utf8(name).eq(wanted.iter().map(|byte| byte.load(Relaxed)));
            let found = (0..parameters.count).find(|n| parameters.name(*n).is_some_and(is_it));
            found.into_iter().for_each(|n| add(entry, &parameters, n));
        }
    }
}

/// Adds a parameter to those of a function that are read, if there is room.
fn add(entry: &Entry, parameters: &Parameters, n: u64) {
    let (count, length) = (entry.arguments.load(Relaxed), entry.names_length.load(Relaxed));
    let (Some(name), Ok(local)) = (parameters.name(n), u8::try_from(n)) else { return };
    let known = entry.locals.iter().take(count as usize);
    if known.into_iter().any(|known| known.load(Relaxed) == local) {
        return;
    }
    let Some(place) = entry.locals.get(count as usize).filter(|_| (count as usize) < MAX_ARGUMENTS) else {
        return;
    };
    let size = utf8(name).count() + 1;
    if length as usize + size > NAMES {
        return;
    }
    let room = entry.names.iter().skip(length as usize);
    room.zip(utf8(name).chain([b','])).for_each(|(place, byte): (&AtomicU8, u8)| place.store(byte, Relaxed));
    place.store(local, Relaxed);
    entry.names_length.store(length + size as u32, Relaxed);
    entry.arguments.store(count + 1, Relaxed);
}

/// Values that are being collected: two bytes with a bit for each that cannot be read, and the
/// bytes of the others.
struct Values {
    bytes: [u8; STORED],
    length: usize,
    count: u32,
}

impl Values {
    fn put(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
    }

    /// Marks the present value as one that cannot be read.
    fn miss(&mut self) {
        if let Some(mask) = self.bytes.get_mut(self.count as usize / 8 % 2) {
            *mask |= 1 << (self.count % 8);
        }
    }

    /// Puts a kind and a text, as far as there is room for it.
    fn put_text(&mut self, kind: u8, text: impl Iterator<Item = u8>) {
        let mut bytes = [0; TEXT];
        let mut length = 0;
        let mut more = 0;
        for byte in text {
            match bytes.get_mut(length) {
                Some(place) => {
                    *place = byte;
                    length += 1;
                }
                None => {
                    more = 0x80;
                    break;
                }
            }
        }
        self.put([kind, length as u8 | more]);
        self.put(bytes.into_iter().take(length));
    }

    /// Adds an object of the interpreter, if there is one.
    fn add(&mut self, layout: &Layout, object: Option<Place>) {
        let put = self.put_object(layout, object, true);
        if put.is_none() {
            self.miss();
        }
        self.count += 1;
    }

    fn put_object(&mut self, layout: &Layout, object: Option<Place>, may_be_cell: bool) -> Option<()> {
        let object = object?;
        let of = object.target(TYPE);
        let is_own = of.word(TYPE_FLAGS) & IS_MADE == 0;
        let is = |name: &[u8]| is_own && type_name(of).eq(name.iter().copied());
        let number = || integer(layout, object);
        if is(b"cell") && may_be_cell {
            return self.put_object(layout, object.follow(IN_CELL), false);
        } else if is(b"NoneType") {
            self.put_text(kind::WORD, b"None".iter().copied());
        } else if is(b"bool") {
            self.put([if number()? == 0 { kind::FALSE } else { kind::TRUE }]);
        } else if let Some(number) = number().filter(|_| is(b"int")) {
            self.put([kind::INTEGER].into_iter().chain(number.to_le_bytes()));
        } else if is(b"float") {
            let bits = object.word(NUMBER);
            self.put([kind::FLOAT].into_iter().chain(bits.to_le_bytes()));
        } else if let Some(text) = Some(object).filter(|_| is(b"str")).and_then(|it| Text::new(layout, it)) {
            self.put_text(kind::TEXT, utf8(text));
        } else {
            self.put_text(kind::WORD, [b'<'].into_iter().chain(type_name(of)).chain([b'>']));
        }
        Some(())
    }
}

/// Returns the name of a type.
fn type_name(of: Place) -> impl Iterator<Item = u8> {
    let name = of.target(TYPE_NAME);
    (0..TEXT as u64).map(move |n| name.byte(n)).take_while(|byte| *byte != 0)
}

/// Returns an integer, if it has no more than 63 bits.
fn integer(layout: &Layout, object: Place) -> Option<i64> {
    let size = object.word(NUMBER);
    let (count, is_negative) = if layout.tags_integers {
        (size >> 3, size & 3 == 2)
    } else {
        ((size as i64).unsigned_abs(), (size as i64) < 0)
    };
    if count > 3 {
        return None;
    }
    let mut number = 0_u64;
    for n in 0..count {
        let digit = u64::from(object.half(DIGITS + 4 * n));
        if n == 2 && digit > 7 {
            return None;
        }
        number |= digit << (DIGIT * n as u32);
    }
    Some(if is_negative { (number as i64).wrapping_neg() } else { number as i64 })
}

/// Writes the values of an entry, in front of its event: which coroutine runs, and the arguments.
/// `locals`: place of the frame's first local. If there is no room the event finds none either,
/// and is counted.
pub fn enter(
    session: Session,
    layout: &Layout,
    (entry, run, locals): (&Entry, Option<Run>, Place),
    (stub, slot): (u32, u64),
) {
    let count = entry.arguments.load(Relaxed);
    if count == 0 && run.is_none() {
        return;
    }
    let mut values = Values { bytes: [0; STORED], length: 2, count: 0 };
    if session.python().identifies(entry) {
        match run {
            Some(run) => {
                let resumed = if run.resumed { RESUMED } else { 0 };
                let outermost = if run.outermost { OUTERMOST } else { 0 };
                values.put(run.object.to_le_bytes().into_iter().chain([resumed | outermost]));
                values.count = 2;
            }
            None => {
                for _ in 0..2 {
                    values.miss();
                    values.count += 1;
                }
            }
        }
    }
    for local in entry.locals.iter().take(count as usize) {
        values.add(layout, locals.follow(8 * u64::from(local.load(Relaxed))));
    }
    let low = (slot as u32) << 22 ^ stub | code::ARGUMENTS;
    let _ = values::write(session, low, values.bytes.get(..values.length).unwrap_or_default());
}

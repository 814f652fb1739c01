//! Text of the interpreter's objects, and text that is written to an entry.
//!
//! The thread holds the interpreter's lock, and the frame holds the objects.

use super::layout::Layout;
use super::place::Place;
use calltap_abi::python::{Entry, NAME};
use core::sync::atomic::Ordering::Relaxed;

// Offsets in str (PyASCIIObject).
const LENGTH: u64 = 16;
const STATE: u64 = 32;

/// A `str` object whose characters follow its head.
#[derive(Clone, Copy)]
pub struct Text {
    data: Place,
    /// Number of characters.
    pub length: u64,
    /// Bytes of a character.
    pub width: u64,
}

impl Text {
    /// Returns the text of an object; `None` if its characters lie elsewhere.
    pub fn new(layout: &Layout, object: Place) -> Option<Text> {
        let state = object.half(STATE);
        let (kind, is_compact, is_ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1, state >> 6 & 1);
        let data = object.at(if is_ascii != 0 { layout.ascii_data } else { layout.compact_data });
        let is_known = is_compact != 0 && matches!(kind, 1 | 2 | 4);
        is_known.then(|| Text { data, length: object.word(LENGTH), width: kind })
    }

    /// Returns character number `n`.
    pub fn character(&self, n: u64) -> Option<char> {
        let at = n * self.width;
        let code = match self.width {
            1 => u32::from(self.data.byte(at)),
            2 => u32::from(self.data.quarter(at)),
            _ => self.data.half(at),
        };
        char::from_u32(code)
    }

    /// Whether this is the text `wanted`, in ASCII.
    pub fn is(&self, wanted: &[u8]) -> bool {
        let bytes = (0..self.length).zip(wanted);
        self.length == wanted.len() as u64
            && self.width == 1
            && bytes.into_iter().all(|(n, wanted)| self.data.byte(n) == *wanted)
    }
}

/// Writer of text to an entry, from `at` on and up to `end`.
pub struct Writer<'a> {
    /// The entry that is written to.
    pub entry: &'a Entry,
    /// Number of bytes in use.
    pub at: usize,
    /// Number of bytes that may be used.
    pub end: usize,
}

impl Writer<'_> {
    /// Adds the name of another entry.
    pub fn add_name(&mut self, other: &Entry) {
        let length = (other.name.load(Relaxed) as usize).min(NAME);
        other.text.iter().take(length).for_each(|byte| self.put_byte(byte.load(Relaxed)));
    }

    /// Adds the name of a function's scope, and what stands behind it.
    pub fn add_scope(&mut self, scope: &Entry, behind: &[u8]) {
        self.add_name(scope);
        behind.iter().for_each(|byte| self.put_byte(*byte));
    }

    /// Adds a byte of UTF-8, if there is room.
    pub fn put_byte(&mut self, byte: u8) {
        if let Some(place) = self.entry.text.get(self.at..self.end).and_then(|room| room.first()) {
            place.store(byte, Relaxed);
            self.at += 1;
        }
    }

    /// Adds a character. Returns `None` if there is no room.
    pub fn put(&mut self, character: char) -> Option<()> {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        let room = self.entry.text.get(self.at..self.end)?.get(..bytes.len())?;
        room.iter().zip(bytes).for_each(|(place, byte)| place.store(*byte, Relaxed));
        self.at += bytes.len();
        Some(())
    }

    /// Adds the characters of a text from number `from` on, as far as there is room.
    pub fn add(&mut self, text: Text, from: u64) {
        for n in from..text.length {
            // A surrogate stands in a file name that is not UTF-8.
            if self.put(text.character(n).unwrap_or('\u{fffd}')).is_none() {
                return;
            }
        }
    }
}

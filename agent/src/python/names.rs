//! What a Python function is called: read from its code object and the globals of its frame, without a call of the interpreter.
//!
//! Unsafe because it reads the interpreter's objects, at the offsets that CPython 3.11 has them. The thread holds the interpreter's lock, and the frame
//! holds the objects.

use calltap_abi::python::{Entry, NAME, TEXT};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

// Offsets in every object,
const TYPE: u64 = 8;
// PyCodeObject,
const FIRST_LINE: u64 = 72;
const FILE_NAME: u64 = 112;
const QUALIFIED_NAME: u64 = 128;
// str (PyASCIIObject, PyCompactUnicodeObject),
const LENGTH: u64 = 16;
const STATE: u64 = 32;
const ASCII_DATA: u64 = 48;
const COMPACT_DATA: u64 = 72;
// dict (PyDictObject), and its keys (PyDictKeysObject).
const KEYS: u64 = 32;
const VALUES: u64 = 40;
const LOG2_INDEX_BYTES: u64 = 9;
const KIND: u64 = 10;
const ENTRIES: u64 = 24;
const INDICES: u64 = 32;
/// Keys that are searched for `__name__`, which is the first of a module's.
const SEARCHED: u64 = 64;

fn word(address: u64) -> u64 {
    // SAFETY: the interpreter has an aligned word there: see the head of the file.
    unsafe { &*(address as *const AtomicU64) }.load(Relaxed)
}

fn half(address: u64) -> u32 {
    // SAFETY: as `word`.
    unsafe { &*(address as *const AtomicU32) }.load(Relaxed)
}

fn byte(address: u64) -> u8 {
    // SAFETY: as `word`.
    unsafe { &*(address as *const AtomicU8) }.load(Relaxed)
}

/// A `str` object whose characters lie behind it.
#[derive(Clone, Copy)]
struct Text {
    data: u64,
    length: u64,
    /// Bytes of a character.
    width: u64,
}

impl Text {
    fn new(object: u64) -> Option<Text> {
        if object == 0 {
            return None;
        }
        let state = half(object + STATE);
        let (kind, is_compact, is_ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1, state >> 6 & 1);
        let data = object + if is_ascii != 0 { ASCII_DATA } else { COMPACT_DATA };
        let is_known = is_compact != 0 && matches!(kind, 1 | 2 | 4);
        is_known.then(|| Text { data, length: word(object + LENGTH), width: kind })
    }

    fn character(&self, n: u64) -> Option<char> {
        let at = self.data + n * self.width;
        let code = match self.width {
            1 => u32::from(byte(at)),
            // SAFETY: as `word`; a string of this kind has characters of two bytes.
            2 => u32::from(unsafe { &*(at as *const AtomicU16) }.load(Relaxed)),
            _ => half(at),
        };
        char::from_u32(code)
    }

    fn is(&self, wanted: &[u8]) -> bool {
        let bytes = (0..self.length).zip(wanted);
        self.length == wanted.len() as u64
            && self.width == 1
            && bytes.into_iter().all(|(n, byte_wanted)| byte(self.data + n) == *byte_wanted)
    }
}

/// Text that is put together in an entry, from `at` on and up to `end`.
struct Writer<'a> {
    entry: &'a Entry,
    at: usize,
    end: usize,
}

impl Writer<'_> {
    fn put(&mut self, character: char) -> Option<()> {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        let room = self.entry.text.get(self.at..self.end)?.get(..bytes.len())?;
        room.iter().zip(bytes).for_each(|(place, byte)| place.store(*byte, Relaxed));
        self.at += bytes.len();
        Some(())
    }

    /// Adds characters of a text from one on, as far as there is room.
    fn add(&mut self, text: Text, from: u64) {
        for n in from..text.length {
            // A surrogate, as in a file name that is not UTF-8.
            if self.put(text.character(n).unwrap_or('\u{fffd}')).is_none() {
                return;
            }
        }
    }
}

/// The value of `__name__` in the globals of a frame, if it is a `str` like `name`.
fn module(globals: u64, name: u64) -> Option<Text> {
    if globals == 0 || word(globals + VALUES) != 0 {
        return None;
    }
    let keys = word(globals + KEYS);
    let is_general = byte(keys + KIND) == 0;
    let (size, key) = if is_general { (24, 8) } else { (16, 0) };
    let first = keys + INDICES + (1_u64.checked_shl(byte(keys + LOG2_INDEX_BYTES).into())?);
    let string = word(name + TYPE);
    for n in 0..word(keys + ENTRIES).min(SEARCHED) {
        let at = first + n * size + key;
        let (key, value) = (word(at), word(at + 8));
        if key != 0 && word(key + TYPE) == string && Text::new(key).is_some_and(|key| key.is(b"__name__")) {
            return if value != 0 && word(value + TYPE) == string { Text::new(value) } else { None };
        }
    }
    None
}

/// Writes down the name, the file and the line of a code object.
pub fn write(entry: &Entry, code: u64, globals: u64) {
    let qualified = word(code + QUALIFIED_NAME);
    let file = Text::new(word(code + FILE_NAME));
    let mut writer = Writer { entry, at: 0, end: NAME };
    if let Some(module) = module(globals, qualified) {
        writer.add(module, 0);
        let _ = writer.put('.');
    }
    if let Some(name) = Text::new(qualified) {
        writer.add(name, 0);
    }
    let name = writer.at;
    let mut writer = Writer { entry, at: name, end: TEXT };
    if let Some(file) = file {
        // Of a path that is too long, the end says more.
        let most = (TEXT - NAME) as u64 / if file.width == 1 { 2 } else { 3 + (file.width == 4) as u64 };
        let from = file.length.saturating_sub(most);
        writer.add(file, from);
    }
    entry.line.store(half(code + FIRST_LINE), Relaxed);
    entry.name.store(name as u32, Relaxed);
    entry.file.store((writer.at - name) as u32, Relaxed);
}

/// The name of an entry, as bytes.
pub fn with_name<T>(entry: &Entry, take: impl FnOnce(&[u8]) -> T) -> T {
    let mut name = [0; NAME];
    let length = (entry.name.load(Relaxed) as usize).min(NAME);
    for (byte, place) in name.iter_mut().zip(&entry.text) {
        *byte = place.load(Relaxed);
    }
    take(name.get(..length).unwrap_or_default())
}

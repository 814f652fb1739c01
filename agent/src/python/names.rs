//! What a Python function is called: read from its code object and the globals of its frame, without a call of the interpreter.
//!
//! Unsafe because characters of two bytes are read. The thread holds the interpreter's lock, and the frame holds the objects.

use super::layout::{Keys, Layout};
use super::scopes;
use crate::state::Session;
use calltap_abi::python::{Entry, NAME, TEXT};
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

// Offsets in every object,
const TYPE: u64 = 8;
// str (PyASCIIObject),
const LENGTH: u64 = 16;
const STATE: u64 = 32;
// and dict (PyDictObject).
const KEYS: u64 = 32;
const VALUES: u64 = 40;
/// Keys that are searched for `__name__`, which is the first of a module's.
const SEARCHED: u64 = 64;

fn word(address: u64) -> u64 {
    super::word(address).load(Relaxed)
}

fn half(address: u64) -> u32 {
    super::half(address).load(Relaxed)
}

fn byte(address: u64) -> u8 {
    super::byte(address).load(Relaxed)
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
    fn new(layout: &Layout, object: u64) -> Option<Text> {
        if object == 0 {
            return None;
        }
        let state = half(object + STATE);
        let (kind, is_compact, is_ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1, state >> 6 & 1);
        let data = object + if is_ascii != 0 { layout.ascii_data } else { layout.compact_data };
        let is_known = is_compact != 0 && matches!(kind, 1 | 2 | 4);
        is_known.then(|| Text { data, length: word(object + LENGTH), width: kind })
    }

    fn character(&self, n: u64) -> Option<char> {
        let at = self.data + n * self.width;
        let code = match self.width {
            1 => u32::from(byte(at)),
            // SAFETY: a string of this kind has characters of two bytes.
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
pub struct Writer<'a> {
    entry: &'a Entry,
    at: usize,
    end: usize,
}

impl<'a> Writer<'a> {
    /// The entry that is written to.
    pub fn entry(&self) -> &'a Entry {
        self.entry
    }

    /// Adds the name of another entry.
    pub fn add_name(&mut self, other: &Entry) {
        let length = (other.name.load(Relaxed) as usize).min(NAME);
        other.text.iter().take(length).for_each(|byte| self.put_byte(byte.load(Relaxed)));
    }

    /// Adds a byte of UTF-8, if there is room.
    pub fn put_byte(&mut self, byte: u8) {
        if let Some(place) = self.entry.text.get(self.at..self.end).and_then(|room| room.first()) {
            place.store(byte, Relaxed);
            self.at += 1;
        }
    }

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

/// Where the entries of a dict's keys begin, how many there are, the bytes of one, and where it has its key.
fn entries(layout: &Layout, keys: u64) -> Option<(u64, u64, u64, u64)> {
    if layout.keys == Keys::Sized {
        // dk_refcnt, dk_size, dk_lookup, dk_usable, dk_nentries, and the indices.
        let size = word(keys + 8);
        let index = match size {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => return None,
        };
        return Some((keys + 40 + size * index, word(keys + 32), 24, 8));
    }
    // dk_log2_index_bytes, dk_kind, dk_nentries, and the indices.
    let is_general = byte(keys + 10) == 0;
    let (size, key) = if is_general { (24, 8) } else { (16, 0) };
    let first = keys + 32 + 1_u64.checked_shl(byte(keys + 9).into())?;
    Some((first, word(keys + 24), size, key))
}

/// The value of `__name__` in the globals of a frame, if it is a `str` like `name`.
fn module(layout: &Layout, globals: u64, name: u64) -> Option<Text> {
    if globals == 0 || word(globals + VALUES) != 0 {
        return None;
    }
    let (first, count, size, key) = entries(layout, word(globals + KEYS))?;
    let string = word(name + TYPE);
    for n in 0..count.min(SEARCHED) {
        let at = first + n * size + key;
        let (key, value) = (word(at), word(at + 8));
        let is_name =
            |key| word(key + TYPE) == string && Text::new(layout, key).is_some_and(|key| key.is(b"__name__"));
        if key != 0 && is_name(key) {
            let is_text = value != 0 && word(value + TYPE) == string;
            return if is_text { Text::new(layout, value) } else { None };
        }
    }
    None
}

/// Writes down the name, the file and the line of a code object.
pub fn write(session: Session, layout: &Layout, entry: &Entry, code: u64, globals: u64) {
    let own = word(code + layout.name);
    let file = Text::new(layout, word(code + layout.file_name));
    entry.line.store(half(code + layout.first_line), Relaxed);
    let mut writer = Writer { entry, at: 0, end: NAME };
    let is_whole = scopes::write(session, &mut writer, layout, code, |writer| {
        if let Some(module) = module(layout, globals, own) {
            writer.add(module, 0);
            let _ = writer.put('.');
        }
    });
    if let Some(name) = Text::new(layout, own).filter(|_| !is_whole) {
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

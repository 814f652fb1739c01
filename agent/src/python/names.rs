//! The name of a Python function: read from its code object and the globals of its frame, without a
//! call of the interpreter.

use super::layout::{Keys, Layout};
use super::scopes;
use super::text::{Text, Writer};
use super::{half_at, word_at};
use crate::state::Session;
use calltap_abi::python::{Entry, NAME, TEXT};
use core::sync::atomic::Ordering::Relaxed;

// Offset in every object.
const TYPE: u64 = 8;
// Offsets in dict (PyDictObject).
const KEYS: u64 = 32;
const VALUES: u64 = 40;
/// Number of keys that are searched for `__name__`, which is the first of a module's.
const SEARCHED: u64 = 64;

fn byte(address: u64) -> u8 {
    super::byte(address).load(Relaxed)
}

/// Returns the address and number of the entries of a dict's keys, the size of an entry, and the
/// offset of the key in it.
fn entries(layout: &Layout, keys: u64) -> Option<(u64, u64, u64, u64)> {
    if layout.keys == Keys::Sized {
        // dk_refcnt, dk_size, dk_lookup, dk_usable, dk_nentries, and the indices.
        let size = word_at(keys + 8);
        let index = match size {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => return None,
        };
        return Some((keys + 40 + size * index, word_at(keys + 32), 24, 8));
    }
    // dk_log2_index_bytes, dk_kind, dk_nentries, and the indices.
    let is_general = byte(keys + 10) == 0;
    let (size, key) = if is_general { (24, 8) } else { (16, 0) };
    let first = keys + 32 + 1_u64.checked_shl(byte(keys + 9).into())?;
    Some((first, word_at(keys + 24), size, key))
}

/// Returns the value of `__name__` in the globals of a frame, if it is a `str` like `name`.
fn module(layout: &Layout, globals: u64, name: u64) -> Option<Text> {
    if globals == 0 || word_at(globals + VALUES) != 0 {
        return None;
    }
    let (first, count, size, key) = entries(layout, word_at(globals + KEYS))?;
    let string = word_at(name + TYPE);
    for n in 0..count.min(SEARCHED) {
        let at = first + n * size + key;
        let (key, value) = (word_at(at), word_at(at + 8));
        let is_name = |key| {
            word_at(key + TYPE) == string && Text::new(layout, key).is_some_and(|key| key.is(b"__name__"))
        };
        if key != 0 && is_name(key) {
            let is_text = value != 0 && word_at(value + TYPE) == string;
            return if is_text { Text::new(layout, value) } else { None };
        }
    }
    None
}

/// Writes the name, the file and the line of a code object to its entry.
pub fn write(session: Session, layout: &Layout, entry: &Entry, code: u64, globals: u64) {
    let own = word_at(code + layout.name);
    let file = Text::new(layout, word_at(code + layout.file_name));
    entry.line.store(half_at(code + layout.first_line), Relaxed);
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
        // The end of a path that is too long says more than its beginning.
        let most = (TEXT - NAME) as u64 / if file.width == 1 { 2 } else { 3 + (file.width == 4) as u64 };
        let from = file.length.saturating_sub(most);
        writer.add(file, from);
    }
    entry.name.store(name as u32, Relaxed);
    entry.file.store((writer.at - name) as u32, Relaxed);
}

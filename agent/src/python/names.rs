//! The name of a Python function: read from its code object and the globals of its frame, without a
//! call of the interpreter.

use super::layout::{Keys, Layout};
use super::place::Place;
use super::scopes;
use super::text::{Text, Writer};
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

/// Returns the place and number of the entries of a dict's keys, the size of an entry, and the
/// offset of the key in it.
fn entries(layout: &Layout, keys: Place) -> Option<(Place, u64, u64, u64)> {
    if layout.keys == Keys::Sized {
        // dk_refcnt, dk_size, dk_lookup, dk_usable, dk_nentries, and the indices.
        let size = keys.word(8);
        let index = match size {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => return None,
        };
        return Some((keys.at(40 + size * index), keys.word(32), 24, 8));
    }
    // dk_log2_index_bytes, dk_kind, dk_nentries, and the indices.
    let is_general = keys.byte(10) == 0;
    let (size, key) = if is_general { (24, 8) } else { (16, 0) };
    let first = keys.at(32 + 1_u64.checked_shl(keys.byte(9).into())?);
    Some((first, keys.word(24), size, key))
}

/// Returns the value of `__name__` in the globals of a frame, if it is a `str` like `name`.
fn module(layout: &Layout, globals: Place, name: Place) -> Option<Text> {
    if globals.word(VALUES) != 0 {
        return None;
    }
    let (first, count, size, key) = entries(layout, globals.target(KEYS))?;
    let string = name.word(TYPE);
    let is_string = |object: &Place| object.word(TYPE) == string;
    let is_name = |key: Place| Text::new(layout, key).is_some_and(|key| key.is(b"__name__"));
    for n in 0..count.min(SEARCHED) {
        let at = first.at(n * size + key);
        if at.follow(0).filter(is_string).is_some_and(is_name) {
            return at.follow(8).filter(is_string).and_then(|value| Text::new(layout, value));
        }
    }
    None
}

/// Writes the name, the file and the line of a code object to its entry.
pub fn write(session: Session, layout: &Layout, entry: &Entry, code: Place, globals: Option<Place>) {
    let own = code.follow(layout.name);
    let file = code.follow(layout.file_name).and_then(|file| Text::new(layout, file));
    entry.line.store(code.half(layout.first_line), Relaxed);
    let mut writer = Writer { entry, at: 0, end: NAME };
    let is_whole = scopes::write(session, &mut writer, layout, code, |writer| {
        let module = globals.zip(own).and_then(|(globals, own)| module(layout, globals, own));
        if let Some(module) = module {
            writer.add(module, 0);
            let _ = writer.put('.');
        }
    });
    if let Some(name) = own.and_then(|own| Text::new(layout, own)).filter(|_| !is_whole) {
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

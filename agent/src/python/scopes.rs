//! The qualified name of a Python function where its code object has none, up to CPython 3.10.
//!
//! The function, class or module in which a function is defined has the function's code object
//! among its constants. Its own code ran before, so it is known if it ran while the program was
//! traced.

use super::layout::{Layout, Scope};
use super::text::Writer;
use crate::state::Session;
use crate::sys;
use calltap_abi::python::{Entry, state};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// Offset of a tuple's length.
const LENGTH: u64 = 16;
/// Offset of a tuple's items.
const ITEMS: u64 = 24;
/// Number of constants that are searched.
const SEARCHED: u64 = 4096;
/// Number of constants that are copied at a time.
const AT_ONCE: usize = 64;
/// CO_OPTIMIZED: the code is a function's, and not a class's or a module's.
const OPTIMIZED: u32 = 1;

/// Copies a word of an object by a system call: an object that another process of the session has
/// added to the table need not exist in this one.
fn copied(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    sys::read_memory(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// Whether a tuple of constants has this item.
fn has_constant(constants: u64, wanted: u64) -> bool {
    let Some(length) = copied(constants + LENGTH) else { return false };
    let mut bytes = [0; 8 * AT_ONCE];
    let length = length.min(SEARCHED);
    (0..length).step_by(AT_ONCE).any(|first| {
        let count = (length - first).min(AT_ONCE as u64) as usize;
        let Some(piece) = bytes.get_mut(..8 * count) else { return false };
        sys::read_memory(constants + ITEMS + 8 * first, piece)
            && piece.as_chunks().0.iter().any(|item| u64::from_le_bytes(*item) == wanted)
    })
}

/// Writes the names of the scopes of a function, each followed by a dot: its module, classes and
/// functions. Returns true if that included the function's own name, as the process that forked
/// this one knows the function.
pub fn write(
    session: Session,
    writer: &mut Writer<'_>,
    layout: &Layout,
    code: u64,
    module: impl FnOnce(&mut Writer<'_>),
) -> bool {
    let Some(Scope { constants, flags }) = layout.scope else {
        module(writer);
        return false;
    };
    if session.control().unreadable.load(Relaxed) != 0 {
        module(writer);
        return false;
    }
    let file = copied(code + layout.file_name);
    let own = writer.entry;
    let line = own.line.load(Relaxed);
    let is_around = |entry: &&Entry| {
        entry.state.load(Acquire) != state::FILLING
            && !core::ptr::eq(*entry, own)
            && entry.line.load(Relaxed) <= line
            && copied(entry.code.load(Relaxed) + layout.file_name) == file
    };
    let twin = |entry: &&Entry| entry.code.load(Relaxed) == code && entry.line.load(Relaxed) == line;
    let mut candidates = session.python().taken().iter().filter(is_around);
    let encloses = |entry: &Entry| {
        let tuple = copied(entry.code.load(Relaxed) + constants);
        tuple.is_some_and(|tuple| has_constant(tuple, code))
    };
    match candidates.find(|entry| twin(entry) || encloses(entry)) {
        Some(known) if twin(&known) => {
            writer.add_name(known);
            true
        }
        Some(scope) => {
            let is_function = copied(scope.code.load(Relaxed) + flags).unwrap_or(0) as u32 & OPTIMIZED != 0;
            if !is_function && scope.with_name(|name| name.ends_with(b"<module>")) {
                module(writer);
            } else {
                writer.add_name(scope);
                let behind: &[u8] = if is_function { b".<locals>." } else { b"." };
                behind.iter().for_each(|byte| writer.put_byte(*byte));
            }
            false
        }
        None => {
            module(writer);
            false
        }
    }
}

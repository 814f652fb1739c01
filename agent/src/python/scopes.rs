//! The qualified name of a Python function where its code object has none, up to CPython 3.10.
//!
//! The function, class or module in which a function is defined has the function's code object
//! among its constants. Its own code ran before, so it is known if it ran while the program was
//! traced.

use super::layout::{Layout, Scope};
use super::place::Place;
use super::text::Writer;
use crate::state::Session;
use crate::sys;
use calltap_abi::python::scopes::Relation;
use calltap_abi::python::{Entry, Table, state};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// Offset of an object's type.
const TYPE: u64 = 8;
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

/// Adds the code objects that a new entry names: its own, and those of functions that are defined
/// in it. The thread holds the interpreter's lock, and the code object all of its constants.
pub fn add(table: &Table, layout: &Layout, index: u32, code: Place) {
    let Some(Scope { constants, flags }) = layout.scope else { return };
    table.scopes.add(code.address(), Relation::Own, index);
    let is_function = code.half(flags) & OPTIMIZED != 0;
    let relation = if is_function { Relation::InFunction } else { Relation::InBody };
    let tuple = code.target(constants);
    for n in 0..tuple.word(LENGTH).min(SEARCHED) {
        let item = tuple.target(ITEMS + 8 * n);
        if item.word(TYPE) == code.word(TYPE) {
            table.scopes.add(item.address(), relation, index);
        }
    }
}

/// The entry that says how a code object is named.
enum Known<'a> {
    /// The entry of the code object.
    Own(&'a Entry),
    /// The entry of the module or class in which it is defined.
    Body(&'a Entry),
    /// The entry of the function in which it is defined.
    Function(&'a Entry),
}

/// Finds the entry that says how a code object is named. `own`: its new entry. An entry of another
/// process counts if this process has the same objects, as it was forked; this is read only if
/// `may_copy`.
fn find<'a>(
    table: &'a Table,
    scope: &Scope,
    file_name: u64,
    code: Place,
    own: &Entry,
    may_copy: bool,
) -> Option<Known<'a>> {
    let (line, process) = (own.line.load(Relaxed), own.process.load(Relaxed));
    let has_it = |entry: &Entry| {
        let around = entry.code.load(Relaxed);
        may_copy
            && copied(around + file_name) == Some(code.word(file_name))
            && copied(around + scope.constants).is_some_and(|tuple| has_constant(tuple, code.address()))
    };
    table.scopes.of(code.address()).find_map(|(relation, index)| {
        let entry = table.entries.get(index as usize)?;
        // The object of an entry of this process is never freed, and its constants stay.
        let is_here = entry.process.load(Relaxed) == process;
        let is_scope = || entry.line.load(Relaxed) <= line && (is_here || has_it(entry));
        let is_same = || is_here || entry.code.load(Relaxed) == code.address();
        match relation {
            _ if entry.state.load(Acquire) == state::FILLING => None,
            Relation::Own => (entry.line.load(Relaxed) == line && is_same()).then_some(Known::Own(entry)),
            Relation::InBody => is_scope().then_some(Known::Body(entry)),
            Relation::InFunction => is_scope().then_some(Known::Function(entry)),
        }
    })
}

/// Writes the names of the scopes of a function, each followed by a dot: its module, classes and
/// functions. Returns true if that included the function's own name, as the function has an entry
/// already.
pub fn write(
    session: Session,
    writer: &mut Writer<'_>,
    layout: &Layout,
    code: Place,
    module: impl FnOnce(&mut Writer<'_>),
) -> bool {
    let may_copy = session.control().unreadable.load(Relaxed) == 0;
    let scope = layout.scope.as_ref();
    let find = |scope| find(session.python(), scope, layout.file_name, code, writer.entry, may_copy);
    let is_module = |entry: &Entry| entry.with_name(|name| name.ends_with(b"<module>"));
    match scope.and_then(find) {
        Some(Known::Own(entry)) => {
            writer.add_name(entry);
            return true;
        }
        Some(Known::Body(entry)) if !is_module(entry) => writer.add_scope(entry, b"."),
        Some(Known::Function(entry)) => writer.add_scope(entry, b".<locals>."),
        Some(Known::Body(_)) | None => module(writer),
    }
    false
}

//! The known Python functions: each code object that was called has an entry in the session's
//! table, and its own site.

use super::layout::Layout;
use super::place::Place;
use super::{arguments, coroutines, names, scopes};
use crate::register;
use crate::state::{STUBS, Session};
use calltap_abi::python::Entry;
use calltap_abi::stub;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Returns the stub part of the event words of this function: the low half of the address of the
/// stub that its site would have.
pub fn stub_of(entry: &Entry) -> u32 {
    let site = entry.site.load(Relaxed) as usize % stub::COUNT;
    (STUBS.load(Relaxed) + site * stub::SIZE) as u32
}

/// Returns the entry of a code object, adding it at its first call. Returns `None` if events are
/// not recorded now, or if there is no room, which is counted if `enters`.
pub fn function(
    session: Session,
    layout: &Layout,
    code: Place,
    enters: bool,
    globals: impl FnOnce() -> Option<Place>,
) -> Option<&'static Entry> {
    let process = register::register_process(session)?;
    let table = session.python();
    if table.is_paused() {
        return None;
    }
    let known = table.find(code.address(), process);
    let entry = known.or_else(|| introduce(session, layout, process, code, globals()));
    if entry.is_none() && enters {
        table.header.missed.fetch_add(1, Relaxed);
    }
    entry
}

/// Adds an entry for a code object.
#[cold]
#[inline(never)]
fn introduce(
    session: Session,
    layout: &Layout,
    process: u32,
    code: Place,
    globals: Option<Place>,
) -> Option<&'static Entry> {
    let table = session.python();
    let rules = table.header.rules_version.load(SeqCst);
    let (index, entry) = table.take()?;
    entry.code.store(code.address(), Relaxed);
    entry.process.store(process, Relaxed);
    let is_coroutine = coroutines::is_coroutine(code, layout.flags);
    entry.is_coroutine.store(is_coroutine.into(), Relaxed);
    names::write(session, layout, entry, code, globals);
    arguments::choose(table, layout, entry, code);
    // The entry holds a reference, under the interpreter's lock: so the object stays, and no other
    // one gets its address. The count is the first word of every object.
    let count = code.word(0);
    if !layout.is_immortal(count) {
        code.store_word(0, count + 1);
    }
    let is_known = table.introduce(index, entry);
    scopes::add(table, layout, index, code);
    // The recorder may have looked for functions of other rules before this one was known.
    if table.has_other_rules(rules) {
        entry.retire();
    }
    is_known.then_some(entry)
}

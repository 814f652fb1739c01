//! The known Python functions: each code object that was called has an entry in the session's
//! table, and its own site.

use super::layout::Layout;
use super::{arguments, coroutines, names, scopes, word};
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
    code: u64,
    enters: bool,
    globals: impl FnOnce() -> u64,
) -> Option<&'static Entry> {
    let process = register::register_process(session)?;
    let table = session.python();
    if table.is_paused() {
        return None;
    }
    let known = table.find(code, process);
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
    code: u64,
    globals: u64,
) -> Option<&'static Entry> {
    let table = session.python();
    let rules = table.header.rules_version.load(SeqCst);
    let (index, entry) = table.take()?;
    entry.code.store(code, Relaxed);
    entry.process.store(process, Relaxed);
    let is_coroutine = coroutines::is_coroutine(code, layout.flags);
    entry.is_coroutine.store(is_coroutine.into(), Relaxed);
    names::write(session, layout, entry, code, globals);
    arguments::choose(table, layout, entry, code);
    // The entry holds a reference, under the interpreter's lock: so the object stays, and no other
    // one gets its address. The count is the first word of every object.
    let references = word(code);
    let count = references.load(Relaxed);
    if !layout.is_immortal(count) {
        references.store(count + 1, Relaxed);
    }
    let is_known = table.introduce(index, entry);
    scopes::add(table, layout, index, code);
    // The recorder may have looked for functions of other rules before this one was known.
    if table.has_other_rules(rules) {
        entry.retire();
    }
    is_known.then_some(entry)
}

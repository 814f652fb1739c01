//! Rules for a function without room, however it would be patched.

use super::facts::FunctionFacts;
use crate::discover::parts::Unproven;
use crate::reason::Reason;

/// The kernel or the dynamic linker jumps to the program's entry point: it has no return address.
pub(super) fn is_entry_point(facts: &FunctionFacts<'_>) -> Option<Reason> {
    (facts.address == facts.file.entry).then_some(Reason::EntryPoint)
}

/// The unwinding information begins with another stack than behind a call.
pub(super) fn has_odd_stack(facts: &FunctionFacts<'_>) -> Option<Reason> {
    (facts.file.frames.get(&facts.address) == Some(&false)).then_some(Reason::OddStack)
}

/// It is not proven to be a function. Code without references never runs, unless an unresolved jump
/// leads there.
pub(super) fn may_be_part(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let unproven = facts.file.parts.unproven.get(&facts.n)?;
    let is_dead = *unproven == Unproven::Unreached && facts.file.branches.unresolved.is_empty();
    (!is_dead).then(|| unproven.reason())
}

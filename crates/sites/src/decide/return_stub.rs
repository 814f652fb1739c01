//! Rules for a return stub, whose address replaces the return address while a function runs.

use super::facts::FunctionFacts;
use crate::reason::Reason;

pub(super) fn reads_return_address(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let at = *facts.file.rows.readers.get(&facts.address)?;
    Some(Reason::ReadsReturnAddress { at })
}

pub(super) fn moves_return_address(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let at = *facts.file.lost.get(&facts.address)?;
    Some(Reason::MovesReturnAddress { at })
}

pub(super) fn pops_arguments(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let at = *facts.file.argument_pops.get(&facts.address)?;
    Some(Reason::PopsArguments { at })
}

pub(super) fn may_pop_arguments(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let at = *facts.file.argument_pops_elsewhere.get(&facts.address)?;
    Some(Reason::MayPopArguments { at })
}

pub(super) fn is_of_virtual_machine(facts: &FunctionFacts<'_>) -> Option<Reason> {
    facts.file.machine.map(|name| Reason::Machine { name: name.to_owned() })
}

//! Rules for rewriting the exits of a function, before each exit is looked at.

use super::facts::FunctionFacts;
use crate::discover::go_exits;
use crate::reason::Reason;
use crate::site::SiteForm;

pub(super) fn has_room_at_entry(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let is_of_prologue = matches!(
        facts.function.form(),
        Some(
            SiteForm::Prologue { .. }
                | SiteForm::PaddingJump { .. }
                | SiteForm::Trap { .. }
                | SiteForm::Checked { .. }
                | SiteForm::Unchecked { .. }
        )
    );
    (!is_of_prologue).then_some(Reason::RoomAtEntry)
}

pub(super) fn has_unknown_goroutine(facts: &FunctionFacts<'_>) -> Option<Reason> {
    matches!(facts.function.form(), Some(SiteForm::Checked { goroutine: None, .. }))
        .then_some(Reason::GoVersion)
}

pub(super) fn ends_goroutine(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let is_of_go = facts.function.form().is_some_and(SiteForm::is_of_go);
    (is_of_go && facts.function.name == go_exits::LAST).then_some(Reason::GoEnds)
}

/// Functions of the runtime that call `setg` and return: r14 has another goroutine then than at
/// their beginning, or none.
const SETS_GOROUTINE: [&str; 6] = [
    "runtime.dropm",
    "runtime.needm",
    "runtime.needAndBindM",
    "runtime.sigtrampgo",
    "runtime.adjustSignalStack",
    "runtime.adjustSignalStack2",
];

pub(super) fn sets_goroutine(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let is_of_go = facts.function.form().is_some_and(SiteForm::is_of_go);
    (is_of_go && SETS_GOROUTINE.contains(&&*facts.function.name)).then_some(Reason::GoSetsGoroutine)
}

pub(super) fn is_go_assembly(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let Some(SiteForm::Checked { old, .. }) = facts.function.form() else { return None };
    (!go_exits::keeps_g(old)).then_some(Reason::GoAssembly)
}

pub(super) fn shares_many_parts(facts: &FunctionFacts<'_>) -> Option<Reason> {
    facts.file.parts.are_entangled(facts.n).then_some(Reason::SharesParts)
}

/// Instructions of an exit would be executed out of line.
pub(super) fn may_throw_out_of_line(facts: &FunctionFacts<'_>) -> Option<Reason> {
    facts.file.rows.faults_throw.then_some(Reason::FaultThrows)
}

/// Whether data may lie behind a call: the callee then goes on behind the data. What is decoded
/// there may not be the instructions in front of an exit.
pub(super) fn may_have_data_behind_calls(facts: &FunctionFacts<'_>) -> Option<Reason> {
    let FunctionFacts { file, address, function, .. } = *facts;
    // Go's compiler and the assembler of a virtual machine write no unwinding information, either.
    let is_of_go = function.form().is_some_and(SiteForm::is_of_go);
    let is_hand_written = !is_of_go && file.machine.is_none() && file.is_hand_written(address);
    (is_hand_written && file.branches.calls(address)).then_some(Reason::DataBehindCalls)
}

pub(super) fn runs_on(facts: &FunctionFacts<'_>) -> Option<Reason> {
    facts.file.branches.runs_on(facts.address).then_some(Reason::RunsOn)
}

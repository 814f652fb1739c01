//! Rules for a site of a function without room, once there is one.

use super::facts::SiteFacts;
use crate::code::decode::instructions;
use crate::reason::Reason;
use crate::site::SiteForm;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// Each turn of a loop would count as a call.
pub(super) fn loops_to_entry(site: &SiteFacts<'_>) -> Option<Reason> {
    site.of.file.branches.loops_to(site.of.at).then_some(Reason::LoopsToEntry)
}

/// The copy of an instruction has no unwinding information, so an exception that a handler throws
/// at a fault in it would end the program. Pushes cannot throw: a fault on the stack leaves the
/// handler no stack.
pub(super) fn may_throw_out_of_line(site: &SiteFacts<'_>) -> Option<Reason> {
    let (SiteForm::Prologue { at, old } | SiteForm::PaddingJump { at, old, .. } | SiteForm::Trap { at, old }) =
        site.form
    else {
        return None;
    };
    let may_fault = || instructions(old, at.0).any(|instruction| may_fault(&instruction));
    (site.of.file.rows.faults_throw && may_fault()).then_some(Reason::FaultThrows)
}

/// Whether an instruction may fault other than by a push.
fn may_fault(instruction: &Instruction) -> bool {
    let accesses = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    let reads = accesses && !matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
    reads
        || instruction.is_string_instruction()
        || matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv)
}

/// Breakpoints are used on request only.
pub(super) fn needs_breakpoint(site: &SiteFacts<'_>) -> Option<Reason> {
    let why = site.no_jump.filter(|_| matches!(site.form, SiteForm::Trap { .. }) && !site.of.file.int3)?;
    Some(Reason::OnlyBreakpoint { why: Box::new(why.clone()) })
}

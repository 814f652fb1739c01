//! Functions that are found when they first call the profiling function.

use iced_x86::{FlowControl, Mnemonic};

use super::{FIRST_CALL, refusal};
use crate::address::Svma;
use crate::binary::{Profiler, ProfilingFunction};
use crate::code::decode::instructions;
use crate::code::prologue::Prologue;
use crate::elf::plt;
use crate::function::{Function, Verdict};
use crate::reason::Reason;
use crate::site::SiteForm;

/// Refuses the profiling functions of a file, which the session overwrites itself.
pub(crate) fn refuse_profilers(functions: &mut [Function], profilers: &[Profiler]) {
    for profiler in profilers {
        if let Ok(n) = functions.binary_search_by_key(&profiler.address, |function| function.address) {
            let kind = functions[n].kind();
            functions[n].verdict = Verdict::Refused { kind, reason: Reason::Profiler, on_demand: false };
        }
    }
}

/// The session overwrites a profiling function itself.
pub(super) fn is_profiler(function: &Function) -> Option<Reason> {
    function.reason().filter(|reason| **reason == Reason::Profiler).cloned()
}

/// Returns the site of a function whose call at `at` has led to a profiling function. It has one if
/// the call is the first thing that it does, and its return address can be found.
/// `known`: the function, if a file has it. `code`: its bytes, up to behind the call.
pub fn called(
    known: Option<&Function>,
    code: &[u8],
    function: Svma,
    at: Svma,
    profiling_function: ProfilingFunction,
) -> Option<SiteForm> {
    if known.is_some_and(|known| refusal(FIRST_CALL, known).is_some()) {
        return None;
    }
    let offset = usize::try_from(at.0.checked_sub(function.0)?).ok()?;
    let old = code.get(offset..)?.to_vec();
    let mut prologue = Prologue::new();
    let mut next = function.0;
    for instruction in instructions(code, function.0) {
        next = instruction.ip();
        // A prefix or a linker's NOP may precede the five bytes of the call.
        if next >= at.0 || instruction.next_ip() > at.0 && instruction.mnemonic() == Mnemonic::Call {
            break;
        }
        let straight =
            matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
        if !straight {
            return None;
        }
        prologue.step(&instruction);
    }
    if next > at.0 {
        return None;
    }
    match profiling_function {
        ProfilingFunction::Fentry => {
            is_at_entry(code, at.0 - function.0).then_some(SiteForm::Entry { at, old })
        }
        ProfilingFunction::Mcount => prologue.frame_is_set().then_some(SiteForm::AfterPrologue { at, old }),
    }
}

fn is_at_entry(code: &[u8], offset: u64) -> bool {
    let before = code.get(..offset as usize).unwrap_or_default();
    let before = before.strip_prefix(&plt::ENDBR64).unwrap_or(before);
    matches!(before, [] | [0x90] | [0x67])
}

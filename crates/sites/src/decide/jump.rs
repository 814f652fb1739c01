//! A jump over the prologue of a function without room, and the sites that take its place: a jump
//! in the padding in front of the function, and a breakpoint.

use super::facts::{FunctionFacts, PrologueFacts};
use super::{PROLOGUE, refusal};
use crate::address::Svma;
use crate::code::decode::{MAX_INSTRUCTION_LEN, decoder};
use crate::code::movable::check_movable;
use crate::code::{nops, padding};
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm};
use crate::watch::Watch;
use calltap_abi::PAGE;

/// Returns the form of a function's site; for another form than a jump over the prologue, also why
/// such a jump is not possible.
pub(super) fn form(facts: FunctionFacts<'_>) -> Result<(SiteForm, Option<Reason>), Reason> {
    let prologue = PrologueFacts::decode(facts);
    let Some(reason) = refusal(PROLOGUE, &prologue) else {
        let old = prologue.displaced().unwrap_or_default().to_vec();
        return Ok((SiteForm::Prologue { at: Svma(facts.at), old }, None));
    };
    match padding_jump(&facts).or_else(|| breakpoint(&facts)) {
        Some(form) => Ok((form, Some(reason))),
        None => Err(reason),
    }
}

/// An instruction cannot be executed out of line.
pub(super) fn has_unmovable_instruction(prologue: &PrologueFacts<'_>) -> Option<Reason> {
    prologue.instructions().find_map(|instruction| {
        let end = instruction.next_ip().wrapping_sub(prologue.of.at);
        check_movable(instruction, end).err()
    })
}

/// The code ends within the jump, and does not leave the function.
pub(super) fn is_cut_short(prologue: &PrologueFacts<'_>) -> Option<Reason> {
    prologue.runs_out.then_some(match prologue.length {
        0 => Reason::Empty,
        bytes => Reason::ShortAndRunsOn { bytes },
    })
}

/// Other bytes than padding lie between the function's end and that of the jump.
pub(super) fn is_too_short(prologue: &PrologueFacts<'_>) -> Option<Reason> {
    let FunctionFacts { at, next, file, .. } = prologue.of;
    if prologue.length >= JUMP {
        return None;
    }
    let (from, to) = (at.saturating_add(prologue.length), at.saturating_add(JUMP));
    // The jump may cut the last NOP in two: no thread executes it.
    let room = next.saturating_sub(from).min(JUMP + MAX_INSTRUCTION_LEN);
    let padding = file.image.tail(from, room);
    let is_filler = |code: &[u8]| code.iter().all(|byte| matches!(byte, 0xCC | 0x00));
    let wanted = (to - from) as usize;
    let filled = padding.get(..wanted).is_some_and(is_filler) || nops::run(padding) >= wanted;
    (!filled || to > next).then_some(Reason::Short { bytes: JUMP - (to - from) })
}

pub(super) fn is_not_in_file(prologue: &PrologueFacts<'_>) -> Option<Reason> {
    prologue.displaced().is_none().then_some(Reason::CutOff)
}

/// An indirect jump that may lead to any instruction may lead to one of several displaced ones.
pub(super) fn is_landed_in_by_unresolved_jump(prologue: &PrologueFacts<'_>) -> Option<Reason> {
    let FunctionFacts { at, n, file, function, .. } = prologue.of;
    let first = decoder(file.image.tail(at, MAX_INSTRUCTION_LEN), at).decode();
    // longjmp jumps to where setjmp was called.
    if first.len() as u64 >= JUMP
        || matches!(function.watch, Some(Watch::NonlocalExit(_) | Watch::Unwinding(_)))
    {
        return None;
    }
    file.unresolved_jump_into(n).map(|jump| Reason::IndirectJumpInside { at: jump })
}

/// A write within one page is whole even if the writer is killed.
pub(super) fn lies_in_two_pages(prologue: &PrologueFacts<'_>) -> Option<Reason> {
    (prologue.of.at % PAGE > PAGE - JUMP).then_some(Reason::TwoPages)
}

/// A branch lands behind the first byte of the jump.
pub(super) fn is_jumped_into(prologue: &PrologueFacts<'_>) -> Option<Reason> {
    let FunctionFacts { at, address, file, .. } = prologue.of;
    file.branches.behind(at, JUMP).map(|target| Reason::JumpedIntoByte { byte: target - address })
}

/// Returns a site with its jump in the padding in front of the function, if there is room and no
/// branch lands in the displaced instruction.
fn padding_jump(facts: &FunctionFacts<'_>) -> Option<SiteForm> {
    let FunctionFacts { at, address, end, before, file, .. } = *facts;
    let form = padding::jump(file.image, (address, at, end), before)?;
    let SiteForm::PaddingJump { old, .. } = &form else { return None };
    file.branches.behind(at, old.len() as u64).is_none().then_some(form)
}

/// Returns a breakpoint site, if the first instruction can be executed out of line. The bytes
/// behind its first one stay, so a jump may land there.
fn breakpoint(facts: &FunctionFacts<'_>) -> Option<SiteForm> {
    let FunctionFacts { at, end, file, .. } = *facts;
    let code = file.image.tail(at, end.saturating_sub(at).min(MAX_INSTRUCTION_LEN));
    let first = decoder(code, at).decode();
    check_movable(&first, JUMP).ok()?;
    Some(SiteForm::Trap { at: Svma(at), old: file.image.bytes(at, first.len() as u64)?.to_vec() })
}

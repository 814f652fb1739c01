//! Sites of Go functions that do not check their stack. A leaf with a small frame needs no check;
//! others must not be interrupted, or run while the runtime switches stacks.
//!
//! Whether there is room for a hook is seen at each call: the out-of-line copy compares the stack
//! pointer with the bounds of the goroutine's stack in front of the stub, as a stack check does
//! ([`calltap_patch`](../../calltap_patch/index.html), `guard.rs`). That is possible in a function
//! that the compiler made: it finds its goroutine in r14, and r12 free. Neither is so in assembly.
//!
//! The rules keep a goroutine from resuming in the middle of a jump. A leaf may be preempted at any
//! instruction, so that there are three forms:
//!
//! ```text
//! jump:     jmp copy                      no goroutine resumes behind its first byte: there is no
//!                                         instruction, or no point at which Go preempts
//! padding:  front: jmp copy               the padding between functions
//!           entry: jmp front              in place of the first instruction, of two bytes or more
//! pushed:   entry: push %rbp              stays
//!                  jmp front              in place of mov %rsp,%rbp; the copy takes rbp back
//! ```

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::go::GoFacts;
use super::{GO_UNCHECKED, refusal};
use crate::address::Svma;
use crate::code::decode::decoder;
use crate::discover::go_exits::is_harmless;
use crate::reason::Reason;
use crate::site::{GOffsets, JUMP, SiteForm};
use calltap_abi::PAGE;

/// Bytes of a short jump.
const SHORT: u64 = 2;
/// `push %rbp`, and the `mov %rsp,%rbp` behind it.
const PUSH: u64 = 1;
const FRAME: [u8; 4] = [0x55, 0x48, 0x89, 0xE5];
/// Filler between functions.
const FILLER: u8 = 0xCC;
/// Most bytes that one jump displaces.
const LONGEST: u64 = 16;

/// Functions that run while r14 does not hold the goroutine of the stack, or that stack has no
/// bounds yet: in a signal handler, in a C thread that calls Go, and at the start of a thread.
/// Calls of them would be counted as lost.
const OTHER_STACK: [&str; 20] = [
    "runtime.sigtrampgo",
    "runtime.sigFetchG",
    "runtime.sigfwdgo",
    "runtime.adjustSignalStack",
    "runtime.adjustSignalStack2",
    "runtime.setGsignalStack",
    "runtime.sigprofNonGo",
    "runtime.sigprofNonGoPC",
    "runtime.badsignal",
    "runtime.signalDuringFork",
    "runtime.needm",
    "runtime.needAndBindM",
    "runtime.callbackUpdateSystemStack",
    "runtime.getExtraM",
    "runtime.lockextra",
    "runtime.unlockextra",
    "runtime.osyield_no_g",
    "runtime.mstart0",
    "runtime.newosproc0",
    "runtime.libpreinit",
];

/// Functions that run in a child between vfork and execve, on the stack of the parent's thread.
const FORK: [&str; 8] = [
    "syscall.forkAndExecInChild",
    "syscall.forkAndExecInChild1",
    "syscall.runtime_AfterForkInChild",
    "runtime.syscall_runtime_AfterForkInChild",
    "runtime.clearSignalHandlers",
    "syscall.RawSyscall",
    "syscall.RawSyscall6",
    "syscall.rawSyscallNoError",
];

/// Returns the site of a function without a stack check, or why it has none.
pub(super) fn site(facts: &GoFacts<'_>) -> Result<SiteForm, Reason> {
    if let Some(reason) = refusal(GO_UNCHECKED, facts) {
        return Err(reason);
    }
    let goid = facts.goid.ok_or(Reason::GoUnchecked)?;
    let front = front(facts);
    let form = jump(facts, goid).or_else(|why| match front {
        Some(front) => displace_first(facts, front, goid).map_err(|_| why),
        None => Err(why),
    })?;
    match branch_into(facts, &form) {
        Some(reason) => Err(reason),
        None => Ok(form),
    }
}

/// The layouts of `g`, and of the records that say where goroutines resume, are known of listed
/// versions.
pub(super) fn is_of_unknown_version(facts: &GoFacts<'_>) -> Option<Reason> {
    (facts.goid.is_none() || facts.entry?.facts.is_none()).then_some(Reason::GoUnchecked)
}

pub(super) fn is_assembly(facts: &GoFacts<'_>) -> Option<Reason> {
    facts.entry?.facts?.is_assembly.then_some(Reason::GoUncheckedAssembly)
}

/// C code, which Go's linker has taken over into the program.
pub(super) fn is_of_c(facts: &GoFacts<'_>) -> Option<Reason> {
    (!facts.entry?.facts?.is_compiled).then_some(Reason::GoForeign)
}

pub(super) fn runs_on_other_stack(facts: &GoFacts<'_>) -> Option<Reason> {
    is_one_of(facts, &OTHER_STACK).then_some(Reason::GoOtherStack)
}

pub(super) fn is_of_fork(facts: &GoFacts<'_>) -> Option<Reason> {
    is_one_of(facts, &FORK).then_some(Reason::GoFork)
}

fn is_one_of(facts: &GoFacts<'_>, names: &[&str]) -> bool {
    facts.entry.is_some_and(|entry| names.iter().any(|name| name.as_bytes() == entry.name))
}

/// Between assembly and compiled code are wrappers that load r14. The others switch goroutines.
pub(super) fn sets_goroutine(facts: &GoFacts<'_>) -> Option<Reason> {
    decoder(facts.code, facts.address)
        .into_iter()
        .any(|one| sets_r14(&one))
        .then_some(Reason::GoSetsGoroutine)
}

/// Its goroutine may be sent back to its beginning, and the call would count twice.
pub(super) fn restarts(facts: &GoFacts<'_>) -> Option<Reason> {
    facts.entry?.facts?.restarts().then_some(Reason::LoopsToEntry)
}

fn sets_r14(instruction: &Instruction) -> bool {
    let is_g = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == Register::R14
    };
    let reads = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    let swaps = matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd);
    instruction.op_count() > 0 && is_g(0) && !reads || swaps && is_g(1)
}

/// A jump over the first instructions.
fn jump(facts: &GoFacts<'_>, goid: GOffsets) -> Result<SiteForm, Reason> {
    let (mut length, mut resumed) = (0, None);
    for instruction in &mut decoder(facts.code, facts.address) {
        if length >= JUMP {
            break;
        }
        if length > 0 && resumed.is_none() && facts.may_resume_at(length) {
            resumed = Some(Reason::GoResumes { byte: length });
        }
        let end = instruction.next_ip() - facts.address;
        if instruction.flow_control() == FlowControl::Return {
            return returns_at_once(facts, length, end, goid);
        }
        is_movable(&instruction).map_err(|why| resumed.clone().unwrap_or(why))?;
        length = end;
    }
    if length < JUMP {
        return Err(Reason::Short { bytes: length });
    }
    if let Some(resumed) = resumed {
        return Err(resumed);
    }
    if facts.address % PAGE > PAGE - JUMP || length > LONGEST {
        return Err(Reason::TwoPages);
    }
    let (at, old) = (Svma(facts.address), facts.code[..length as usize].to_vec());
    Ok(SiteForm::Unchecked { front: at, front_old: Vec::new(), at, old, pushed: false, goid })
}

/// A jump over a function that is nothing but a return, and padding.
fn returns_at_once(facts: &GoFacts<'_>, at: u64, end: u64, goid: GOffsets) -> Result<SiteForm, Reason> {
    let old = facts.code.get(..JUMP as usize).ok_or(Reason::Short { bytes: end })?;
    let is_padded = old[end.min(JUMP) as usize..].iter().all(|byte| *byte == FILLER);
    if at > 0 || !is_padded {
        return Err(Reason::Short { bytes: end });
    }
    if facts.address % PAGE > PAGE - JUMP {
        return Err(Reason::TwoPages);
    }
    let (at, old) = (Svma(facts.address), old.to_vec());
    Ok(SiteForm::Unchecked { front: at, front_old: Vec::new(), at, old, pushed: false, goid })
}

/// A jump in the padding, and a short one to it in place of the first instruction, or of the second
/// behind `push %rbp`.
fn displace_first(facts: &GoFacts<'_>, front: (u64, &[u8]), goid: GOffsets) -> Result<SiteForm, Reason> {
    let pushed = facts.code.starts_with(&FRAME);
    let offset = if pushed { PUSH } else { 0 };
    let (front, padding) = front;
    let at = facts.address + offset;
    let first = decoder(&facts.code[offset as usize..], at).decode();
    is_movable(&first)?;
    let length = first.len() as u64;
    if length < SHORT || front / PAGE != (at + SHORT - 1) / PAGE {
        return Err(Reason::TwoPages);
    }
    let old = facts.code[offset as usize..(offset + length) as usize].to_vec();
    let front_old = [padding, &facts.code[..offset as usize]].concat();
    Ok(SiteForm::Unchecked { front: Svma(front), front_old, at: Svma(at), old, pushed, goid })
}

/// Whether the instruction may run out of line.
fn is_movable(instruction: &Instruction) -> Result<(), Reason> {
    if instruction.is_invalid() || instruction.flow_control() == FlowControl::Interrupt {
        return Err(Reason::NoInstructions);
    }
    if instruction.flow_control() != FlowControl::Next {
        let instruction = format!("{:?}", instruction.mnemonic()).to_lowercase();
        return Err(Reason::BeginsWith { instruction });
    }
    let is_fixed = instruction.is_ip_rel_memory_operand();
    (is_fixed || is_harmless(instruction)).then_some(()).ok_or(Reason::GoMayFault)
}

/// Returns the padding in front of the function that a jump may take, with its address: the return
/// in front of it needs some, too.
fn front<'a>(facts: &GoFacts<'a>) -> Option<(u64, &'a [u8])> {
    let (before, code) = facts.before?;
    let is_code = |instruction: &Instruction| instruction.mnemonic() != Mnemonic::Int3;
    let last = decoder(code, before).into_iter().filter(is_code).last()?;
    let front = facts.address.checked_sub(JUMP).filter(|front| last.ip() + JUMP <= *front)?;
    let padding = code.get((front - before) as usize..)?;
    let is_whole = before + code.len() as u64 == facts.address && last.next_ip() <= front;
    (is_whole && padding.iter().all(|byte| *byte == FILLER)).then_some((front, padding))
}

/// Why a branch of the function forbids a site: it leads among the displaced bytes, or to the
/// beginning.
fn branch_into(facts: &GoFacts<'_>, form: &SiteForm) -> Option<Reason> {
    let SiteForm::Unchecked { at, old, .. } = form else { return None };
    let displaced = facts.address + 1..at.0 + (old.len() as u64).max(SHORT);
    facts.branches().find_map(|branch| match branch.near_branch_target() {
        target if target == facts.address => Some(Reason::LoopsToEntry),
        target if displaced.contains(&target) => Some(Reason::JumpedInto),
        _ => None,
    })
}

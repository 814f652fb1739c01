//! Sites of Go functions that do not check their stack. A leaf with a small frame needs no check;
//! others must not be interrupted, or run while the runtime switches stacks.
//!
//! The out-of-line copy looks at each call whether there is room for a hook: it compares the stack
//! pointer with the bounds of the goroutine's stack in front of the stub, as a stack check does
//! (`guard.rs` in `calltap-patch`). A function that the compiler made allows that: its goroutine is
//! in r14, and r12 is free. In assembly neither is so.
//!
//! The rules keep a goroutine from resuming in the middle of the jump, as a leaf may be preempted
//! at any instruction: behind the first byte of the jump there is no instruction, or no point at
//! which Go preempts.
//!
//! Not possible: a short jump, to a long one in the padding in front of the function. A signal may
//! find the thread there, and Go's runtime takes the padding for the function in front. Its tables
//! end before, and the runtime ends the program (`pcvalue` in `runtime/symtab.go`).

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::go_facts::GoFacts;
use super::{GO_UNCHECKED, refusal};
use crate::address::Svma;
use crate::code::decode::decoder;
use crate::discover::go_exits::is_harmless;
use crate::reason::Reason;
use crate::site::{GPlace, JUMP, SiteForm};
use calltap_abi::PAGE;

/// Filler between functions.
const FILLER: u8 = 0xCC;
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
    let layout = facts.layout.ok_or(Reason::GoUnchecked)?;
    let old = displaced(facts)?.to_vec();
    let form = SiteForm::Unchecked { at: Svma(facts.address), old, goroutine: layout.goroutine(GPlace::R14) };
    match branch_into(facts, &form) {
        Some(reason) => Err(reason),
        None => Ok(form),
    }
}

/// The layouts of `g`, and of the records that say where goroutines resume, are known of listed
/// versions.
pub(super) fn is_of_unknown_version(facts: &GoFacts<'_>) -> Option<Reason> {
    (facts.layout.is_none() || facts.entry?.facts.is_none()).then_some(Reason::GoUnchecked)
}

pub(super) fn is_assembly(facts: &GoFacts<'_>) -> Option<Reason> {
    facts.entry?.facts?.is_assembly.then_some(Reason::GoUncheckedAssembly)
}

/// C code, which Go's linker has taken over into the program.
pub(super) fn is_of_c(facts: &GoFacts<'_>) -> Option<Reason> {
    (!facts.entry?.is_compiled).then_some(Reason::GoForeign)
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

/// The runtime may send a goroutine back to the function's beginning; the call would count twice.
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

/// Returns the bytes that a jump displaces.
fn displaced<'a>(facts: &GoFacts<'a>) -> Result<&'a [u8], Reason> {
    if facts.address % PAGE > PAGE - JUMP {
        return Err(Reason::TwoPages);
    }
    let (mut length, mut resumed) = (0, None);
    for instruction in &mut decoder(facts.code, facts.address) {
        if length >= JUMP {
            break;
        }
        if length > 0 && facts.may_resume_at(length) {
            resumed.get_or_insert(Reason::GoResumes { byte: length });
        }
        let end = instruction.next_ip() - facts.address;
        if instruction.flow_control() == FlowControl::Return {
            return padded_return(facts, length, end);
        }
        is_movable(&instruction).map_err(|why| resumed.clone().unwrap_or(why))?;
        length = end;
    }
    match resumed {
        Some(resumed) => Err(resumed),
        None => facts.code.get(..length as usize).filter(|_| length >= JUMP).ok_or(Reason::CutOff),
    }
}

/// Returns the bytes of a function that is nothing but a return, and of padding behind it.
fn padded_return<'a>(facts: &GoFacts<'a>, at: u64, end: u64) -> Result<&'a [u8], Reason> {
    let old = facts.code.get(..JUMP as usize).filter(|_| at == 0).ok_or(Reason::Short { bytes: end })?;
    let is_padded = old[end.min(JUMP) as usize..].iter().all(|byte| *byte == FILLER);
    is_padded.then_some(old).ok_or(Reason::Short { bytes: end })
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

/// Why a branch of the function forbids a site: it leads among the displaced bytes, or to the
/// beginning.
fn branch_into(facts: &GoFacts<'_>, form: &SiteForm) -> Option<Reason> {
    let SiteForm::Unchecked { at, old, .. } = form else { return None };
    let displaced = at.0 + 1..at.0 + old.len() as u64;
    facts.branches().find_map(|branch| match branch.near_branch_target() {
        target if target == facts.address => Some(Reason::LoopsToEntry),
        target if displaced.contains(&target) => Some(Reason::JumpedInto),
        _ => None,
    })
}

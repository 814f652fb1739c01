//! Sites of Go functions. Their stacks are small and move, so no return address may be replaced:
//! returns are seen at the functions' exits ([`go_exits`](super::go_exits)), and a hook may run
//! only where the stack has room for it.
//!
//! Both are possible because of the check with which most Go functions begin:
//!
//! ```text
//!   start:  cmp 0x10(%r14),%rsp     is more of the stack left than its guard (928 bytes or more)?
//!           jbe more
//!   body:   ...
//!   more:   call runtime.morestack  (grows the stack, or switches to another goroutine)
//!           jmp start
//! ```
//!
//! The jump overwrites the check, which is executed out of line. Only if the check passes, the stub
//! calls the hook and continues at the body. So the hook has room, and a call that runs the check
//! twice counts once. No descheduled goroutine resumes within the jump's five bytes: Go does not
//! preempt between the check's comparison and its branch (an unsafe point), and elsewhere it
//! resumes at an instruction of another form of the check, behind those bytes.

use std::ops::Range;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, MemorySize, Mnemonic, OpKind, Register,
};
use object::LittleEndian as Le;
use object::elf::ProgramHeader64;
use object::read::elf::ProgramHeader as _;

use super::goid;
use super::lookup::Lookup;
use crate::address::Svma;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::pclntab::{self, Entry};
use crate::function::{Function, Verdict};
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm};
use calltap_abi::PAGE;

/// Most notes that are searched for Go's own.
const NOTES: usize = 64;
/// Most instructions of a check, without the load of `g`.
const CHECK: usize = 6;
/// Most bytes of a check.
const CHECK_BYTES: u64 = 64;
/// Most instructions behind a failed check: they save and restore registers with arguments.
const TAIL: usize = 64;
/// Offsets of the two stack guards in `runtime.g`.
const GUARDS: [u64; 2] = [0x10, 0x18];
/// Offset of a thread's `g` from its thread pointer. Newer code has `g` in a register.
const G: u64 = -8i64 as u64;

/// Whether Go's linker made the file.
pub(super) fn is_go(image: &Image<'_>) -> bool {
    const MARKS: [&[u8]; 4] =
        [b".gopclntab", b".data.rel.ro.gopclntab", b".note.go.buildid", b".go.buildinfo"];
    let has_note = |header: &ProgramHeader64<Le>| {
        let mut notes = header.notes(Le, image.data).ok().flatten();
        std::iter::from_fn(|| notes.as_mut()?.next().ok()?).take(NOTES).any(|note| note.name() == b"Go")
    };
    MARKS.iter().any(|name| image.section(name).is_some()) || image.program_headers.iter().any(has_note)
}

/// Adds the functions of a Go program that have no symbol.
pub(super) fn add_functions(image: &Image<'_>, dynamic: &Dynamic<'_>, functions: &mut Vec<Function>) {
    if !is_go(image) {
        return;
    }
    let entries = pclntab::functions(image, dynamic);
    let mut known = Lookup::new(functions);
    let new: Vec<Function> =
        entries.iter().filter(|entry| known.at(entry.address).is_none()).map(function).collect();
    functions.extend(new);
    functions.sort_by_key(|function| function.address);
}

fn function(entry: &Entry<'_>) -> Function {
    Function {
        name: calltap_names::printable_bytes(entry.name),
        aliases: Vec::new(),
        address: Svma(entry.address),
        size: entry.size,
        verdict: Verdict::Open,
        role: Default::default(),
        returns: Default::default(),
        poll: None,
    }
}

/// Finds sites of the Go functions of a file. Returns the range of Go's code, which Go's linker
/// keeps together; the C code outside of it is left alone. Without a table of functions, all code
/// counts as Go's.
pub(super) fn find(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    functions: &mut [Function],
    on_demand: bool,
) -> Range<u64> {
    let entries = pclntab::functions(image, dynamic);
    let goid = goid::word(image, dynamic);
    let code = match (entries.first(), entries.last()) {
        (Some(first), Some(last)) => first.address..last.address + last.size,
        _ => 0..u64::MAX,
    };
    let of_go = |function: &&mut Function| !function.is_traceable() && code.contains(&function.address.0);
    for function in functions.iter_mut().filter(of_go) {
        let entry = entries.binary_search_by_key(&function.address.0, |entry| entry.address);
        let found = entry.map_err(|_| Reason::GoUnknown).and_then(|n| site(image, &entries[n], goid));
        function.verdict = Verdict::unmodified(found, on_demand);
    }
    code
}

fn site(image: &Image<'_>, entry: &Entry<'_>, goid: Option<u8>) -> Result<SiteForm, Reason> {
    let Entry { address, size, name } = *entry;
    if name.starts_with(b"crypto/internal/fips140") {
        return Err(Reason::GoFips);
    }
    let code = image.tail(address, size);
    let check = Check::of(code, address).ok_or(Reason::GoUnchecked)?;
    if !(address..address + size).contains(&check.more) {
        return Err(Reason::GoCheckLeadsOut);
    }
    let back = check.way_back(code, address).ok_or(Reason::GoCheckLost)?;
    for instruction in decoder(code, address) {
        let target = instruction.near_branch_target();
        match instruction.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {}
            _ => continue,
        }
        if (address + 1..address + JUMP).contains(&target) {
            return Err(Reason::JumpedInto);
        }
        if target == address && instruction.ip() != back {
            return Err(Reason::LoopsToEntry);
        }
    }
    // A write within one page is whole even if the writer is killed.
    if address % PAGE > PAGE - JUMP {
        return Err(Reason::TwoPages);
    }
    let old = code[..(check.end - address) as usize].to_vec();
    Ok(SiteForm::Checked { at: Svma(address), old, goid: goid.filter(|_| check.g == Register::R14) })
}

fn decoder(code: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE)
}

/// The stack check at a function's beginning.
struct Check {
    /// Address behind the check.
    end: u64,
    /// Target of the branch that is taken if the stack is too small.
    more: u64,
    /// The register that holds the address of `g`.
    g: Register,
}

impl Check {
    /// Decodes the check at a function's beginning, in any of the forms that compilers have written
    /// since Go 1.16. The frame's size decides the form: compare the stack pointer; compare it less
    /// the frame's size; or that with a test for wrap-around. Assembly, and all code of Go 1.16,
    /// first loads `g`.
    fn of(code: &[u8], address: u64) -> Option<Check> {
        let window = &code[..code.len().min(CHECK_BYTES as usize)];
        let mut instructions = decoder(window, address).into_iter().take(CHECK + 2);
        let mut next = instructions.next()?;
        let mut g = Register::R14;
        if let Some((loaded, more)) = loads_g(&next) {
            g = loaded;
            next = instructions.next()?;
            if more {
                let is_load =
                    moves_to(&next, g) && next.segment_prefix() == Register::FS && next.memory_base() == g;
                next = is_load.then(|| instructions.next())??;
            }
        }
        let mut pointer = Register::RSP;
        let mut less = None;
        match next.mnemonic() {
            Mnemonic::Lea if next.memory_base() == Register::RSP && is_plain(&next) => {
                pointer = next.op0_register();
                next = instructions.next()?;
            }
            Mnemonic::Mov if next.op1_kind() == OpKind::Register && next.op1_register() == Register::RSP => {
                pointer = next.op0_register();
                let sub = instructions.next()?;
                let wraps = instructions.next()?;
                let is_subtraction = sub.mnemonic() == Mnemonic::Sub
                    && sub.op0_register() == pointer
                    && matches!(sub.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
                less = Some(wraps.near_branch_target()).filter(|_| {
                    is_subtraction && matches!(wraps.code(), Code::Jb_rel8_64 | Code::Jb_rel32_64)
                });
                less?;
                next = instructions.next()?;
            }
            _ => {}
        }
        let compares = next.mnemonic() == Mnemonic::Cmp
            && next.op0_kind() == OpKind::Register
            && next.op0_register() == pointer
            && next.op1_kind() == OpKind::Memory
            && next.memory_base() == g
            && is_plain(&next)
            && GUARDS.contains(&next.memory_displacement64());
        let branch = compares.then(|| instructions.next())??;
        let more = branch.near_branch_target();
        let fails = matches!(branch.code(), Code::Jbe_rel8_64 | Code::Jbe_rel32_64);
        let agrees = less.is_none_or(|less| less == more);
        (fails && agrees).then_some(Check { end: branch.next_ip(), more, g })
    }

    /// Address of the jump back to the function's beginning, after the stack has grown.
    fn way_back(&self, code: &[u8], address: u64) -> Option<u64> {
        let tail = code.get((self.more - address) as usize..)?;
        let jump = decoder(tail, self.more)
            .into_iter()
            .take(TAIL)
            .find(|instruction| instruction.flow_control() == FlowControl::UnconditionalBranch)?;
        (jump.near_branch_target() == address).then_some(jump.ip())
    }
}

/// Whether the memory operand has neither index nor segment.
fn is_plain(instruction: &Instruction) -> bool {
    instruction.memory_index() == Register::None && instruction.segment_prefix() == Register::None
}

fn moves_to(instruction: &Instruction, register: Register) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == register
}

/// Returns the register that is loaded with the thread's `g`, and whether a second load follows:
/// then this one loads only the position of `g`.
fn loads_g(instruction: &Instruction) -> Option<(Register, bool)> {
    let register = instruction.op0_register();
    if !moves_to(instruction, register) || register == Register::None {
        return None;
    }
    let is_word = instruction.memory_size() == MemorySize::UInt64;
    match instruction.op1_kind() {
        OpKind::Memory if instruction.segment_prefix() == Register::FS => {
            let is_fixed = instruction.memory_base() == Register::None;
            (is_fixed && is_word && instruction.memory_displacement64() == G).then_some((register, false))
        }
        OpKind::Memory if instruction.memory_base() == Register::RIP => is_word.then_some((register, true)),
        OpKind::Immediate32to64 => (instruction.immediate(1) == G).then_some((register, true)),
        _ => None,
    }
}

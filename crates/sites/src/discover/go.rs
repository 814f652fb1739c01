//! Go functions. Their stacks are small, and move: no return address may be another, so returns are seen at the functions' exits
//! ([`go_exits`](super::go_exits)), and a hook may only run where the stack has room for it.
//!
//! Both follow from the check that most Go functions begin with:
//!
//! ```text
//!   start:  cmp 0x10(%r14),%rsp     is more of the stack left than its guard (928 bytes and more)?
//!           jbe more
//!   body:   ...
//!   more:   call runtime.morestack  (a larger one, or the thread goes to another goroutine)
//!           jmp start
//! ```
//!
//! The jump to be written takes the place of the check, which is run from a copy; only if that has passed, a
//! hook is called, and then goes to the body. So there is room, and a call that comes by twice counts once.
//! And no goroutine that is on no thread comes back to the middle of the jump: Go preempts none between the
//! check's comparison and its branch (a point marked unsafe), and all that it preempts elsewhere come back to
//! where an instruction of other forms of the check begins, behind the jump's five bytes.

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
use crate::function::Function;
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm, SiteKind};
use calltap_abi::PAGE;

/// Its own note comes among so many.
const NOTES: usize = 64;
/// A check has fewer instructions and bytes.
const CHECK: usize = 6;
const CHECK_BYTES: u64 = 64;
/// What follows when it fails has fewer: registers with arguments are put aside and taken back.
const TAIL: usize = 64;
/// `runtime.g`: both guards of its stack.
const GUARDS: [u64; 2] = [0x10, 0x18];
/// Where a thread has its `g`, counted from its thread pointer (found in a register in newer code).
const G: u64 = -8i64 as u64;

/// Is it Go's linker that has made the file?
pub(super) fn is_go(image: &Image<'_>) -> bool {
    const MARKS: [&[u8]; 4] =
        [b".gopclntab", b".data.rel.ro.gopclntab", b".note.go.buildid", b".go.buildinfo"];
    let has_note = |header: &ProgramHeader64<Le>| {
        let mut notes = header.notes(Le, image.data).ok().flatten();
        std::iter::from_fn(|| notes.as_mut()?.next().ok()?).take(NOTES).any(|note| note.name() == b"Go")
    };
    MARKS.iter().any(|name| image.section(name).is_some()) || image.program_headers.iter().any(has_note)
}

/// Adds those functions of a Go program of which there are no symbols.
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
        kind: SiteKind::None,
        form: None,
        reason: None,
        role: Default::default(),
        on_demand: false,
        returns: Default::default(),
        poll: None,
    }
}

/// Finds sites of the Go functions of a file. The range of Go's code: the rest is C, and left alone. Go's
/// linker puts its code together; what cannot be told to be C is not.
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
    let of_go = |function: &&mut Function| function.form.is_none() && code.contains(&function.address.0);
    for function in functions.iter_mut().filter(of_go) {
        let entry = entries.binary_search_by_key(&function.address.0, |entry| entry.address);
        match entry.map_err(|_| Reason::GoUnknown).and_then(|n| site(image, &entries[n], goid)) {
            Ok(form) => {
                (function.kind, function.form, function.on_demand) =
                    (SiteKind::Prologue, Some(form), on_demand);
                function.reason = None;
            }
            Err(reason) => (function.kind, function.reason) = (SiteKind::None, Some(reason)),
        }
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
    // A write to code is whole within a page, should the writer be killed.
    if address % PAGE > PAGE - JUMP {
        return Err(Reason::TwoPages);
    }
    let old = code[..(check.end - address) as usize].to_vec();
    Ok(SiteForm::Checked { at: Svma(address), old, goid: goid.filter(|_| check.g == Register::R14) })
}

fn decoder(code: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE)
}

/// A function's check of its stack.
struct Check {
    /// Behind it.
    end: u64,
    /// Where it leads if there is too little.
    more: u64,
    /// The register that leads to `g`.
    g: Register,
}

impl Check {
    /// What a function begins with, in one of the forms that compilers have written since Go 1.16, by the
    /// size of the frame: the comparison of the stack pointer, of it less the frame's size, and the same
    /// where that may be less than nothing. Assembly, and all code of Go 1.16, first loads `g`.
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

    /// Where the jump is that leads to the function's beginning again when there is more of the stack.
    fn way_back(&self, code: &[u8], address: u64) -> Option<u64> {
        let tail = code.get((self.more - address) as usize..)?;
        let jump = decoder(tail, self.more)
            .into_iter()
            .take(TAIL)
            .find(|instruction| instruction.flow_control() == FlowControl::UnconditionalBranch)?;
        (jump.near_branch_target() == address).then_some(jump.ip())
    }
}

/// Has its memory operand neither index nor segment?
fn is_plain(instruction: &Instruction) -> bool {
    instruction.memory_index() == Register::None && instruction.segment_prefix() == Register::None
}

fn moves_to(instruction: &Instruction, register: Register) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == register
}

/// The register that is loaded with the thread's `g`; the second: with where that is, the load itself
/// follows.
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

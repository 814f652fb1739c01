//! Branches of a file's code and their targets. A site must not overwrite an instruction that is a
//! branch target.
//!
//! All code of a file is decoded once, function by function. The targets of indirect jumps are
//! resolved afterwards (`discover/jumps.rs`, by `tables.rs`), from the addresses that the whole
//! file refers to. Landing pads of exceptions need no care at a function's first bytes: they lie
//! behind calls.

use std::collections::BTreeSet;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::LittleEndian as Le;
use object::elf;

use super::addresses;
use super::nops::ENDBR64;
use super::switches::{self, Indirect};
use super::workers;
use crate::code::decode::decoder;
use crate::elf::image::Image;
use crate::elf::pointers::Pointer;

/// Bytes of an `endbr64`.
const ENDBR: u64 = ENDBR64.len() as u64;

/// Branches of a file's code.
#[derive(Clone, Default)]
pub(crate) struct Branches {
    /// Addresses where control may arrive, in order: targets of jumps and calls, and addresses that
    /// are taken.
    targets: Vec<u64>,
    /// Entries to which their own functions jump.
    loops: BTreeSet<u64>,
    /// Jumps from one function to a place of another: (place, jumping function).
    tails: BTreeSet<(u64, u64)>,
    /// Instructions that may leave a function, in order.
    pub leavings: Vec<Leaving>,
    /// Indirect jumps, in order. Until they are resolved, all of them are among the leavings, too.
    pub indirect: Vec<Indirect>,
    /// Addresses that instructions form, in the order of the instructions.
    pub formed: Vec<Formed>,
    /// Addresses of data that instructions name, in order: no table extends beyond the next of
    /// them.
    pub data: Vec<u64>,
    /// Targets of direct calls, in order.
    called: Vec<u64>,
    /// Functions that call something, in order.
    calling: Vec<u64>,
    /// Addresses of returns that remove arguments from the stack (`ret n`), in order.
    pub argument_pops: Vec<u64>,
    /// Indirect jumps that may lead to any instruction of their function, in order.
    pub unresolved: Vec<u64>,
    /// Functions whose last instruction continues into the code behind them, in order.
    open_ended: Vec<u64>,
}

/// An address that an instruction forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Formed {
    /// Address of the instruction.
    pub at: u64,
    /// The address that it forms.
    pub to: u64,
}

/// An instruction that may leave its function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub at: u64,
    pub length: u8,
    /// Lengths of the relocatable instructions directly in front, a byte each, the nearest first.
    pub before: u64,
    pub to: To,
}

impl Leaving {
    /// Address of the first byte behind the instruction.
    pub(crate) fn end(&self) -> u64 {
        self.at + u64::from(self.length)
    }

    /// Addresses where a rewritten exit may begin: the instruction itself, then the relocatable
    /// instructions in front of it, nearest first.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> + use<> {
        let lengths = self.before.to_le_bytes().into_iter().take_while(|length| *length > 0);
        let before = lengths.scan(self.at, |at, length| {
            *at -= u64::from(length);
            Some(*at)
        });
        std::iter::once(self.at).chain(before)
    }
}

/// Destination of a leaving instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Caller,
    /// A conditional jump to an address outside the function.
    If(u64),
    /// An unconditional jump to an address outside the function.
    Address(u64),
    /// A jump through a pointer to another function.
    Pointer,
    /// A jump through a pointer to another function or to a known place in this one.
    PointerOrWithin,
    /// A branch out of the function that no compiler emits (`jrcxz`, `xbegin`).
    Oddly,
}

/// Function entries, with the bytes behind each that a site may overwrite.
pub(crate) struct Places<'a> {
    /// Addresses of the entries, sorted.
    pub starts: &'a [u64],
    /// Number of these bytes behind each entry.
    pub width: u64,
    /// Words of the file that hold addresses of code, sorted.
    pub pointers: &'a [Pointer],
}

impl Places<'_> {
    /// Returns the first entry from `start` to `end`.
    fn first_in(&self, start: u64, end: u64) -> Option<u64> {
        let first = self.starts.get(self.starts.partition_point(|at| *at < start))?;
        Some(*first).filter(|first| *first < end)
    }

    /// Whether an address of code is stored in these bytes.
    fn hold_pointer(&self, address: u64, size: u64) -> bool {
        let next = self.pointers.get(self.pointers.partition_point(|pointer| pointer.at < address));
        next.is_some_and(|pointer| pointer.at - address < size)
    }

    /// Whether an address lies in these bytes of an entry, or in the `endbr64` in front of it.
    fn contain(&self, address: u64) -> bool {
        let after = self.starts.partition_point(|start| *start <= address.saturating_add(ENDBR));
        let start = after.checked_sub(1).and_then(|n| self.starts.get(n));
        start.is_some_and(|start| address < start.saturating_add(self.width))
    }
}

impl Branches {
    /// Decodes the code between each boundary (sorted) and the next.
    pub(crate) fn find(image: &Image<'_>, boundaries: &[u64], places: &Places<'_>) -> Branches {
        let mut functions = Vec::with_capacity(boundaries.len());
        for segment in image.segments.iter().filter(|segment| segment.executable && segment.file_size > 0) {
            let (first, end) = (segment.address.0, segment.address.0 + segment.file_size);
            let inside =
                boundaries.partition_point(|at| *at <= first)..boundaries.partition_point(|at| *at < end);
            let starts = std::iter::once(first).chain(boundaries[inside].iter().copied());
            let ends = boundaries.iter().copied().filter(|at| *at > first && *at < end).chain([end]);
            functions.extend(starts.zip(ends));
        }
        Branches::of(image, &functions, places)
    }

    /// Decodes the code of these functions only: first byte and the one behind the last, in order.
    pub(crate) fn of(image: &Image<'_>, functions: &[(u64, u64)], places: &Places<'_>) -> Branches {
        let read = |part: &[(u64, u64)]| Branches::read(image, places, part);
        let mut parts = workers::share(functions, |(start, end)| end - start, read).into_iter();
        let mut found = parts.next().unwrap_or_default();
        parts.for_each(|part| found.add(part));
        found.put_in_order();
        found
    }

    fn put_in_order(&mut self) {
        self.leavings.sort_by_key(|leaving| leaving.at);
        addresses::put_in_order(&mut self.data);
        addresses::put_in_order(&mut self.called);
    }

    /// Keeps only references to the chosen places: targets, leavings, calls and names of data.
    pub(crate) fn referring_to(mut self, is_there: impl Fn(u64) -> bool) -> Branches {
        self.leavings
            .retain(|leaving| matches!(leaving.to, To::If(target) | To::Address(target) if is_there(target)));
        for list in [&mut self.targets, &mut self.called, &mut self.data] {
            list.retain(|to| is_there(*to));
        }
        let Branches { targets, leavings, data, called, .. } = self;
        Branches { targets, leavings, data, called, ..Branches::default() }
    }

    /// Adds the branches of other functions, at any addresses.
    pub(crate) fn join(&mut self, others: Branches) {
        self.add(others);
        self.put_in_order();
    }

    /// Adds addresses where control may arrive.
    pub(crate) fn add_targets(&mut self, others: impl IntoIterator<Item = u64>) {
        self.targets.extend(others);
        addresses::put_in_order(&mut self.targets);
    }

    /// Addresses where control may arrive, in order.
    pub(crate) fn targets(&self) -> &[u64] {
        &self.targets
    }

    /// Decodes some of the functions, one after another.
    fn read(image: &Image<'_>, places: &Places<'_>, functions: &[(u64, u64)]) -> Branches {
        let (mut found, mut function) = (Branches::default(), Function::default());
        for &(start, end) in functions {
            function.read(image, places, (start, end), &mut found);
            for target in &function.direct {
                found.add_jump(places, (start, end), *target);
            }
        }
        found
    }

    /// Adds a jump from the function between `start` and `end` to `target`.
    pub(crate) fn add_jump(&mut self, places: &Places<'_>, (start, end): (u64, u64), target: u64) {
        self.targets.push(target);
        if places.contain(target) {
            let begins = |first: &u64| first - start <= ENDBR && (start..=*first).contains(&target);
            match places.first_in(start, end).filter(begins) {
                Some(first) => self.loops.insert(first),
                None => self.tails.insert((target, start)),
            };
        }
    }

    /// Adds the branches of functions that lie behind all those read so far.
    fn add(&mut self, behind: Branches) {
        self.targets.extend(behind.targets);
        self.loops.extend(behind.loops);
        self.tails.extend(behind.tails);
        self.leavings.extend(behind.leavings);
        self.indirect.extend(behind.indirect);
        self.formed.extend(behind.formed);
        self.data.extend(behind.data);
        self.called.extend(behind.called);
        self.calling.extend(behind.calling);
        self.argument_pops.extend(behind.argument_pops);
        self.open_ended.extend(behind.open_ended);
    }

    /// Returns the first branch target behind the first of these bytes, if there is one.
    pub(crate) fn behind(&self, at: u64, length: u64) -> Option<u64> {
        let next = self.targets.partition_point(|target| *target <= at);
        self.targets.get(next).copied().filter(|target| *target < at.saturating_add(length))
    }

    /// Returns the other functions that jump to one of these bytes.
    pub(crate) fn from(&self, at: u64, length: u64) -> impl Iterator<Item = u64> {
        self.tails.range((at, 0)..(at.saturating_add(length), 0)).map(|(_, function)| *function)
    }

    /// Whether the function that begins at `at` jumps back to its beginning.
    pub(crate) fn loops_to(&self, at: u64) -> bool {
        self.loops.contains(&at)
    }

    /// Whether a direct call leads to `at`.
    pub(crate) fn is_called(&self, at: u64) -> bool {
        self.called.binary_search(&at).is_ok()
    }

    /// Whether the function that begins at `start` calls another. Compilers keep nothing below the
    /// stack pointer of a function that does.
    pub(crate) fn calls(&self, start: u64) -> bool {
        self.calling.binary_search(&start).is_ok()
    }

    /// Instructions from `start` to `end` that may leave the function.
    pub(crate) fn leavings(&self, start: u64, end: u64) -> &[Leaving] {
        between(&self.leavings, start, end, |leaving| leaving.at)
    }

    /// Addresses formed by the instructions from `start` to `end`.
    pub(crate) fn formed(&self, start: u64, end: u64) -> &[Formed] {
        between(&self.formed, start, end, |formed| formed.at)
    }

    /// Returns the first unresolved indirect jump from `start` to `end`: it may lead to any
    /// instruction of its function.
    pub(crate) fn unresolved(&self, start: u64, end: u64) -> Option<u64> {
        between(&self.unresolved, start, end, |at| *at).first().copied()
    }

    /// Whether the last instruction of the function that begins at `start` continues into the code
    /// behind it.
    pub(crate) fn runs_on(&self, start: u64) -> bool {
        self.open_ended.binary_search(&start).is_ok()
    }
}

/// Items of a sorted list whose places lie from `start` to `end`.
pub(crate) fn between<T>(all: &[T], start: u64, end: u64, place: impl Fn(&T) -> u64) -> &[T] {
    let first = all.partition_point(|item| place(item) < start);
    let rest = &all[first..];
    &rest[..rest.partition_point(|item| place(item) < end)]
}

/// Branches of one function while it is decoded.
#[derive(Default)]
struct Function {
    direct: Vec<u64>,
    /// Indirect jumps, each with the origin of its target.
    indirect: Vec<(u64, switches::DerivedTarget)>,
    /// Lengths of the instructions through which control falls to this one, the nearest last.
    trail: Vec<u8>,
}

/// Lengths of consecutive relocatable instructions, a byte each, the last instruction in the lowest
/// byte.
#[derive(Default)]
struct Run(u64);

impl Run {
    fn add(&mut self, instruction: &Instruction) {
        self.0 = self.0 << 8 | instruction.len() as u64;
    }
}

impl Function {
    fn read(
        &mut self,
        image: &Image<'_>,
        places: &Places<'_>,
        (start, end): (u64, u64),
        found: &mut Branches,
    ) {
        self.direct.clear();
        self.indirect.clear();
        self.trail.clear();
        let code = image.tail(start, end - start);
        let mut decoder = decoder(code, start);
        let mut instruction = Instruction::default();
        let is_fixed = image.header.e_type.get(Le) == elf::ET_EXEC;
        let (mut run, mut goes_on, mut calls) = (Run::default(), false, false);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let flow = instruction.flow_control();
            calls |= matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
            note_addresses(image, places, &instruction, is_fixed, found);
            let to = self.leads_to(image, &instruction, (start, end), found);
            if let Some(to) = to {
                let (at, length) = (instruction.ip(), instruction.len() as u8);
                found.leavings.push(Leaving { at, length, before: run.0, to });
            }
            // Zeros fill the gaps between sections.
            let offset = (instruction.ip() - start) as usize;
            let is_filler = instruction.mnemonic() == Mnemonic::Nop || code[offset..].starts_with(&[0, 0]);
            if !is_filler {
                goes_on = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch);
            }
            let is_landed_on = instruction.code() == Code::Endbr64;
            if is_landed_on {
                // An `endbr64` marks the target of an indirect branch.
                found.targets.push(instruction.ip());
            }
            let is_followed = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch);
            if instruction.is_invalid() || is_landed_on || !is_followed {
                run = Run::default();
                self.trail.clear();
            } else {
                self.trail.push(instruction.len() as u8);
                match to {
                    None => run.add(&instruction),
                    Some(_) => run = Run::default(),
                }
            }
        }
        if goes_on {
            found.open_ended.push(start);
        }
        if calls {
            found.calling.push(start);
        }
        // Without symbols, a "function" may be megabytes of code with as many jumps.
        self.direct.sort_unstable();
        self.direct.dedup();
        let indirect = self.indirect.iter();
        let origins =
            indirect.map(|(at, found)| Indirect { at: *at, origin: found.entered_at(*at, &self.direct) });
        found.indirect.extend(origins);
    }

    /// Returns where an instruction leads out of its function, and notes its target.
    fn leads_to(
        &mut self,
        image: &Image<'_>,
        instruction: &Instruction,
        (start, end): (u64, u64),
        found: &mut Branches,
    ) -> Option<To> {
        let is_near = instruction.op0_kind() == OpKind::NearBranch64;
        let target = instruction.near_branch_target();
        let flow = instruction.flow_control();
        let leads_out = is_near && !(start..end).contains(&target);
        match flow {
            FlowControl::Call if is_near => {
                found.targets.push(target);
                found.called.push(target);
                None
            }
            FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::XbeginXabortXend
                if is_near =>
            {
                self.direct.push(target);
                leads_out.then_some(match flow {
                    FlowControl::UnconditionalBranch => To::Address(target),
                    _ if instruction.is_jcc_short_or_near() => To::If(target),
                    _ => To::Oddly,
                })
            }
            FlowControl::IndirectBranch => {
                let origin = switches::origin(image, instruction, &self.trail);
                self.indirect.push((instruction.ip(), origin));
                Some(To::Pointer)
            }
            FlowControl::Return => {
                if instruction.op_count() > 0 && instruction.immediate16() != 0 {
                    found.argument_pops.push(instruction.ip());
                }
                if let Some(target) = switches::returned(image, instruction.ip(), &self.trail) {
                    self.indirect.push((instruction.ip(), target));
                    return Some(To::Pointer);
                }
                Some(To::Caller)
            }
            _ => None,
        }
    }
}

/// Notes the addresses that an instruction forms or names. In a file that is not relocated
/// (`is_fixed`), constants may be addresses.
fn note_addresses(
    image: &Image<'_>,
    places: &Places<'_>,
    instruction: &Instruction,
    is_fixed: bool,
    found: &mut Branches,
) {
    let at = instruction.ip();
    let mut note = |to: u64, is_formed: bool| {
        let is_code = image.is_code(to);
        match is_code {
            true if is_formed => found.targets.push(to),
            true => {}
            false => found.data.push(to),
        }
        if is_formed {
            found.formed.push(Formed { at, to });
        }
    };
    if instruction.is_ip_rel_memory_operand() {
        let to = instruction.ip_rel_memory_address();
        // An address that is loaded from a stored pointer, alone or in a vector, is formed like one
        // of `lea`.
        let is_taken = instruction.mnemonic() == Mnemonic::Lea
            || places.hold_pointer(to, instruction.memory_size().size() as u64);
        if is_taken || !image.is_writable(to) {
            note(to, is_taken);
        }
        return;
    }
    // An address needs a constant of four bytes, behind an opcode.
    if !is_fixed || instruction.len() < 5 {
        return;
    }
    for operand in 0..instruction.op_count() {
        let constant = match instruction.op_kind(operand) {
            OpKind::Immediate32 => instruction.immediate32().into(),
            OpKind::Immediate32to64 => instruction.immediate32to64() as u64,
            OpKind::Immediate64 => instruction.immediate64(),
            OpKind::Memory if instruction.memory_displ_size() >= 4 => instruction.memory_displacement64(),
            _ => continue,
        };
        let is_branched_through =
            instruction.memory_index() == Register::None && instruction.memory_base() == Register::None;
        if image.is_constant(constant) {
            note(constant, !is_branched_through || instruction.op_kind(operand) != OpKind::Memory);
        }
    }
}

//! Finds the branches of code: decodes it function by function, and instruction by instruction.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::LittleEndian as Le;
use object::elf;

use super::branches::{Branches, Formed, Leaving, Passed, Places, To};
use super::decode::decoder;
use super::red_zone::RedZone;
use super::switches::{self, Indirect, Origin};
use super::workers;
use crate::elf::image::Image;

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
        let (leavings, formed) = (found.leavings.len(), found.formed.len());
        let mut red_zone = RedZone::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let flow = instruction.flow_control();
            calls |= matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
            note_addresses(image, places, &instruction, is_fixed, found);
            red_zone.add(&instruction);
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
        if red_zone.is_passed_on() {
            found.red_zones.extend(found.leavings[leavings..].iter().filter_map(Leaving::jump));
        }
        self.note_computed(image, (start, end), formed, found);
        // Without symbols, a "function" may be megabytes of code with as many jumps.
        self.direct.sort_unstable();
        self.direct.dedup();
        let indirect = self.indirect.iter();
        let origins =
            indirect.map(|(at, found)| Indirect { at: *at, origin: found.entered_at(*at, &self.direct) });
        found.indirect.extend(origins);
    }

    /// Notes the addresses of other code that the function forms, from the list's item `first` on,
    /// if it has a computed jump.
    fn note_computed(&self, image: &Image<'_>, (start, end): (u64, u64), first: usize, found: &mut Branches) {
        let mut indirect = self.indirect.iter();
        let Some((at, _)) = indirect.find(|(_, target)| target.origin == Origin::Computed) else { return };
        let formed = found.formed[first..].iter().map(|formed| formed.to);
        let others = formed.filter(|to| image.is_code(*to) && !(start..end).contains(to));
        found.computed.extend(others.map(|to| Passed { at: *at, to }));
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

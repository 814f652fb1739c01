//! Indirect jumps: the origin of each jump's target, as far as the instructions in front tell.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};

use crate::code::decode::decoder;
use crate::elf::image::Image;

/// An indirect jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Indirect {
    pub at: u64,
    pub origin: Origin,
}

/// Origin of an indirect jump's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A word in memory that holds an address from the file's data, or an address formed by an
    /// instruction.
    Stored,
    /// A word of the stack, which may hold a sum that the function computed before: clang without
    /// optimization keeps the target of every computed `goto` there.
    Spilled,
    /// A word of the table of addresses at this address, selected by an index.
    Addresses(u64),
    /// A 32-bit entry of a table of distances, added to a base. The table's address, if it equals
    /// the base and an instruction in front names it.
    Distances(Option<u64>),
    /// Other arithmetic.
    Computed,
    /// The top word of the stack, which the function has overwritten: the jump is a `ret`, as in
    /// retpolines. Behind a call within the function it may be an indirect call.
    Returned,
    /// Unknown from the instructions in front.
    Unclear,
}

impl Origin {
    /// Whether the target may be a pointer in memory.
    pub(crate) fn is_pointer(self) -> bool {
        matches!(
            self,
            Origin::Stored | Origin::Spilled | Origin::Addresses(_) | Origin::Returned | Origin::Unclear
        )
    }
}

/// Origin of a jump's target, and the instructions that it was derived from.
pub(crate) struct DerivedTarget {
    pub origin: Origin,
    /// The first instruction that defines the target.
    pub since: u64,
    /// The instruction that names the table, if another one does.
    pub named: u64,
}

impl DerivedTarget {
    /// Returns the origin, given that control may also enter at `targets` (sorted): a target
    /// between the deriving instructions and the jump invalidates it.
    pub(crate) fn entered_at(&self, at: u64, targets: &[u64]) -> Origin {
        let enters = |since: u64| {
            let next = targets.partition_point(|target| *target <= since);
            targets.get(next).is_some_and(|target| *target <= at)
        };
        match self.origin {
            _ if enters(self.since) => Origin::Unclear,
            Origin::Distances(Some(_)) if enters(self.named) => Origin::Distances(None),
            origin => origin,
        }
    }
}

/// Follows the target of `jump` back through the instructions in front of it. `before`: their
/// lengths, the nearest last.
pub(crate) fn origin(image: &Image<'_>, jump: &Instruction, before: &[u8]) -> DerivedTarget {
    let at = jump.ip();
    let found = |origin, since| DerivedTarget { origin, since, named: since };
    if jump.op0_kind() == OpKind::Memory {
        return found(loaded(jump), at);
    }
    let mut trail = Trail { image, lengths: before, at, factory: InstructionInfoFactory::new() };
    let mut wanted = jump.op0_register();
    while let Some(source) = trail.writer(&[wanted]) {
        let at = source.ip();
        let is_register = |operand| source.op_kind(operand) == OpKind::Register;
        let is_whole = is_register(0) && source.op0_register() == wanted;
        match source.mnemonic() {
            Mnemonic::Mov if is_whole && is_register(1) => wanted = source.op1_register(),
            Mnemonic::Mov if is_whole && source.op1_kind() == OpKind::Memory => {
                return found(loaded(&source), at);
            }
            Mnemonic::Lea if is_whole && source.is_ip_rel_memory_operand() => {
                return found(Origin::Stored, at);
            }
            Mnemonic::Cmove | Mnemonic::Cmovne => return found(Origin::Unclear, at),
            _ => {
                return match is_whole.then(|| terms(&source)).flatten() {
                    Some(terms) => sum(trail, terms),
                    None => found(Origin::Computed, at),
                };
            }
        }
    }
    found(Origin::Unclear, at)
}

/// Returns the origin of a `ret`'s target if the instruction in front has stored it: then it is a
/// jump. `before` is as for [`origin`].
pub(crate) fn returned(image: &Image<'_>, at: u64, before: &[u8]) -> Option<DerivedTarget> {
    let length = u64::from(*before.last()?);
    let store = decoder(image.tail(at - length, length), at - length).decode();
    let is_top = (store.memory_base(), store.memory_index()) == (Register::RSP, Register::None)
        && store.memory_displacement64() == 0;
    let is_store = store.mnemonic() == Mnemonic::Mov && store.op0_kind() == OpKind::Memory && is_top;
    let since = at - length;
    is_store.then_some(DerivedTarget { origin: Origin::Returned, since, named: since })
}

/// Origin of a word that a 64-bit load takes.
fn loaded(instruction: &Instruction) -> Origin {
    let is_indexed = instruction.memory_index() != Register::None;
    // The function's variables lie below a frame pointer; an rbp with another displacement may be
    // an ordinary pointer.
    let is_in_front = (instruction.memory_displacement64() as i64) < 0;
    match instruction.memory_base() {
        Register::None if is_indexed => Origin::Addresses(instruction.memory_displacement64()),
        Register::RSP => Origin::Spilled,
        Register::RBP if is_in_front => Origin::Spilled,
        _ => Origin::Stored,
    }
}

/// The registers that an instruction adds up; one, if it adds a constant.
fn terms(instruction: &Instruction) -> Option<[Register; 2]> {
    match instruction.mnemonic() {
        Mnemonic::Add if instruction.op1_kind() == OpKind::Register => {
            Some([instruction.op0_register(), instruction.op1_register()])
        }
        Mnemonic::Add if instruction.op1_kind() != OpKind::Memory => {
            Some([instruction.op0_register(), Register::None])
        }
        Mnemonic::Lea if instruction.memory_index_scale() == 1 => {
            Some([instruction.memory_base(), instruction.memory_index()])
        }
        _ => None,
    }
}

/// Follows the two terms of a sum. The target is a table entry plus a base if a load of a 32-bit
/// entry defines one of the terms; the other may be a constant address.
fn sum(mut trail: Trail<'_, '_>, mut terms: [Register; 2]) -> DerivedTarget {
    let found = |origin, since| DerivedTarget { origin, since, named: since };
    let (mut constant, mut is_extended) = (None, false);
    while let Some(source) = trail.writer(&terms) {
        let n = usize::from(source.op0_register().full_register() != terms[0]);
        let (from, at) = (source.op1_register(), source.ip());
        let is_whole = source.op0_register() == terms[n];
        match source.mnemonic() {
            Mnemonic::Cdqe => is_extended = true,
            Mnemonic::Lea if source.is_ip_rel_memory_operand() && is_whole && constant.is_none() => {
                constant = Some((at, source.op0_register(), source.ip_rel_memory_address()));
                terms[n] = Register::None;
            }
            Mnemonic::Mov if is_whole && source.op1_kind() == OpKind::Register => terms[n] = from,
            Mnemonic::Movsxd if is_whole && source.op1_kind() == OpKind::Register => {
                (terms[n], is_extended) = (from.full_register(), true);
            }
            Mnemonic::Movsxd if is_whole && source.op1_kind() == OpKind::Memory => {
                return entry(trail, terms[1 - n], &source, constant);
            }
            Mnemonic::Mov if is_extended && source.op0_register().size() == 4 => {
                return found(Origin::Distances(None), at);
            }
            _ => return found(Origin::Computed, at),
        }
    }
    found(Origin::Unclear, trail.at)
}

/// Origin of a jump whose target is the sum of `base` and the entry that `load` takes from a table.
fn entry(
    mut trail: Trail<'_, '_>,
    base: Register,
    load: &Instruction,
    constant: Option<(u64, Register, u64)>,
) -> DerivedTarget {
    let since = load.ip();
    let is_named = |(_, register, _): &(u64, Register, u64)| {
        load.memory_base() == *register
            && load.memory_index() != *register
            && load.memory_index_scale() == 4
            && load.memory_displacement64() == 0
    };
    let names = |named: Instruction| {
        let is_address = named.mnemonic() == Mnemonic::Lea && named.is_ip_rel_memory_operand();
        (is_address && named.op0_register() == base)
            .then(|| (named.ip(), base, named.ip_rel_memory_address()))
    };
    // An address formed behind the load need not be the load's table.
    let named = match constant {
        None if base != Register::None => trail.writer(&[base]).and_then(names).filter(is_named),
        _ => None,
    };
    let table = named.map(|(_, _, table)| table);
    DerivedTarget { origin: Origin::Distances(table), since, named: named.map_or(since, |(at, ..)| at) }
}

/// Walks back through instructions that control falls through.
struct Trail<'a, 'd> {
    image: &'a Image<'d>,
    lengths: &'a [u8],
    at: u64,
    factory: InstructionInfoFactory,
}

impl Trail<'_, '_> {
    /// Returns the nearest instruction in front that writes one of these registers, or a part of
    /// one.
    fn writer(&mut self, registers: &[Register]) -> Option<Instruction> {
        while let Some((length, rest)) = self.lengths.split_last() {
            self.lengths = rest;
            let length = u64::from(*length);
            self.at -= length;
            let code = self.image.tail(self.at, length);
            let instruction = decoder(code, self.at).decode();
            let info = self.factory.info_options(&instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
            let writes = |access| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead);
            let is_wanted = |register: Register| registers.contains(&register.full_register());
            if info.used_registers().iter().any(|used| is_wanted(used.register()) && writes(used.access())) {
                return Some(instruction);
            }
        }
        None
    }
}

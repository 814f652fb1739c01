//! Where code jumps to, so that nothing is put where somebody lands.
//!
//! All code of a file is decoded once, one function after another. Jumps through tables are followed as far as compilers lay tables out: distances
//! from the table's beginning, or addresses. (Exceptions land behind calls, and a function's first bytes have none in front of them.)

use std::collections::BTreeSet;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::image::Image;
use super::workers;

/// A table has no more entries than this.
const LONGEST_TABLE: u64 = 1 << 14;

/// How the code of a file branches.
#[derive(Default)]
pub(super) struct Branches {
    /// Where somebody may land: jumped to, called, or taken the address of, in order.
    targets: Vec<u64>,
    /// Beginnings that their own functions jump to.
    loops: BTreeSet<u64>,
    /// From which other functions places are jumped to: place, function.
    tails: BTreeSet<(u64, u64)>,
    /// What may leave a function, in order.
    pub leavings: Vec<Leaving>,
    /// Jumps of which nobody knows where they lead, by address.
    pub unknown: Vec<u64>,
    /// Functions whose last instruction leads on to what follows them, in order.
    open_ended: Vec<u64>,
}

/// An instruction that may leave its function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub at: u64,
    pub length: u8,
    /// The lengths of the instructions right in front of it which could be run elsewhere, a byte each; the nearest comes first.
    pub before: u64,
    pub to: To,
}

impl Leaving {
    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.at + u64::from(self.length)
    }

    /// Where it begins, and where the instructions right in front of it do that could be run elsewhere, from the nearest to the farthest.
    pub fn starts(&self) -> impl Iterator<Item = u64> + use<> {
        let lengths = self.before.to_le_bytes().into_iter().take_while(|length| *length > 0);
        let before = lengths.scan(self.at, |at, length| {
            *at -= u64::from(length);
            Some(*at)
        });
        std::iter::once(self.at).chain(before)
    }
}

/// Where it leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    Caller,
    /// Somewhere outside the function, if a condition is met,
    If(u64),
    /// or always.
    Address(u64),
    /// Through a pointer: to another function, or to any place in this one.
    Pointer,
    /// Outside, as no compiler does (`jrcxz`, `xbegin`).
    Oddly,
}

/// Beginnings of functions, sorted: the first byte that is of interest, and how many.
pub(super) struct Places<'a> {
    /// Where functions begin.
    pub starts: &'a [u64],
    /// Bytes behind each that are looked after.
    pub width: u64,
    /// Parts that were moved away from their functions, whose tables lead there, too: first byte and the one behind, in order.
    pub parts: &'a [(u64, u64)],
}

impl Places<'_> {
    /// The first that begins there.
    fn first_in(&self, start: u64, end: u64) -> Option<u64> {
        let first = self.starts.get(self.starts.partition_point(|at| *at < start))?;
        Some(*first).filter(|first| *first < end)
    }

    fn is_part(&self, address: u64) -> bool {
        let after = self.parts.partition_point(|(start, _)| *start <= address);
        after.checked_sub(1).and_then(|n| self.parts.get(n)).is_some_and(|(_, end)| address < *end)
    }

    fn contain(&self, address: u64) -> bool {
        let after = self.starts.partition_point(|start| *start <= address);
        after
            .checked_sub(1)
            .and_then(|n| self.starts.get(n))
            .is_some_and(|start| address - start < self.width)
    }
}

impl Branches {
    /// Goes through the code between each boundary (sorted) and the next.
    pub fn find(image: &Image<'_>, boundaries: &[u64], places: &Places<'_>) -> Branches {
        let mut functions = Vec::with_capacity(boundaries.len());
        for segment in image.segments.iter().filter(|segment| segment.executable && segment.file_size > 0) {
            let (first, end) = (segment.address.0, segment.address.0 + segment.file_size);
            let inside =
                boundaries.partition_point(|at| *at <= first)..boundaries.partition_point(|at| *at < end);
            let starts = std::iter::once(first).chain(boundaries[inside].iter().copied());
            let ends = boundaries.iter().copied().filter(|at| *at > first && *at < end).chain([end]);
            functions.extend(starts.zip(ends));
        }
        let mut found = Branches::default();
        for part in
            workers::share(&functions, |(start, end)| end - start, |part| Branches::read(image, places, part))
        {
            found.add(part);
        }
        found
    }

    /// Something else may lead there.
    pub fn add_targets(&mut self, others: impl IntoIterator<Item = u64>) {
        self.targets.extend(others);
        self.targets.sort_unstable();
        self.targets.dedup();
    }

    /// Some of the functions, one after another.
    fn read(image: &Image<'_>, places: &Places<'_>, functions: &[(u64, u64)]) -> Branches {
        let (mut found, mut function) = (Branches::default(), Function::default());
        for &(start, end) in functions {
            function.read(image, places, (start, end), &mut found);
            found.targets.extend_from_slice(&function.calls);
            let before = found.targets.len();
            found.targets.extend(function.jumps(image, places));
            let jumps = found.targets[before..].iter().copied();
            for target in jumps.filter(|target| places.contain(*target)) {
                match places.first_in(start, end) == Some(target) {
                    true => found.loops.insert(target),
                    false => found.tails.insert((target, start)),
                };
            }
        }
        found
    }

    /// Adds those of functions that come behind.
    fn add(&mut self, behind: Branches) {
        self.targets.extend(behind.targets);
        self.loops.extend(behind.loops);
        self.tails.extend(behind.tails);
        self.leavings.extend(behind.leavings);
        self.unknown.extend(behind.unknown);
        self.open_ended.extend(behind.open_ended);
    }

    /// Does something jump behind the first byte of these?
    pub fn behind(&self, at: u64, length: u64) -> Option<u64> {
        let next = self.targets.partition_point(|target| *target <= at);
        self.targets.get(next).copied().filter(|target| *target < at.saturating_add(length))
    }

    /// The functions that jump to one of these bytes from elsewhere.
    pub fn from(&self, at: u64, length: u64) -> impl Iterator<Item = u64> {
        self.tails.range((at, 0)..(at.saturating_add(length), 0)).map(|(_, function)| *function)
    }

    /// Does the function that begins there jump back to there?
    pub fn loops_to(&self, at: u64) -> bool {
        self.loops.contains(&at)
    }

    /// What may leave the code from `start` to `end`.
    pub fn leavings(&self, start: u64, end: u64) -> &[Leaving] {
        let first = self.leavings.partition_point(|leaving| leaving.at < start);
        let rest = &self.leavings[first..];
        &rest[..rest.partition_point(|leaving| leaving.at < end)]
    }

    /// Does a jump between these lead nobody knows where?
    pub fn is_unknown(&self, start: u64, end: u64) -> Option<u64> {
        let first = self.unknown.partition_point(|at| *at < start);
        self.unknown.get(first).copied().filter(|at| *at < end)
    }

    /// Does the function that begins there lead on to what follows it?
    pub fn runs_on(&self, start: u64) -> bool {
        self.open_ended.binary_search(&start).is_ok()
    }
}

/// What one function's code says about where it jumps.
#[derive(Default)]
struct Function {
    range: (u64, u64),
    direct: Vec<u64>,
    calls: Vec<u64>,
    /// It has jumps through registers or memory.
    indirect: bool,
    /// Addresses it takes of what is no code: tables of distances perhaps,
    near: Vec<u64>,
    /// and tables of addresses.
    far: Vec<u64>,
    /// Its jumps through tables: where they are, and what their tables hold.
    switches: Vec<(u64, Table)>,
}

/// What a jump through a table takes from it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Distances,
    Addresses,
}

/// Instructions that could be run elsewhere one after the other, as their lengths: the last one's first.
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
        (self.range, self.indirect) = ((start, end), false);
        for list in [&mut self.direct, &mut self.calls, &mut self.near, &mut self.far] {
            list.clear();
        }
        self.switches.clear();
        let code = image.tail(start, end - start);
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let (mut run, mut goes_on) = (Run::default(), false);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let is_near = instruction.op0_kind() == OpKind::NearBranch64;
            let target = instruction.near_branch_target();
            let flow = instruction.flow_control();
            let leads_out = is_near && !(start..end).contains(&target);
            let to = match flow {
                FlowControl::Next => {
                    self.note_table(image, &instruction);
                    None
                }
                FlowControl::Call if is_near => {
                    self.calls.push(target);
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
                    self.note_table(image, &instruction);
                    let table = (instruction.memory_base() != Register::RIP)
                        .then(|| table(image, &instruction, run.0))
                        .flatten();
                    self.indirect |= instruction.memory_base() != Register::RIP;
                    self.switches.extend(table.map(|table| (instruction.ip(), table)));
                    table.is_none().then_some(To::Pointer)
                }
                FlowControl::Return => Some(To::Caller),
                _ => None,
            };
            if let Some(to) = to {
                let (at, length) = (instruction.ip(), instruction.len() as u8);
                found.leavings.push(Leaving { at, length, before: run.0, to });
            }
            // (Zeros fill what is between sections.)
            let offset = (instruction.ip() - start) as usize;
            let is_filler = instruction.mnemonic() == Mnemonic::Nop || code[offset..].starts_with(&[0, 0]);
            if !is_filler {
                goes_on = matches!(flow, FlowControl::Next | FlowControl::ConditionalBranch);
            }
            match (flow, to) {
                _ if instruction.is_invalid() => run = Run::default(),
                // Somebody lands there, through a register.
                _ if instruction.code() == Code::Endbr64 => {
                    run = Run::default();
                    self.calls.push(instruction.ip());
                }
                (FlowControl::Next | FlowControl::ConditionalBranch, None) => run.add(&instruction),
                _ => run = Run::default(),
            }
        }
        if goes_on {
            found.open_ended.push(start);
        }
        // A table that was not found may lead anywhere.
        let has_distances =
            self.near.iter().any(|table| self.distances(image, places, *table).next().is_some());
        let has_addresses =
            self.far.iter().any(|table| self.addresses(image, places, *table).next().is_some());
        let unknown = self.switches.iter().filter(|(_, table)| match table {
            Table::Distances => !has_distances,
            Table::Addresses => !has_addresses,
        });
        found.unknown.extend(unknown.map(|(at, _)| *at));
    }

    fn note_table(&mut self, image: &Image<'_>, instruction: &Instruction) {
        if instruction.is_ip_rel_memory_operand() {
            let at = instruction.ip_rel_memory_address();
            match image.is_code(at) {
                _ if instruction.mnemonic() != Mnemonic::Lea => {}
                // A function, or a label to be jumped to.
                true => self.calls.push(at),
                false => self.near.push(at),
            }
        } else if is_table_of_addresses(instruction) {
            self.far.push(instruction.memory_displacement64());
        }
    }

    /// The entries of a table of distances, as far as they are its own.
    fn distances<'i>(
        &self,
        image: &Image<'i>,
        places: &'i Places<'_>,
        table: u64,
    ) -> impl Iterator<Item = u64> + use<'i> {
        let words = image.tail(table, LONGEST_TABLE * 4).as_chunks::<4>().0.iter();
        let entry = move |word: &[u8; 4]| table.wrapping_add_signed(i32::from_le_bytes(*word).into());
        words.map(entry).take_while(self.owns(places))
    }

    /// Those of a table of addresses.
    fn addresses<'i>(
        &self,
        image: &Image<'i>,
        places: &'i Places<'_>,
        table: u64,
    ) -> impl Iterator<Item = u64> + use<'i> {
        let words = image.tail(table, LONGEST_TABLE * 8).as_chunks::<8>().0.iter();
        words.map(|word| u64::from_le_bytes(*word)).take_while(self.owns(places))
    }

    /// Does a place lie in the function, or in a part that may be its own?
    fn owns<'i>(&self, places: &'i Places<'_>) -> impl Fn(&u64) -> bool + use<'i> {
        let (start, end) = self.range;
        move |target| (start..end).contains(target) || places.is_part(*target)
    }

    fn jumps<'a>(&'a self, image: &'a Image<'_>, places: &'a Places<'_>) -> impl Iterator<Item = u64> + 'a {
        let near = self.near.iter().flat_map(|table| self.distances(image, places, *table));
        let far = self.far.iter().flat_map(|table| self.addresses(image, places, *table));
        let tables = near.chain(far).filter(|_| self.indirect);
        self.direct.iter().copied().chain(tables)
    }
}

/// `(, %index, 8)` and a distance from nothing.
fn is_table_of_addresses(instruction: &Instruction) -> bool {
    instruction.memory_index() != Register::None
        && instruction.memory_index_scale() == 8
        && instruction.memory_base() == Register::None
}

/// The table that a jump goes through, if it does: a jump through what was added up, or through what came from the middle of something. What comes from a fixed place in a
/// structure, or as an argument, is a function.
fn table(image: &Image<'_>, jump: &Instruction, before: u64) -> Option<Table> {
    if jump.op0_kind() == OpKind::Memory {
        return (jump.memory_index() != Register::None).then_some(Table::Addresses);
    }
    let wanted = jump.op0_register();
    let mut at = jump.ip();
    for length in before.to_le_bytes().into_iter().take_while(|length| *length > 0) {
        at -= u64::from(length);
        let source = Decoder::with_ip(64, image.tail(at, length.into()), at, DecoderOptions::NONE).decode();
        if source.op0_kind() != OpKind::Register || source.op0_register().full_register() != wanted {
            continue;
        }
        return match source.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push => continue,
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Movsxd => Some(Table::Distances),
            _ if source.memory_index() != Register::None => Some(Table::Addresses),
            _ => None,
        };
    }
    None
}

//! Where code jumps to, so that nothing is put where somebody lands.
//!
//! All code of a file is decoded once, one function after another. Jumps through tables are followed as far as compilers lay tables out: distances
//! from the table's beginning, or addresses. (Exceptions land behind calls, and a function's first bytes have none in front of them.)

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::image::Image;

/// A table has no more entries than this.
const LONGEST_TABLE: u64 = 1 << 14;

/// The places of a file that something jumps to, of those that were asked for.
pub(super) struct Branches {
    /// Jumped to from anywhere.
    targets: BTreeSet<u64>,
    /// Jumped to from the function that they begin.
    loops: BTreeSet<u64>,
    /// From which other functions they are jumped to: place, function.
    tails: BTreeSet<(u64, u64)>,
}

/// Beginnings of functions, sorted: the first byte that is of interest, and how many.
pub(super) struct Places<'a> {
    /// Where functions begin.
    pub starts: &'a [u64],
    /// Bytes behind each that are looked after.
    pub width: u64,
}

impl Places<'_> {
    /// The first that begins there.
    fn first_in(&self, start: u64, end: u64) -> Option<u64> {
        let first = self.starts.get(self.starts.partition_point(|at| *at < start))?;
        Some(*first).filter(|first| *first < end)
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
        let (targets, loops, tails) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut found = Branches { targets, loops, tails };
        let mut function = Function::default();
        for segment in image.segments.iter().filter(|segment| segment.executable && segment.file_size > 0) {
            let (first, end) = (segment.address.0, segment.address.0 + segment.file_size);
            let inside =
                boundaries.partition_point(|at| *at <= first)..boundaries.partition_point(|at| *at < end);
            let starts = std::iter::once(first).chain(boundaries[inside].iter().copied());
            let ends = boundaries.iter().copied().filter(|at| *at > first && *at < end).chain([end]);
            for (start, end) in starts.zip(ends) {
                function.read(image, start, end);
                found.targets.extend(function.calls.iter().copied().filter(|target| places.contain(*target)));
                for target in function.jumps(image).filter(|target| places.contain(*target)) {
                    found.targets.insert(target);
                    match places.first_in(start, end) == Some(target) {
                        true => found.loops.insert(target),
                        false => found.tails.insert((target, start)),
                    };
                }
            }
        }
        found
    }

    /// Does something jump behind the first byte of these?
    pub fn behind(&self, at: u64, length: u64) -> Option<u64> {
        self.targets.range(at.saturating_add(1)..at.saturating_add(length)).next().copied()
    }

    /// The functions that jump to one of these bytes from elsewhere.
    pub fn from(&self, at: u64, length: u64) -> impl Iterator<Item = u64> {
        self.tails.range((at, 0)..(at.saturating_add(length), 0)).map(|(_, function)| *function)
    }

    /// Does the function that begins there jump back to there?
    pub fn loops_to(&self, at: u64) -> bool {
        self.loops.contains(&at)
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
}

impl Function {
    fn read(&mut self, image: &Image<'_>, start: u64, end: u64) {
        (self.range, self.indirect) = ((start, end), false);
        for list in [&mut self.direct, &mut self.calls, &mut self.near, &mut self.far] {
            list.clear();
        }
        let code = image.tail(start, end - start);
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            match instruction.flow_control() {
                FlowControl::Next => self.note_table(image, &instruction),
                FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                    self.calls.push(instruction.near_branch_target());
                }
                FlowControl::ConditionalBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::XbeginXabortXend
                    if instruction.op0_kind() == OpKind::NearBranch64 =>
                {
                    self.direct.push(instruction.near_branch_target());
                }
                FlowControl::IndirectBranch => {
                    self.indirect |= instruction.memory_base() != Register::RIP;
                    self.note_table(image, &instruction);
                }
                _ => {}
            }
        }
    }

    fn note_table(&mut self, image: &Image<'_>, instruction: &Instruction) {
        if instruction.is_ip_rel_memory_operand() {
            let at = instruction.ip_rel_memory_address();
            if instruction.mnemonic() == Mnemonic::Lea && !image.is_code(at) {
                self.near.push(at);
            }
        } else if instruction.memory_index() != Register::None
            && instruction.memory_index_scale() == 8
            && instruction.memory_base() == Register::None
        {
            self.far.push(instruction.memory_displacement64());
        }
    }

    fn jumps(&self, image: &Image<'_>) -> impl Iterator<Item = u64> {
        let (start, end) = self.range;
        let inside = move |target: &u64| (start..end).contains(target);
        let near = self.near.iter().flat_map(move |table| {
            let words = image.tail(*table, LONGEST_TABLE * 4).as_chunks::<4>().0;
            words
                .iter()
                .map(move |word| table.wrapping_add_signed(i32::from_le_bytes(*word).into()))
                .take_while(inside)
        });
        let far = self.far.iter().flat_map(move |table| {
            let words = image.tail(*table, LONGEST_TABLE * 8).as_chunks::<8>().0;
            words.iter().map(|word| u64::from_le_bytes(*word)).take_while(inside)
        });
        let tables = near.chain(far).filter(|_| self.indirect);
        self.direct.iter().copied().chain(tables)
    }
}

//! Jump tables in a file: entries are addresses, or distances from an address.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use super::switches::{Indirect, Origin};
use crate::elf::image::{Image, Section};
use crate::function::Function;

/// Maximum number of entries of one table.
const MAX_ENTRIES: u64 = 1 << 14;

/// The tables of a file.
pub(crate) struct Tables<'a, 'd> {
    pub image: &'a Image<'d>,
    data: &'a [u64],
    /// Bounds of the code around the first executable segment; nearly all files have only one.
    code: Range<u64>,
    /// Beginnings and ends of sections, in order.
    sections: Vec<u64>,
    pub functions: &'a [Function],
    /// Number of entries that may still be read: a hostile file may name as many tables as it has
    /// instructions.
    budget: Cell<u64>,
}

impl<'a, 'd> Tables<'a, 'd> {
    /// Creates a reader of tables. `data`: addresses of data that instructions name, in order.
    pub(crate) fn new(image: &'a Image<'d>, data: &'a [u64], functions: &'a [Function]) -> Tables<'a, 'd> {
        let budget = Cell::new((image.data.len() as u64).saturating_mul(8));
        let sections = image.sections.iter().filter(|section| section.address != 0);
        let ends = |section: &Section<'_>| [section.address, section.address.saturating_add(section.size)];
        let mut sections: Vec<u64> = sections.flat_map(ends).collect();
        sections.sort_unstable();
        let first = image.segments.iter().find(|segment| segment.executable);
        let code = first.map_or(0..0, |segment| image.code_around(segment.address.0));
        Tables { image, data, code, sections, functions, budget }
    }

    /// Whether an address lies in code. A faster form of [`Image::is_code`], for millions of words.
    fn is_code(&self, address: u64) -> bool {
        self.code.contains(&address) || address >= self.code.end && self.image.is_code(address)
    }

    /// Range from a function's beginning to the next one's.
    pub(crate) fn range(&self, n: usize) -> (u64, u64) {
        let next = self.functions.get(n + 1).map_or(u64::MAX, |next| next.address.0);
        (self.functions[n].address.0, next)
    }

    /// Maximum number of bytes of a table at this address: up to the next datum, function or
    /// section.
    pub(crate) fn room(&self, table: u64) -> u64 {
        let begins = |n: usize| self.functions.get(n).map(|function| function.address.0);
        let n = self.functions.partition_point(|function| function.address.0 <= table);
        if n.checked_sub(1).and_then(begins) == Some(table) {
            return 0;
        }
        let behind = |all: &[u64]| all.get(all.partition_point(|at| *at <= table)).copied();
        let nexts = [behind(self.data), behind(&self.sections), begins(n)];
        let next = nexts.into_iter().flatten().min().unwrap_or(u64::MAX);
        next - table
    }

    /// Targets of the entries of a possible table of distances from `base`. Some entries are holes,
    /// with targets elsewhere; the table ends in front of an entry that leads to no code.
    pub(crate) fn distances(&self, table: u64, base: u64) -> impl Iterator<Item = u64> {
        self.words(table, base).take_while(|target| self.is_entry(*target))
    }

    /// Collects the targets within `ranges` of one possible table, with its distances counted from
    /// each of `bases`. Bases and ranges are in order. The table is read once, as few of its words
    /// lead into the function from any of the bases.
    pub(crate) fn distances_within(
        &self,
        table: u64,
        bases: &[u64],
        ranges: &[(u64, u64)],
        found: &mut Vec<u64>,
    ) {
        let (Some(low), Some(high)) = (bases.first(), bases.last()) else { return };
        let (Some((first, _)), Some(last)) = (ranges.first(), ranges.iter().map(|(_, end)| end).max()) else {
            return;
        };
        let code = self.image.code_around(*low);
        let from = |to: u64, base: u64| to as i128 - base as i128;
        // Bounds of the distances that lead from all bases to code, and from any base to a range.
        let (code_low, code_high) = (from(code.start, *low), from(code.end, *high));
        let (own_low, own_high) = (from(*first, *high), from(*last, *low));
        let mut live = bases.to_vec();
        for distance in self.distances_in(table) {
            let left = self.budget.get();
            self.budget.set(left.saturating_sub(live.len() as u64));
            if left == 0 {
                return;
            }
            let target = |base: u64| base.wrapping_add_signed(distance);
            let distance = i128::from(distance);
            if !(code_low..code_high).contains(&distance) {
                live.retain(|base| self.image.is_code(target(*base)));
                if live.is_empty() {
                    return;
                }
            }
            if (own_low..own_high).contains(&distance) {
                found.extend(live.iter().map(|base| target(*base)).filter(|target| is_in(ranges, *target)));
            }
        }
    }

    /// Targets of the entries of a table of distances that a jump goes through, where holes may
    /// lead to no code. In a file without sections the table has no known end, so such an entry
    /// ends it.
    pub(crate) fn entries(&self, table: u64) -> impl Iterator<Item = u64> {
        let has_holes = !self.sections.is_empty();
        let entry = move |target| {
            let is_code = self.is_code(target);
            (self.may_read() && (is_code || has_holes)).then_some((target, is_code))
        };
        self.words(table, table).map_while(entry).filter_map(|(target, is_code)| is_code.then_some(target))
    }

    fn words(&self, table: u64, base: u64) -> impl Iterator<Item = u64> + use<'d> {
        self.distances_in(table).map(move |distance| base.wrapping_add_signed(distance))
    }

    /// Words of a possible table, up to its largest extent.
    fn distances_in(&self, table: u64) -> impl Iterator<Item = i64> + use<'d> {
        let words = self.image.tail(table, self.room(table).min(MAX_ENTRIES * 4)).as_chunks::<4>().0.iter();
        words.map(|word| i64::from(i32::from_le_bytes(*word)))
    }

    /// Entries of a table of addresses: (address of the entry, target).
    pub(crate) fn addresses(&self, table: u64) -> impl Iterator<Item = (u64, u64)> {
        let words = self.image.tail(table, self.room(table).min(MAX_ENTRIES * 8)).as_chunks::<8>().0.iter();
        let entries = (table..).step_by(8).zip(words.map(|word| u64::from_le_bytes(*word)));
        entries.take_while(|(_, target)| self.is_entry(*target))
    }

    fn is_entry(&self, target: u64) -> bool {
        self.may_read() && self.is_code(target)
    }

    /// Takes one entry from the budget; false if none is left.
    fn may_read(&self) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left > 0
    }

    /// Whether the budget was enough for all tables.
    pub(crate) fn is_complete(&self) -> bool {
        self.budget.get() > 0
    }
}

/// Returns the extents of the tables of addresses that indirect jumps go through: first byte and
/// the one behind, in order. Their words do not count as labels whose address is taken.
pub(crate) fn claimed(tables: &Tables<'_, '_>, jumps: &[Indirect]) -> Vec<(u64, u64)> {
    let mut claimed = BTreeSet::new();
    for jump in jumps {
        if let Origin::Addresses(table) = jump.origin
            && let Some((last, _)) = tables.addresses(table).last()
        {
            claimed.insert((table, last.saturating_add(8)));
        }
    }
    claimed.into_iter().collect()
}

/// Whether an address lies in one of these ranges.
pub(crate) fn is_in(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    after.checked_sub(1).and_then(|n| ranges.get(n)).is_some_and(|(_, end)| address < *end)
}

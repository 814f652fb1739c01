//! Tables in a file that indirect jumps go through: of addresses, or of distances from an address.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::branches::Branches;
use super::image::{Image, Section};
use super::switches::Origin;
use crate::Function;

/// A table has no more entries than this.
const LONGEST: u64 = 1 << 14;

/// The tables of a file.
pub(super) struct Tables<'a, 'd> {
    pub image: &'a Image<'d>,
    data: &'a [u64],
    /// Where sections begin and end, in order.
    sections: Vec<u64>,
    pub functions: &'a [Function],
    /// Entries that may still be read: a hostile file may name as many tables as it has instructions.
    budget: Cell<u64>,
}

impl<'a, 'd> Tables<'a, 'd> {
    pub fn new(image: &'a Image<'d>, branches: &'a Branches, functions: &'a [Function]) -> Tables<'a, 'd> {
        let budget = Cell::new((image.data.len() as u64).saturating_mul(8));
        let sections = image.sections.iter().filter(|section| section.address != 0);
        let ends = |section: &Section<'_>| [section.address, section.address.saturating_add(section.size)];
        let mut sections: Vec<u64> = sections.flat_map(ends).collect();
        sections.sort_unstable();
        Tables { image, data: &branches.data, sections, functions, budget }
    }

    /// From a function's beginning to the next one's.
    pub fn range(&self, n: usize) -> (u64, u64) {
        let next = self.functions.get(n + 1).map_or(u64::MAX, |next| next.address.0);
        (self.functions[n].address.0, next)
    }

    /// How many bytes a table has at most: up to the next datum, function or section.
    pub fn room(&self, table: u64) -> u64 {
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

    /// What the entries of what may be a table of distances from `base` lead to. Some of them are holes, which lead elsewhere; what leads to no code is none.
    pub fn distances(&self, table: u64, base: u64) -> impl Iterator<Item = u64> {
        self.words(table, base).take_while(|target| self.is_entry(*target))
    }

    /// The same of a table that a jump goes through, where holes may lead to no code either. Without sections, what follows it may be anything.
    pub fn entries(&self, table: u64) -> impl Iterator<Item = u64> {
        let has_holes = !self.sections.is_empty();
        let entry = move |target| {
            let is_code = self.image.is_code(target);
            (self.may_read() && (is_code || has_holes)).then_some((target, is_code))
        };
        self.words(table, table).map_while(entry).filter_map(|(target, is_code)| is_code.then_some(target))
    }

    fn words(&self, table: u64, base: u64) -> impl Iterator<Item = u64> + use<'d> {
        let words = self.image.tail(table, self.room(table).min(LONGEST * 4)).as_chunks::<4>().0.iter();
        words.map(move |word| base.wrapping_add_signed(i32::from_le_bytes(*word).into()))
    }

    /// The entries of a table of addresses, and what they lead to.
    pub fn addresses(&self, table: u64) -> impl Iterator<Item = (u64, u64)> {
        let words = self.image.tail(table, self.room(table).min(LONGEST * 8)).as_chunks::<8>().0.iter();
        let entries = (table..).step_by(8).zip(words.map(|word| u64::from_le_bytes(*word)));
        entries.take_while(|(_, target)| self.is_entry(*target))
    }

    fn is_entry(&self, target: u64) -> bool {
        self.may_read() && self.image.is_code(target)
    }

    /// Takes an entry from what may still be read.
    fn may_read(&self) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left > 0
    }

    /// Were all of them read to their ends?
    pub fn is_complete(&self) -> bool {
        self.budget.get() > 0
    }
}

/// The words of tables of addresses that indirect jumps go through: first byte and the one behind, in order. They are no labels whose address is taken.
pub(super) fn claimed(tables: &Tables<'_, '_>, branches: &Branches) -> Vec<(u64, u64)> {
    let mut claimed = BTreeSet::new();
    for jump in &branches.indirect {
        if let Origin::Addresses(table) = jump.origin
            && let Some((last, _)) = tables.addresses(table).last()
        {
            claimed.insert((table, last + 8));
        }
    }
    claimed.into_iter().collect()
}

/// Does an address lie in one of these ranges?
pub(super) fn is_in(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    after.checked_sub(1).and_then(|n| ranges.get(n)).is_some_and(|(_, end)| address < *end)
}

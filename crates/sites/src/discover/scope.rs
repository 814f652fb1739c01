//! Finds the functions of a file that have to be decoded to decide about a few of them.
//!
//! A decision about a function depends on the whole file: any code may jump into its first bytes,
//! or share a part with it. But a reference to a function has a distance in four bytes, which is
//! [searched](crate::code::search) for without decoding. The places found are then decoded, to tell
//! instructions from bytes that look like one.
//!
//! The functions whose code matters are the *members*: the wanted ones; the targets of members'
//! jumps, as they inherit the return address; and parts that jump into a member. Of all other code,
//! only references to members count. If only the whole file can answer a question, [`Scope::find`]
//! returns None, and the whole file is decoded.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use object::LittleEndian as Le;
use object::elf;

use super::lookup;
use super::names;
use super::parts::listed;
use crate::code::branches::{Branches, Leaving, Places, To, between};
use crate::code::nops;
use crate::code::padding;
use crate::code::return_address;
use crate::code::search::{Areas, By, Reference, references};
use crate::code::tables::{self, Tables};
use crate::elf::image::Image;
use crate::elf::pointers::Pointer;
use crate::function::Function;
use crate::site::JUMP;

/// The whole file is decoded if a scope would need more than one part in this many of its code.
const SHARE: u64 = 8;
/// Bytes that may be decoded of any file.
const FREE_ALLOWANCE: u64 = 1 << 16;
/// Maximum number of possible calls of a function without a name that are decoded to prove that it
/// is called.
const CALLS: usize = 8;
/// Bytes of the longest jump table.
const MAX_TABLE_SIZE: u64 = 1 << 17;
/// Reach of a short jump, including its own bytes.
const SHORT_JUMP_REACH: u64 = 0x82;

/// The code that has to be decoded.
pub(crate) struct Scope {
    /// Functions to decide about, by index, in order.
    pub wanted: Vec<usize>,
    /// Other functions directly behind those, by index, in order. If the site of one would be in
    /// padding, exits in front may not use it.
    pub behind: Vec<usize>,
    /// Functions whose code matters.
    pub members: BTreeSet<usize>,
    /// Addresses of the members.
    pub areas: Areas,
    /// References to the members in other code.
    references: Branches,
}

impl Scope {
    /// Finds the scope for functions of these indices, in order; None if the whole file has to be
    /// decoded.
    pub(crate) fn find(
        image: &Image<'_>,
        (functions, starts): (&[Function], &[u64]),
        pointers: &[Pointer],
        wanted: Vec<usize>,
    ) -> Option<Scope> {
        // In a file at a fixed address, references may be constants instead of distances.
        if image.header.e_type.get(Le) != elf::ET_DYN {
            return None;
        }
        let code = image.segments.iter().filter(|segment| segment.executable);
        let most = (code.map(|segment| segment.file_size).sum::<u64>() / SHARE).max(FREE_ALLOWANCE);
        let mut growing = Growing {
            wanted: &wanted,
            behind: BTreeSet::new(),
            image,
            functions,
            starts,
            pointers,
            left: most,
            open: Vec::new(),
            members: BTreeMap::new(),
            searched: BTreeSet::new(),
            tables: BTreeSet::new(),
            data: BTreeSet::new(),
            others: BTreeMap::new(),
            callers: BTreeMap::new(),
        };
        for n in &wanted {
            if names::is_unnamed(&functions[*n]) {
                return None;
            }
            growing.add(*n);
        }
        growing.grow()?;
        growing.check()?;
        let ranges = growing.members.keys().map(|n| growing.range(*n)).collect();
        let areas = Areas::new(ranges, growing.end());
        let mut references = Branches::default();
        let data = std::mem::take(&mut growing.data);
        for other in std::mem::take(&mut growing.others).into_values() {
            references.join(other.referring_to(|to| areas.contain(to) || data.contains(&to)));
        }
        let is_wanted = |to: u64| wanted.iter().any(|n| starts[*n] == to);
        if has_jump_with_frame(image, &references, is_wanted) {
            return None;
        }
        let (behind, members) = (growing.behind.into_iter().collect(), growing.members.into_keys().collect());
        Some(Scope { wanted, behind, members, areas, references })
    }

    /// Returns the branches of the members' code, and the references to it.
    pub(crate) fn branches(&self, image: &Image<'_>, starts: &[u64], places: &Places<'_>) -> Branches {
        let ranges: Vec<(u64, u64)> = self.members.iter().map(|n| range(image, starts, *n)).collect();
        let mut found = Branches::of(image, &ranges, places);
        found.join(self.references.clone());
        found
    }
}

/// Whether a reference to a wanted function is a jump with a frame on the stack. Only the whole
/// file tells which function that jump belongs to.
fn has_jump_with_frame(image: &Image<'_>, references: &Branches, is_wanted: impl Fn(u64) -> bool) -> bool {
    let jumps =
        references.leavings.iter().filter(|leaving| leaving.jump().is_some_and(|jump| is_wanted(jump.to)));
    let places: Vec<(u64, u64)> = jumps.map(|leaving| (leaving.at, leaving.end())).collect();
    let end = places.iter().map(|(_, end)| *end).max();
    end.is_some_and(|end| {
        let rows = return_address::rows(image, Some(&Areas::new(places.clone(), end)));
        places.iter().any(|(at, _)| rows.has_frame(*at))
    })
}

/// Range from a function's beginning to the next one's, as far as the file has bytes.
fn range(image: &Image<'_>, starts: &[u64], n: usize) -> (u64, u64) {
    let (start, next) = (starts[n], starts.get(n + 1).copied().unwrap_or(u64::MAX));
    (start, start + image.tail(start, next - start).len() as u64)
}

/// A scope while it grows.
struct Growing<'a, 'd> {
    /// Functions to decide about, in order.
    wanted: &'a [usize],
    /// Members directly behind wanted functions or parts.
    behind: BTreeSet<usize>,
    image: &'a Image<'d>,
    functions: &'a [Function],
    starts: &'a [u64],
    pointers: &'a [Pointer],
    /// Bytes that may still be decoded.
    left: u64,
    /// Members that are not decoded yet.
    open: Vec<usize>,
    members: BTreeMap<usize, Branches>,
    /// Members whose references have been searched for.
    searched: BTreeSet<usize>,
    /// Possible beginnings of jump tables of members.
    tables: BTreeSet<u64>,
    /// Data that instructions name, where tables may end.
    data: BTreeSet<u64>,
    /// Other decoded code, by its beginning.
    others: BTreeMap<u64, Branches>,
    /// For each member without a name, addresses of possible calls of it.
    callers: BTreeMap<usize, Vec<u64>>,
}

impl Growing<'_, '_> {
    fn add(&mut self, n: usize) {
        if let Entry::Vacant(new) = self.members.entry(n) {
            new.insert(Branches::default());
            self.open.push(n);
        }
    }

    fn range(&self, n: usize) -> (u64, u64) {
        range(self.image, self.starts, n)
    }

    /// Address behind the last byte of all segments.
    fn end(&self) -> u64 {
        let segments = self.image.segments.iter();
        segments.map(|segment| segment.address.0 + segment.memory_size).max().unwrap_or(0)
    }

    /// Range of code around an address, from a function's beginning to the next one's.
    fn code_around(&self, at: u64) -> (u64, u64) {
        let segment = self.image.code_around(at);
        let n = self.starts.partition_point(|start| *start <= at);
        let before = n.checked_sub(1).map_or(0, |n| self.starts[n]);
        let start = before.max(segment.start);
        let end = self.starts.get(n).copied().unwrap_or(u64::MAX).min(segment.end);
        (start, start + self.image.tail(start, end.saturating_sub(start)).len() as u64)
    }

    fn index_at(&self, address: u64) -> Option<usize> {
        lookup::index_at(self.functions, address)
    }

    /// Returns the function in whose range, up to the next function's beginning, an address lies.
    fn index_around(&self, address: u64) -> Option<usize> {
        self.starts.partition_point(|start| *start <= address).checked_sub(1)
    }

    fn is_part(&self, n: usize) -> bool {
        self.functions[n].is_part()
    }

    /// Whether a function is a part or may turn out to be one.
    fn may_be_part(&self, n: usize) -> bool {
        self.is_part(n) || names::is_unnamed(&self.functions[n])
    }

    /// Whether references to a place of a member matter.
    fn matters(&self, n: usize, to: u64) -> bool {
        self.starts[n] != to || self.is_part(n)
    }

    fn decode(&mut self, range: (u64, u64)) -> Option<Branches> {
        self.left = self.left.checked_sub(range.1 - range.0)?;
        let places = Places { starts: &[], width: JUMP, pointers: self.pointers };
        Some(Branches::of(self.image, &[range], &places))
    }

    /// Adds members until no more are found.
    fn grow(&mut self) -> Option<()> {
        loop {
            self.follow()?;
            let new: Vec<usize> =
                self.members.keys().copied().filter(|n| !self.searched.contains(n)).collect();
            if new.is_empty() {
                return self.prove_calls();
            }
            let windows = self.windows();
            let found = self.search(&new, &windows);
            self.searched.extend(new);
            let (operands, code): (Vec<Reference>, Vec<Reference>) =
                found.into_iter().partition(|reference| reference.by == By::Operand);
            self.read_references(&code)?;
            self.read_neighbours()?;
            self.end_tables(&windows, &operands)?;
            self.follow_tables();
            self.add_behind();
        }
    }

    /// Adds functions whose site may be in padding that an exit in front of them would use.
    fn add_behind(&mut self) {
        let is_wanted = |n: usize| self.wanted.binary_search(&n).is_ok();
        let members = self.members.iter().filter(|(n, _)| is_wanted(**n) || self.is_part(**n));
        let next = members.filter_map(|(n, own)| self.next_in_padding(*n, own));
        let next: Vec<usize> = next.filter(|next| !is_wanted(*next)).collect();
        for n in next {
            self.behind.insert(n);
            self.add(n);
        }
    }

    /// Returns the function behind a member if both could use the same padding.
    fn next_in_padding(&self, n: usize, own: &Branches) -> Option<usize> {
        let next = self.functions.get(n + 1).filter(|next| !next.is_traceable() && !next.is_part())?;
        let start = next.address.0;
        let is_near =
            |leaving: &Leaving| leaving.to == To::Caller && leaving.at + JUMP + padding::ROOM > start;
        if !own.leavings.iter().any(is_near) {
            return None;
        }
        let place = (start, nops::skip_endbr(self.image, start), lookup::end(self.functions, n + 1));
        padding::jump(self.image, place, self.functions.get(n)).map(|_| n + 1)
    }

    /// Decodes the open members, and adds the targets of their jumps.
    fn follow(&mut self) -> Option<()> {
        while let Some(n) = self.open.pop() {
            let own = self.decode(self.range(n))?;
            let targets = own.leavings.iter().filter_map(target);
            let mut next: Vec<usize> = targets.filter_map(|target| self.index_at(target)).collect();
            if !own.indirect.is_empty() {
                for formed in own.formed(0, u64::MAX) {
                    match self.image.is_code(formed.to) {
                        // An indirect jump may go through this pointer.
                        true => next.extend(self.index_at(formed.to).filter(|n| self.may_be_part(*n))),
                        false => drop(self.tables.insert(formed.to)),
                    }
                }
            }
            self.data.extend(&own.data);
            self.members.insert(n, own);
            next.into_iter().for_each(|n| self.add(n));
        }
        Some(())
    }

    /// Ranges of possible tables: beginning and latest known end.
    fn windows(&self) -> Vec<(u64, u64)> {
        let data = Vec::from_iter(self.data.iter().copied());
        let tables = Tables::new(self.image, &data, self.functions);
        let end = |table: u64| table.saturating_add(tables.room(table).min(MAX_TABLE_SIZE));
        self.tables.iter().map(|table| (*table, end(*table))).collect()
    }

    /// Searches for references to new members, and to data behind the beginnings of tables.
    fn search(&self, new: &[usize], windows: &[(u64, u64)]) -> Vec<Reference> {
        let code = Areas::new(new.iter().map(|n| self.range(*n)).collect(), self.end());
        let inside = windows.iter().map(|(table, end)| (table + 1, *end));
        let data = Areas::new(inside.collect(), self.end());
        let wanted = |reference: &Reference| {
            if reference.by == By::Operand {
                return true;
            }
            let Some(n) = self.index_around(reference.to) else { return true };
            let (start, end) = self.range(n);
            let is_own = (start..end).contains(&reference.at);
            !is_own
                && (self.matters(n, reference.to)
                    || reference.by == By::Call && names::is_unnamed(&self.functions[n]))
        };
        references(self.image, (&code, &data), wanted)
    }

    /// Decodes code that may refer to members.
    fn read_references(&mut self, code: &[Reference]) -> Option<()> {
        for reference in code {
            let n = self.index_around(reference.to)?;
            if !self.matters(n, reference.to) {
                let callers = self.callers.entry(n).or_default();
                if callers.len() < CALLS {
                    callers.push(reference.at);
                }
                continue;
            }
            self.read_other(reference.at)?;
        }
        Some(())
    }

    /// Decodes the code that is near enough to a member for short jumps.
    fn read_neighbours(&mut self) -> Option<()> {
        let ranges: Vec<(u64, u64)> = self.members.keys().map(|n| self.range(*n)).collect();
        for (start, end) in ranges {
            let near = self.image.code_around(start);
            let mut at = start.saturating_sub(SHORT_JUMP_REACH).max(near.start);
            while at < end.saturating_add(SHORT_JUMP_REACH).min(near.end) {
                let (first, behind) = self.code_around(at);
                if behind <= at {
                    break;
                }
                self.read_other(first)?;
                at = behind;
            }
        }
        Some(())
    }

    /// Decodes the code around an address, unless it belongs to a member.
    fn read_other(&mut self, at: u64) -> Option<()> {
        let range = self.code_around(at);
        let is_member = |n: usize| self.members.contains_key(&n) && self.starts[n] == range.0;
        if self.others.contains_key(&range.0) || self.index_around(range.0).is_some_and(is_member) {
            return Some(());
        }
        let found = self.decode(range)?;
        self.others.insert(range.0, found);
        Some(())
    }

    /// Finds the ends of tables: the next datum that an instruction names.
    fn end_tables(&mut self, windows: &[(u64, u64)], operands: &[Reference]) -> Option<()> {
        for (table, end) in windows {
            let behind = operands.partition_point(|operand| operand.to <= *table);
            for operand in operands[behind..].iter().take_while(|operand| operand.to < *end) {
                let known = self.data.range(table + 1..).next();
                if known.is_some_and(|known| *known <= operand.to) {
                    break;
                }
                self.read_other(operand.at)?;
                let named = self.others.get(&self.code_around(operand.at).0);
                self.data.extend(named.into_iter().flat_map(|others| &others.data));
            }
        }
        Some(())
    }

    /// Adds parts that jump from other code into members, and parts that members' tables lead to.
    fn follow_tables(&mut self) {
        let mut next = Vec::new();
        for leaving in self.others.values().flat_map(|other| &other.leavings) {
            let Some(from) = self.index_at(leaving.at).filter(|from| self.may_be_part(*from)) else {
                continue;
            };
            let to = target(leaving).and_then(|target| Some((self.index_around(target)?, target)));
            if to.is_some_and(|(n, target)| self.members.contains_key(&n) && self.matters(n, target)) {
                next.push(from);
            }
        }
        let data = Vec::from_iter(self.data.iter().copied());
        let tables = Tables::new(self.image, &data, self.functions);
        for (n, own) in &self.members {
            for target in own.indirect.iter().flat_map(|jump| listed(&tables, own, jump, *n)) {
                next.extend(self.index_at(target).filter(|to| to != n && self.may_be_part(*to)));
            }
        }
        next.into_iter().for_each(|n| self.add(n));
    }

    /// Proves that members without a name are functions: each must be called.
    fn prove_calls(&mut self) -> Option<()> {
        let is_open = |n: &usize| self.may_be_part(*n) && !self.is_part(*n);
        let open: Vec<usize> = self.members.keys().copied().filter(is_open).collect();
        for n in open {
            let start = self.starts[n];
            let all = self.members.values().chain(self.others.values());
            if all.into_iter().any(|code| code.is_called(start)) {
                continue;
            }
            let mut callers = self.callers.remove(&n).unwrap_or_default().into_iter();
            loop {
                let at = callers.next()?;
                self.read_other(at)?;
                let code = self.others.get(&self.code_around(at).0);
                if code.is_some_and(|code| code.is_called(start)) {
                    break;
                }
            }
        }
        Some(())
    }

    /// Returns None if a question about a member needs the whole file.
    fn check(&self) -> Option<()> {
        let parts: Vec<(u64, u64)> =
            self.members.keys().filter(|n| self.is_part(**n)).map(|n| self.range(*n)).collect();
        let parts = Areas::new(parts, self.end());
        let leads_to_part = |to: u64| !parts.is_empty() && parts.contain(to);
        if self.pointers.iter().any(|pointer| leads_to_part(pointer.to))
            || self
                .others
                .values()
                .any(|other| other.formed(0, u64::MAX).iter().any(|formed| leads_to_part(formed.to)))
        {
            return None;
        }
        for (n, own) in &self.members {
            let (start, end) = self.range(*n);
            // References through tables of other functions are not searched for.
            let is_left = own.leavings.iter().any(|leaving| leaving.to == To::Caller);
            if self.is_part(*n) && (is_left || !own.indirect.is_empty())
                || !between(self.pointers, start, end, |pointer| pointer.at).is_empty()
                || own.indirect.iter().any(|jump| jump.origin.is_pointer()) && self.has_labels(*n, own)
            {
                return None;
            }
        }
        (!self.has_stored_labels()).then_some(())
    }

    /// Whether data holds the address of a label in a part or in a member with an indirect jump,
    /// except in members' jump tables. An address in another function's jump table counts, too.
    fn has_stored_labels(&self) -> bool {
        let jumping = self.members.iter().filter(|(n, own)| !own.indirect.is_empty() || self.is_part(**n));
        let jumping = Areas::new(jumping.map(|(n, _)| self.range(*n)).collect(), self.end());
        let is_label = |to: u64| {
            jumping.contain(to) && self.index_at(to).is_none_or(|n| self.starts[n] != to || self.is_part(n))
        };
        let mut stored = self.pointers.iter().filter(|pointer| is_label(pointer.to)).peekable();
        if stored.peek().is_none() {
            return false;
        }
        let data = Vec::from_iter(self.data.iter().copied());
        let tables = Tables::new(self.image, &data, self.functions);
        let jumps = self.members.values().flat_map(|own| &own.indirect).copied();
        let claimed = tables::claimed(&tables, &Vec::from_iter(jumps));
        stored.any(|pointer| !tables::is_in(&claimed, pointer.at))
    }

    /// Whether a member's jump through a pointer may lead to a part or a possible part, by a
    /// pointer in data that the member names.
    fn has_labels(&self, n: usize, own: &Branches) -> bool {
        let data = Vec::from_iter(self.data.iter().copied());
        let tables = Tables::new(self.image, &data, self.functions);
        let is_leaf = !own.calls(self.starts[n]);
        own.formed(0, u64::MAX).iter().any(|formed| {
            let end = formed.to.saturating_add(tables.room(formed.to));
            let pointers = between(self.pointers, formed.to, end, |pointer| pointer.at).iter();
            let mut targets = pointers.filter_map(|pointer| self.index_at(pointer.to));
            targets.any(|to| to != n && (self.is_part(to) || is_leaf && self.may_be_part(to)))
        })
    }
}

fn target(leaving: &Leaving) -> Option<u64> {
    match leaving.to {
        To::If(target) | To::Address(target) => Some(target),
        _ => None,
    }
}

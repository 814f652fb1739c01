//! Cold parts: code that a compiler moved out of a function. They are recognized by their names, by
//! unwinding information that begins with a frame already set up, or, without either, by their
//! references: only one function jumps to them, or one of the two jumps into the middle of the
//! other.

use std::collections::{BTreeMap, BTreeSet};

use super::lookup::{Lookup, end, index_at};
use super::names;
use crate::code::branches::{Branches, To, between};
use crate::code::return_address::Rows;
use crate::code::switches::{Indirect, Origin};
use crate::code::tables::{self, Tables};
use crate::elf::image::Image;
use crate::elf::pointers::Pointer;
use crate::function::{Function, Role};
use crate::reason::Reason;

/// Suffix of a part without a name, behind the name of its function; as gcc names it.
const COLD: &str = ".cold";
/// Maximum number of owners of a part that are told apart. Compilers make a part for one function
/// only.
const MAX_OWNERS: usize = 64;

/// The functions that own each part, and the functions that may be parts.
#[derive(Default)]
pub(crate) struct Parts {
    /// For each part, by index, its owners.
    owners: BTreeMap<usize, BTreeSet<usize>>,
    /// For each function, its parts.
    parts: BTreeMap<usize, BTreeSet<usize>>,
    /// Functions that may jump to a candidate through a pointer.
    pub takers: BTreeSet<usize>,
    /// For each function without a name, why it is not proven to be a function.
    pub unproven: BTreeMap<usize, Unproven>,
}

/// Why it is unknown whether a function begins at an entry of the unwinding information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unproven {
    /// Only jumps of several functions lead there.
    Jumps,
    /// No reference leads there.
    Unreached,
    /// The label's address is taken only by a function that could jump there with its stack as at a
    /// call.
    Label,
}

impl Unproven {
    pub(crate) fn reason(self) -> Reason {
        match self {
            Unproven::Jumps => Reason::SharedPart,
            Unproven::Label => Reason::Label,
            Unproven::Unreached => Reason::Unreached,
        }
    }
}

impl Parts {
    /// Finds the parts among the functions, and marks them. `frames`: entries of the unwinding
    /// information, each with whether it begins as at a call. A function that is not known to be
    /// called may be a part, unless only some code was decoded (`all` is false).
    pub(crate) fn find(
        image: &Image<'_>,
        functions: &mut [Function],
        (branches, all): (&Branches, bool),
        (frames, rows): (&BTreeMap<u64, bool>, &Rows),
        pointers: &[Pointer],
    ) -> Parts {
        let links = Links::find(image, functions, (branches, all), (frames, rows), pointers);
        let entry = image.header.e_entry.get(object::LittleEndian);
        let entry = functions.binary_search_by_key(&entry, |function| function.address.0).ok();
        let is_proven = |n: &usize| links.proven.contains(n) || entry == Some(*n);
        let is_open = |n: &usize| links.candidates[*n] && !is_proven(n);
        let is_label = |n: &usize| links.labels.contains_key(n) && is_open(n);
        let mut is_part: Vec<bool> = functions.iter().map(Function::is_part).collect();
        // Code that is not called is a part of a function if one jumps into the middle of the
        // other.
        for (n, other) in &links.joined {
            if !functions[*other].is_part() && !is_open(other) {
                is_part[*n] |= !links.candidates[*other] || is_open(n);
            }
        }
        // Code to which only one function jumps is a part of that function.
        let leads_on = |n: usize| is_part[n] || is_open(&n);
        let sources = links.sources_of(functions.len(), leads_on);
        let (all, is_alone) = (0..functions.len(), |n: &usize| !is_label(n) && sources[*n].len() == 1);
        let alone: Vec<usize> = all.clone().filter(|n| is_open(n) && is_alone(n)).collect();
        // A function that calls another has no live data below its stack pointer: however it is
        // entered, its entry can be traced.
        let is_leaf = |n: &usize| !branches.calls(functions[*n].address.0);
        let open: Vec<usize> = all.filter(|n| is_open(n) && is_leaf(n)).collect();
        for n in alone {
            is_part[n] = true;
        }
        let owners = links.sources_of(functions.len(), |n| is_part[n]);
        let mut found = Parts::default();
        for n in (0..functions.len()).filter(|n| is_part[*n]) {
            for owner in &owners[n] {
                found.parts.entry(*owner).or_default().insert(n);
            }
            if let Some(owner) = owners[n].first().filter(|_| names::is_unnamed(&functions[n])) {
                let owner = functions[*owner].name.clone();
                functions[n].name = format!("{owner}{COLD}");
                functions[n].set_role(Role::ColdPart(Some(owner)));
            }
            found.owners.insert(n, owners[n].clone());
        }
        found.takers = links
            .labels
            .iter()
            .filter(|(n, _)| is_label(n))
            .flat_map(|(_, takers)| takers)
            .copied()
            .collect();
        let unproven = |n: usize| match sources[n].is_empty() {
            _ if is_label(&n) => (n, Unproven::Label),
            false => (n, Unproven::Jumps),
            true => (n, Unproven::Unreached),
        };
        found.unproven = open.into_iter().filter(|n| !is_part[*n]).map(unproven).collect();
        found
    }

    /// Returns the parts of a function, each with whether another function shares it.
    pub(crate) fn of(&self, function: usize) -> impl Iterator<Item = (usize, bool)> {
        let parts = self.parts.get(&function).into_iter().flatten();
        parts.map(|part| (*part, self.owners.get(part).is_some_and(|owners| owners.len() > 1)))
    }

    /// Whether a function shares a part with more functions than are told apart.
    pub(crate) fn are_entangled(&self, function: usize) -> bool {
        let parts = self.parts.get(&function).into_iter().flatten();
        parts.filter_map(|part| self.owners.get(part)).any(|owners| owners.len() >= MAX_OWNERS)
    }

    /// Returns a function with its parts; for a part, all its owners with their parts.
    pub(crate) fn group(&self, n: usize) -> BTreeSet<usize> {
        let alone = BTreeSet::from([n]);
        let owners = self.owners.get(&n).unwrap_or(&alone);
        owners
            .iter()
            .flat_map(|owner| [*owner].into_iter().chain(self.of(*owner).map(|(part, _)| part)))
            .chain([n])
            .collect()
    }
}

/// References between functions, by index.
#[derive(Default)]
struct Links {
    /// Entries of the unwinding information without a name that no call leads to.
    candidates: Vec<bool>,
    /// Candidates and known parts.
    may_be_part: Vec<bool>,
    /// For each candidate or part, the functions that jump to it or into it, or into which it
    /// jumps; in order once all are found.
    sources: Vec<(usize, usize)>,
    /// Pairs of a candidate and a function of which one jumps into the middle of the other.
    joined: BTreeSet<(usize, usize)>,
    /// Candidates whose address is taken by code that could not jump there.
    proven: BTreeSet<usize>,
    /// Candidates whose address is taken by functions that could jump there.
    labels: BTreeMap<usize, BTreeSet<usize>>,
}

impl Links {
    fn find(
        image: &Image<'_>,
        functions: &[Function],
        (branches, all): (&Branches, bool),
        (frames, rows): (&BTreeMap<u64, bool>, &Rows),
        pointers: &[Pointer],
    ) -> Links {
        let is_candidate = |function: &Function| {
            all && names::is_unnamed(function)
                && !function.is_part()
                && frames.contains_key(&function.address.0)
                && !branches.is_called(function.address.0)
        };
        let candidates: Vec<bool> = functions.iter().map(is_candidate).collect();
        let may_be_part = functions.iter().zip(&candidates).map(|(function, is)| *is || function.is_part());
        let may_be_part = may_be_part.collect();
        let mut links = Links { candidates, may_be_part, ..Links::default() };
        let mut sources = Lookup::new(functions);
        for leaving in &branches.leavings {
            let (To::If(target) | To::Address(target)) = leaving.to else { continue };
            let Some((from, function)) = sources.around(leaving.at) else { continue };
            if (function.address.0..end(functions, from)).contains(&target) {
                continue;
            }
            if let Some(to) = index_at(functions, target) {
                links.add(functions, from, to, functions[to].address.0 != target);
            }
        }
        let tables = Tables::new(image, &branches.data, functions);
        // The last function whose tables were all read.
        let mut read = None;
        for jump in &branches.indirect {
            let Some(from) = index_at(functions, jump.at) else { continue };
            if matches!(jump.origin, Origin::Distances(None) | Origin::Returned | Origin::Unclear)
                && read.replace(from) == Some(from)
            {
                continue;
            }
            let listed = listed(&tables, branches, jump, from);
            for target in listed {
                if let Some(to) = index_at(functions, target)
                    && links.may_be_part[to]
                {
                    links.add(functions, from, to, functions[to].address.0 != target);
                }
            }
        }
        links.put_in_order();
        links.find_takers(branches, rows, &tables, pointers);
        links.put_in_order();
        links
    }

    fn add_source(&mut self, to: usize, from: usize) {
        // A function often jumps to the same part several times.
        if self.sources.last() != Some(&(to, from)) {
            self.sources.push((to, from));
        }
    }

    fn put_in_order(&mut self) {
        self.sources.sort_unstable();
        self.sources.dedup();
    }

    /// Adds to `functions` all functions that jump to them, also through others: each block may be
    /// a part.
    fn with_sources(&self, functions: BTreeSet<usize>) -> BTreeSet<usize> {
        let (mut all, mut open) = (functions.clone(), Vec::from_iter(functions));
        while let Some(n) = open.pop() {
            let sources = pairs_of(&self.sources, n).iter().map(|(_, source)| *source);
            open.extend(sources.filter(|source| all.insert(*source)));
        }
        all
    }

    /// Finds the candidates whose address is taken, and by which functions. A computed `goto` of a
    /// leaf may lead to the beginning of a part, through a pointer that looks like a function's.
    fn find_takers(
        &mut self,
        branches: &Branches,
        rows: &Rows,
        tables: &Tables<'_, '_>,
        pointers: &[Pointer],
    ) {
        let functions = tables.functions;
        let candidate = |links: &Links, address: u64| {
            let found = functions.binary_search_by_key(&address, |function| function.address.0);
            found.ok().filter(|n| links.candidates[*n])
        };
        let jumps = branches.indirect.iter();
        let is_leaf = |n: &usize| !branches.calls(functions[*n].address.0);
        let through_pointers: Vec<(usize, bool)> = jumps
            .filter(|jump| jump.origin.is_pointer())
            .filter_map(|jump| Some((index_at(functions, jump.at)?, rows.is_bare(jump.at))))
            .collect();
        let jumping = self.with_sources(through_pointers.iter().map(|(n, _)| *n).collect());
        let bare = through_pointers.iter().filter(|(n, is_bare)| *is_bare && is_leaf(n));
        let bare = self.with_sources(bare.map(|(n, _)| *n).collect());
        let claimed = tables::claimed(tables, &branches.indirect);
        let stored: Vec<Pointer> =
            pointers.iter().filter(|pointer| !tables::is_in(&claimed, pointer.at)).copied().collect();
        let mut in_tables = BTreeSet::new();
        // In a hostile file, every instruction may name the same table.
        let mut budget = (stored.len() + branches.formed.len()).saturating_mul(64);
        let mut takers = Lookup::new(functions);
        for formed in &branches.formed {
            // A function that forms its own address proves nothing about itself.
            let taker = takers.around(formed.at).filter(|(_, function)| function.address.0 != formed.to);
            let Some((taker, _)) = taker else { continue };
            if !jumping.contains(&taker) {
                self.proven.extend(candidate(self, formed.to));
                continue;
            }
            let may_jump = is_leaf(&taker) && bare.contains(&taker);
            self.add_label(functions, taker, formed.to, may_jump);
            match candidate(self, formed.to) {
                Some(n) if may_jump && is_leaf(&n) => drop(self.labels.entry(n).or_default().insert(taker)),
                Some(n) => drop(self.proven.insert(n)),
                None => {}
            }
            let end = formed.to.saturating_add(tables.room(formed.to));
            let pointers = between(&stored, formed.to, end, |pointer| pointer.at);
            let Some(left) = budget.checked_sub(pointers.len()) else {
                self.proven.clear();
                return;
            };
            budget = left;
            for pointer in pointers {
                self.add_label(functions, taker, pointer.to, may_jump);
                if let Some(n) = candidate(self, pointer.to).filter(|n| may_jump && is_leaf(n)) {
                    self.labels.entry(n).or_default().insert(taker);
                    in_tables.insert(pointer.at);
                }
            }
        }
        for pointer in stored.iter().filter(|pointer| !in_tables.contains(&pointer.at)) {
            self.proven.extend(candidate(self, pointer.to));
        }
    }

    /// Notes that a function holds the address of a label in a part, or, if it `may_jump` there, in
    /// the middle of a candidate: both then belong to it.
    fn add_label(&mut self, functions: &[Function], taker: usize, address: u64, may_jump: bool) {
        if let Some(n) = index_at(functions, address) {
            let is_inside = functions[n].address.0 != address;
            if functions[n].is_part() || is_inside && may_jump && self.candidates[n] {
                self.add(functions, taker, n, is_inside);
            }
        }
    }

    /// Notes a reference from one function to another, to its beginning or into it.
    fn add(&mut self, functions: &[Function], from: usize, to: usize, is_inside: bool) {
        if from == to {
            return;
        }
        let (from_part, to_part) = (self.may_be_part[from], self.may_be_part[to]);
        if to_part {
            self.add_source(to, from);
        }
        if from_part && (is_inside || functions[to].is_part()) {
            self.add_source(from, to);
        }
        if is_inside {
            let candidates = [(from, to), (to, from)].into_iter().filter(|(n, _)| self.candidates[*n]);
            self.joined.extend(candidates);
        }
    }

    /// Returns the owners of each part: the functions that lead to it, directly or through parts
    /// that `leads_on` accepts.
    fn sources_of(&self, count: usize, leads_on: impl Fn(usize) -> bool) -> Vec<BTreeSet<usize>> {
        let mut found = vec![BTreeSet::new(); count];
        let mut targets: Vec<(usize, usize)> =
            self.sources.iter().map(|(target, source)| (*source, *target)).collect();
        targets.sort_unstable();
        // Thousands of functions may jump to one part: it is queued once, not for each of them.
        let (mut open, mut is_queued) = (Vec::new(), vec![false; count]);
        for (source, target) in targets.iter().filter(|(source, _)| !leads_on(*source)) {
            found[*target].insert(*source);
            if !std::mem::replace(&mut is_queued[*target], true) {
                open.push(*target);
            }
        }
        while let Some(part) = open.pop() {
            is_queued[part] = false;
            if !leads_on(part) {
                continue;
            }
            for (_, target) in pairs_of(&targets, part) {
                if *target == part || found[*target].len() >= MAX_OWNERS {
                    continue;
                }
                let new: Vec<usize> = found[part].difference(&found[*target]).copied().collect();
                if new.is_empty() {
                    continue;
                }
                found[*target].extend(new);
                if !std::mem::replace(&mut is_queued[*target], true) {
                    open.push(*target);
                }
            }
        }
        found
    }
}

/// The pairs of a sorted list whose first element is `first`.
fn pairs_of(pairs: &[(usize, usize)], first: usize) -> &[(usize, usize)] {
    let start = pairs.partition_point(|pair| pair.0 < first);
    let length = pairs[start..].partition_point(|pair| pair.0 == first);
    &pairs[start..start + length]
}

/// Targets of the tables through which an indirect jump of a function may go.
pub(crate) fn listed(tables: &Tables<'_, '_>, branches: &Branches, jump: &Indirect, from: usize) -> Vec<u64> {
    let (start, end) = tables.range(from);
    match jump.origin {
        Origin::Distances(Some(table)) => tables.distances(table, table).collect(),
        Origin::Distances(None) | Origin::Returned | Origin::Unclear => {
            let formed = branches.formed(start, end).iter().map(|formed| formed.to);
            formed.flat_map(|table| tables.distances(table, table)).collect()
        }
        Origin::Addresses(table) => tables.addresses(table).map(|(_, to)| to).collect(),
        Origin::Stored | Origin::Spilled | Origin::Computed => Vec::new(),
    }
}

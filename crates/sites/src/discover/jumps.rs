//! Targets of indirect jumps.
//!
//! An instruction can jump into the middle of a function only through an address that the file
//! holds: a label's address in an instruction or in data, or an entry of a table, as an address or
//! as a distance from an address that the function forms. All of these are collected. A jump that
//! they do not account for is *unresolved*: it may lead to any instruction of its function.

use super::lookup;
use super::parts::Parts;
use crate::code::branches::{Branches, Leaving, Places, To, between};
use crate::code::kept::may_be_summed;
use crate::code::return_address::Rows;
use crate::code::switches::Origin;
use crate::code::tables::{Tables, claimed, is_in};
use crate::elf::image::Image;
use crate::elf::pointers::Pointer;
use crate::function::Function;

/// Maximum number of pairs of a base and a table of label differences that are tried in one
/// function.
const MAX_PAIRS: usize = 1 << 10;

/// Properties of a function and its parts, for their indirect jumps.
struct Group {
    /// Ranges of the function and its parts: first byte and the one behind the last.
    ranges: Vec<(u64, u64)>,
    /// Whether the address of a label is taken, other than by jump tables.
    has_labels: bool,
    /// Whether an instruction forms the address of a label or of the function itself, from which
    /// other addresses may be computed.
    has_base: bool,
    /// Whether a sum may be made of such an address and be kept in memory; and the same for labels
    /// only.
    sums: bool,
    sums_labels: bool,
    /// Targets of tables within the ranges, in order; not all of them if `is_complete` is false.
    entries: Vec<u64>,
    is_complete: bool,
}

/// Where an indirect jump leads.
enum Outcome {
    /// Out of the function.
    Leaves,
    /// To known places in the function.
    Stays,
    /// Out of the function, or to known places in it.
    LeavesOrStays,
    /// To any instruction of the function.
    Unresolved,
}

/// Resolves all indirect jumps. The places to which they lead become branch targets, and those that
/// stay in their function are removed from the leavings.
pub(crate) fn resolve(
    image: &Image<'_>,
    branches: &mut Branches,
    (functions, parts): (&[Function], &Parts),
    (places, rows): (&Places<'_>, &Rows),
    pointers: &[Pointer],
) {
    let (mut jumps, mut stays, mut perhaps, mut unresolved) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let tables = Tables::new(image, &branches.data, functions);
    let claimed = claimed(&tables, &branches.indirect);
    let mut stored: Vec<u64> =
        pointers.iter().filter(|pointer| !is_in(&claimed, pointer.at)).map(|pointer| pointer.to).collect();
    stored.sort_unstable();
    let mut last: Option<(usize, Group)> = None;
    for jump in &branches.indirect {
        let Some(n) = functions.partition_point(|function| function.address.0 <= jump.at).checked_sub(1)
        else {
            continue;
        };
        let group = match &mut last {
            Some((of, group)) if *of == n => group,
            _ => {
                let group = Group::find(&tables, branches, parts, n, &stored);
                let range = tables.range(n);
                jumps.extend(group.entries.iter().map(|target| (range, *target)));
                &mut last.insert((n, group)).1
            }
        };
        match group.outcome(&tables, jump.origin, rows.is_bare(jump.at)) {
            _ if !tables.is_complete() => unresolved.push(jump.at),
            Outcome::Leaves => {}
            Outcome::Stays => stays.push(jump.at),
            Outcome::LeavesOrStays => perhaps.push(jump.at),
            Outcome::Unresolved => unresolved.push(jump.at),
        }
    }
    for (range, target) in jumps {
        branches.add_jump(places, range, target);
    }
    branches.add_targets([]);
    let is_among = |list: &[u64], leaving: &Leaving| {
        leaving.to == To::Pointer && list.binary_search(&leaving.at).is_ok()
    };
    branches.leavings.retain(|leaving| !is_among(&stays, leaving) && !is_among(&unresolved, leaving));
    for leaving in branches.leavings.iter_mut().filter(|leaving| is_among(&perhaps, leaving)) {
        leaving.to = To::PointerOrWithin;
    }
    branches.unresolved = unresolved;
}

impl Group {
    fn find(tables: &Tables<'_, '_>, branches: &Branches, parts: &Parts, n: usize, stored: &[u64]) -> Group {
        let members = parts.group(n);
        let ranges: Vec<(u64, u64)> = members.iter().map(|n| tables.range(*n)).collect();
        // The file's data may follow its last function.
        let is_own = |address: &u64| is_in(&ranges, *address) && tables.image.is_code(*address);
        let is_label = |address: &u64| {
            let function = lookup::index_at(tables.functions, *address);
            is_own(address)
                && function.is_none_or(|n| {
                    tables.functions[n].address.0 != *address || tables.functions[n].is_part()
                })
        };
        let all_formed = || ranges.iter().flat_map(|(start, end)| branches.formed(*start, *end));
        let summed: Vec<u64> = all_formed()
            .filter(|formed| is_own(&formed.to) && may_be_summed(tables.image, formed.at))
            .map(|formed| formed.to)
            .collect();
        let mut formed: Vec<u64> = all_formed().map(|formed| formed.to).collect();
        formed.sort_unstable();
        formed.dedup();
        let has_labels = formed.iter().any(is_label)
            || !parts.takers.is_disjoint(&members)
            || ranges.iter().flat_map(|(start, end)| between(stored, *start, *end, |at| *at)).any(is_label);
        // A function's own beginning is not a label, but it is a base.
        let bases: Vec<u64> = formed.iter().copied().filter(is_own).collect();
        let is_complete = bases.len() * formed.len() <= MAX_PAIRS;
        let jumps = || ranges.iter().flat_map(|(s, e)| between(&branches.indirect, *s, *e, |jump| jump.at));
        let pairs = if is_complete { &bases[..] } else { &[] };
        let entries = entries(tables, &ranges, jumps().map(|jump| jump.origin), &formed, pairs);
        let (sums, sums_labels) = (!summed.is_empty(), summed.iter().any(is_label));
        let has_base = !bases.is_empty();
        Group { ranges, has_labels, has_base, sums, sums_labels, entries, is_complete }
    }

    fn outcome(&self, tables: &Tables<'_, '_>, origin: Origin, is_bare: bool) -> Outcome {
        let is_own = |target: u64| is_in(&self.ranges, target);
        match origin {
            Origin::Addresses(table) if tables.addresses(table).any(|(_, target)| is_own(target)) => {
                Outcome::Stays
            }
            Origin::Distances(Some(table)) => {
                let mut targets = tables.entries(table).peekable();
                let is_empty = targets.peek().is_none();
                match targets.any(is_own) {
                    true => Outcome::Stays,
                    // The table belongs to other functions.
                    false if is_bare && !is_empty => Outcome::Leaves,
                    false => Outcome::Unresolved,
                }
            }
            Origin::Distances(None) if self.is_complete && !self.entries.is_empty() => Outcome::Stays,
            Origin::Distances(None) | Origin::Computed => Outcome::Unresolved,
            Origin::Unclear | Origin::Returned if self.has_base => Outcome::Unresolved,
            // With a frame of its own, the function continues behind the call.
            Origin::Returned if !is_bare => Outcome::Stays,
            Origin::Spilled if self.sums => Outcome::Unresolved,
            Origin::Stored | Origin::Addresses(_) if self.sums_labels => Outcome::Unresolved,
            Origin::Stored | Origin::Addresses(_) | Origin::Unclear | Origin::Spilled | Origin::Returned => {
                let may_be_entry = matches!(origin, Origin::Unclear | Origin::Spilled);
                let has_entries = may_be_entry && !self.entries.is_empty();
                match (self.has_labels || has_entries, is_bare) {
                    (false, true) => Outcome::Leaves,
                    (false, false) => Outcome::Unresolved,
                    (true, true) => Outcome::LeavesOrStays,
                    (true, false) => Outcome::Stays,
                }
            }
        }
    }
}

/// Returns the targets of tables within `ranges`, in order: of the tables that jumps go through,
/// and of tables that may begin at a formed address, with distances from there or from one of the
/// bases.
fn entries(
    tables: &Tables<'_, '_>,
    ranges: &[(u64, u64)],
    jumps: impl Iterator<Item = Origin>,
    formed: &[u64],
    bases: &[u64],
) -> Vec<u64> {
    let is_own = |target: &u64| is_in(ranges, *target);
    let mut found = Vec::new();
    for jump in jumps {
        match jump {
            Origin::Distances(Some(table)) => found.extend(tables.entries(table).filter(is_own)),
            Origin::Addresses(table) => {
                found.extend(tables.addresses(table).map(|(_, target)| target).filter(is_own));
            }
            _ => {}
        }
    }
    for table in formed {
        found.extend(tables.addresses(*table).map(|(_, target)| target).filter(is_own));
        found.extend(tables.distances(*table, *table).filter(is_own));
        tables.distances_within(*table, bases, ranges, &mut found);
    }
    found.sort_unstable();
    found.dedup();
    found
}

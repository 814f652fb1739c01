//! Branches of a file's code and their targets. A site must not overwrite an instruction that is a
//! branch target.
//!
//! All code of a file is decoded once, function by function. The targets of indirect jumps are
//! resolved afterwards (`discover/jumps.rs`, by `tables.rs`), from the addresses that the whole
//! file refers to. Landing pads of exceptions need no care at a function's first bytes: they lie
//! behind calls.

use std::collections::BTreeSet;

use super::addresses;
use super::switches::Indirect;
use crate::elf::plt::ENDBR64;
use crate::elf::pointers::Pointer;

/// Bytes of an `endbr64`.
const ENDBR: u64 = ENDBR64.len() as u64;

/// Branches of a file's code.
#[derive(Clone, Default)]
pub(crate) struct Branches {
    /// Addresses where control may arrive, in order: targets of jumps and calls, and addresses that
    /// are taken.
    pub(super) targets: Vec<u64>,
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
    pub(super) called: Vec<u64>,
    /// Functions that call something, in order.
    pub(super) calling: Vec<u64>,
    /// Addresses of returns that remove arguments from the stack (`ret n`), in order.
    pub argument_pops: Vec<u64>,
    /// Indirect jumps that may lead to any instruction of their function, in order.
    pub unresolved: Vec<u64>,
    /// Computed jumps, each with code whose address its function forms: the jump may lead behind
    /// that address.
    pub computed: Vec<Passed>,
    /// Jumps out of functions that have taken the address of data in their red zone.
    pub red_zones: Vec<Passed>,
    /// Functions whose last instruction continues into the code behind them, in order.
    pub(super) open_ended: Vec<u64>,
}

/// An address that an instruction forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Formed {
    /// Address of the instruction.
    pub at: u64,
    /// The address that it forms.
    pub to: u64,
}

/// A jump out of a function, and the other code to which it may lead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// Address of the jump.
    pub at: u64,
    /// Address of the code.
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

    /// Returns the direct jump that the instruction is.
    pub(crate) fn jump(&self) -> Option<Passed> {
        match self.to {
            To::If(to) | To::Address(to) => Some(Passed { at: self.at, to }),
            _ => None,
        }
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
    pub(super) fn hold_pointer(&self, address: u64, size: u64) -> bool {
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
    pub(super) fn put_in_order(&mut self) {
        self.leavings.sort_by_key(|leaving| leaving.at);
        addresses::put_in_order(&mut self.data);
        addresses::put_in_order(&mut self.called);
    }

    /// Keeps only references to the chosen places: targets, leavings, calls, names of data, and
    /// what jumps pass on.
    pub(crate) fn referring_to(mut self, is_there: impl Fn(u64) -> bool) -> Branches {
        self.leavings
            .retain(|leaving| matches!(leaving.to, To::If(target) | To::Address(target) if is_there(target)));
        for list in [&mut self.targets, &mut self.called, &mut self.data] {
            list.retain(|to| is_there(*to));
        }
        for list in [&mut self.computed, &mut self.red_zones] {
            list.retain(|passed| is_there(passed.to));
        }
        let Branches { targets, leavings, data, called, computed, red_zones, .. } = self;
        Branches { targets, leavings, data, called, computed, red_zones, ..Branches::default() }
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
    pub(super) fn add(&mut self, behind: Branches) {
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
        self.computed.extend(behind.computed);
        self.red_zones.extend(behind.red_zones);
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

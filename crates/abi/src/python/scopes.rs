//! Index of code objects by address: the entries of the table that say what a code object is named.
//!
//! The agent adds the code object of each new entry, and the code objects of the functions that are
//! defined in it. A function's scope is then found without a search of all entries.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// Slots of the index, a power of two.
const SLOTS: usize = 1 << 16;
/// Maximum number of slots that are searched for a code object. The name of a function that finds
/// no slot lacks its scope.
const PROBES: usize = 64;
/// Lowest bit of the relation in a slot. The address, shifted, and the entry's index lie below.
const RELATION: u32 = 62;
/// Bits of the entry's index. They replace the lowest bits of a shifted address, which are 0: an
/// object is aligned to 16 bytes.
const INDEX: u64 = super::FUNCTIONS as u64 - 1;
/// By how many bits an address is shifted.
const SHIFT: u32 = super::FUNCTIONS.ilog2() - 4;

/// Relation of a code object to the function of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The entry is that of the code object, perhaps in the process that this one was forked from.
    Own,
    /// The code object is defined in the module or class of the entry.
    InBody,
    /// The code object is defined in the function of the entry.
    InFunction,
}

/// The index. A slot has an address, a relation, and the index of an entry; 0 if it is empty.
#[derive(Debug)]
#[repr(C)]
pub struct Scopes {
    slots: [AtomicU64; SLOTS],
}

impl Scopes {
    /// Returns an empty index.
    #[cfg(test)]
    pub(super) const fn new() -> Scopes {
        Scopes { slots: [const { AtomicU64::new(0) }; SLOTS] }
    }

    /// Adds a relation of a code object. It is left out if there is no slot for it.
    pub fn add(&self, code: u64, relation: Relation, index: u32) {
        if let Some(key) = key(code) {
            let word = key | (relation as u64) << RELATION | u64::from(index) & INDEX;
            let mut slots = self.probes(key);
            slots.any(|slot| slot.compare_exchange(0, word, AcqRel, Relaxed).is_ok());
        }
    }

    /// Iterates over the relations of a code object, each with the index of the entry.
    pub fn of(&self, code: u64) -> impl Iterator<Item = (Relation, u32)> {
        let key = key(code).unwrap_or_default();
        let words = self.probes(key).map(|slot| slot.load(Acquire)).take_while(|word| *word != 0);
        words.filter_map(move |word| {
            let relation = match word >> RELATION {
                0 => Relation::Own,
                1 => Relation::InBody,
                _ => Relation::InFunction,
            };
            let is_its = key != 0 && word & !(INDEX | 3 << RELATION) == key;
            is_its.then_some((relation, (word & INDEX) as u32))
        })
    }

    fn probes(&self, key: u64) -> impl Iterator<Item = &AtomicU64> {
        let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.ilog2())) as usize;
        (first..first + PROBES).filter_map(|at| self.slots.get(at % SLOTS))
    }
}

/// Returns the bits of a slot that stand for an address, if it has no others.
fn key(code: u64) -> Option<u64> {
    let is_known = code != 0 && code.is_multiple_of(16) && code < 1 << (RELATION - SHIFT);
    is_known.then_some(code << SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    #[test]
    fn relations_are_found_by_the_address_of_the_code_object() {
        let scopes = Box::new(Scopes::new());
        let highest = (1 << 53) - 16;
        scopes.add(0x7f00_1000, Relation::Own, 8191);
        scopes.add(0x7f00_1000, Relation::InFunction, 0);
        scopes.add(0x7f00_1010, Relation::InBody, 7);
        scopes.add(highest, Relation::InBody, 8191);
        let of = |code| scopes.of(code).collect::<Vec<_>>();
        assert_eq!(of(0x7f00_1000), [(Relation::Own, 8191), (Relation::InFunction, 0)]);
        assert_eq!(of(0x7f00_1010), [(Relation::InBody, 7)]);
        assert_eq!(of(highest), [(Relation::InBody, 8191)]);
        assert_eq!(of(0x7f00_1020), []);
    }

    #[test]
    fn addresses_that_no_slot_can_hold_have_no_relations() {
        let scopes = Box::new(Scopes::new());
        for code in [0, 0x1008, 1 << 54] {
            scopes.add(code, Relation::Own, 1);
            assert_eq!(scopes.of(code).count(), 0, "{code:#x}");
        }
    }

    #[test]
    fn a_full_neighbourhood_leaves_relations_out() {
        let scopes = Box::new(Scopes::new());
        for index in 0..2 * PROBES as u32 {
            scopes.add(0x1000, Relation::InBody, index);
        }
        let found: Vec<u32> = scopes.of(0x1000).map(|(_, index)| index).collect();
        assert_eq!(found, (0..PROBES as u32).collect::<Vec<_>>());
    }
}

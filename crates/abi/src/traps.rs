//! Sites that may be breakpoints while they are changed: the agent's SIGTRAP handler resumes behind
//! them.
//!
//! There are two lists of addresses, and one word that says which of them is valid, and how long it
//! is. The controller fills the other list, then stores the word. A handler that looks up an
//! address meanwhile finds one list or the other, even if the controller is killed.
//!
//! Breakpoints that stay have a list of their own, with the target of each. The targets differ
//! between processes, so the agent keeps it in private memory.

use crate::stub;
use core::sync::atomic::{AtomicU64, Ordering::*, fence};

/// Addresses in a list: as many as there can be stubs.
pub const ROOM: usize = stub::REGION / stub::SIZE;
/// Bytes of both lists.
pub const SIZE: usize = 2 * LIST;
/// Bytes of one list.
pub const LIST: usize = ROOM * size_of::<u64>();

/// A list of addresses.
pub type List = [AtomicU64; ROOM];

const SECOND: u64 = 1 << 31;
const COUNT: u64 = SECOND - 1;
/// Maximum number of changes of the list during a lookup that are tolerated.
const TRIES: usize = 1000;

/// A breakpoint that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct KeptTrap {
    /// Address of the breakpoint.
    pub site: u64,
    /// Address where a thread that meets it resumes.
    pub target: u64,
}

/// Returns the address where a thread that meets a breakpoint resumes. `list` is ordered by `site`.
pub fn target(list: &[KeptTrap], site: u64) -> Option<u64> {
    let at = list.partition_point(|kept| kept.site < site);
    list.get(at).filter(|kept| kept.site == site).map(|kept| kept.target)
}

/// Answers of the agent when it is to handle SIGTRAP.
pub mod answer {
    /// No answer yet.
    pub const NONE: u32 = 0;
    /// The agent handles the signal.
    pub const WORKS: u32 = 1;
    /// The program handles or ignores the signal itself.
    pub const HANDLED: u32 = 2;
    /// No memory for the list.
    pub const NO_MEMORY: u32 = 3;
    /// A handler of the program runs with SIGTRAP blocked. The signal's number is added.
    pub const BLOCKED: u32 = 0x100;
}

/// The lists in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Traps<'a> {
    /// The word: number of changes (upper half), valid list, length.
    pub word: &'a AtomicU64,
    /// The two lists.
    pub lists: [&'a List; 2],
}

impl<'a> Traps<'a> {
    fn list(&self, word: u64) -> &'a [AtomicU64] {
        let [first, second] = self.lists;
        let list = if word & SECOND == 0 { first } else { second };
        list.get(..(word & COUNT) as usize).unwrap_or_default()
    }

    /// Returns the addresses of the valid list, ascending.
    pub fn all(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.list(self.word.load(Acquire)).iter().map(|address| address.load(Relaxed))
    }

    /// Whether the valid list contains an address.
    pub fn knows(&self, address: u64) -> bool {
        let mut known = false;
        for _ in 0..TRIES {
            let word = self.word.load(Acquire);
            let list = self.list(word);
            let at = list.partition_point(|other| other.load(Relaxed) < address);
            known = list.get(at).is_some_and(|other| other.load(Relaxed) == address);
            fence(Acquire);
            if self.word.load(Relaxed) == word {
                break;
            }
        }
        known
    }

    /// Returns the index of the list that is not valid.
    pub fn spare(&self) -> usize {
        usize::from(self.word.load(Acquire) & SECOND == 0)
    }

    /// Replaces the valid list by these addresses, ascending. The [spare](Traps::spare) list has
    /// memory for them. False if there is no room.
    pub fn replace(&self, addresses: &[u64]) -> bool {
        let word = self.word.load(Acquire);
        let spare = self.spare();
        if addresses.len() > ROOM {
            return false;
        }
        fence(Release);
        for (place, address) in self.lists[spare].iter().zip(addresses) {
            place.store(*address, Relaxed);
        }
        let which = if spare == 0 { 0 } else { SECOND };
        let turn = (word >> 32).wrapping_add(1) << 32;
        self.word.store(turn | which | addresses.len() as u64, Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    fn list() -> &'static List {
        let words: Vec<AtomicU64> = (0..ROOM).map(|_| AtomicU64::new(0)).collect();
        let list: &'static [AtomicU64] = Box::leak(words.into_boxed_slice());
        list.try_into().unwrap()
    }

    #[test]
    fn only_listed_breakpoints_are_found() {
        let word = AtomicU64::new(0);
        let traps = Traps { word: &word, lists: [list(), list()] };
        assert!(!traps.knows(0) && traps.all().next().is_none());
        for addresses in [&[3, 5, 9][..], &[5], &[1, 5, 6, 7], &[5, 1 << 60]] {
            assert!(traps.replace(addresses));
            assert!(traps.all().eq(addresses.iter().copied()));
            assert!((0..12).chain([1 << 60]).all(|n| traps.knows(n) == addresses.contains(&n)));
        }
        assert!(!traps.replace(&std::vec![1; ROOM + 1]) && traps.knows(5));
    }

    #[test]
    fn a_breakpoint_that_stays_leads_to_its_own_target() {
        let list = [(3, 30), (5, 1 << 50), (1 << 60, 7)].map(|(site, target)| KeptTrap { site, target });
        for length in 0..=list.len() {
            let list = &list[..length];
            let expected = |site| list.iter().find(|kept| kept.site == site).map(|kept| kept.target);
            assert!((0..9).chain([1 << 60, u64::MAX]).all(|site| target(list, site) == expected(site)));
        }
    }

    #[test]
    fn permanent_breakpoints_are_found_while_lists_change() {
        let word = AtomicU64::new(0);
        let traps = Traps { word: &word, lists: [list(), list()] };
        traps.replace(&[500]);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                for n in 0..20_000u64 {
                    let before: Vec<u64> = (0..n % 100).collect();
                    traps.replace(&[&before[..], &[500, 501 + n % 7]].concat());
                }
            });
            while !changing.is_finished() {
                assert!(traps.knows(500) && !traps.knows(499));
            }
        });
    }
}

//! The dynamic linker's locks, as they lie in the memory of a process.
//!
//! glibc keeps two or three adjacent recursive mutexes in its variable `_rtld_global`, at an offset
//! that differs between versions. They are found by their contents: nothing else in the variable
//! looks like a row of recursive mutexes.

use crate::memory::maps::Region;
use crate::memory::text::ProcessText;
use crate::target::Symbols;
use calltap_patch::{Avma, Text};

/// Size of glibc's `struct pthread_mutex_t` on x86-64: lock, count, owner, users, kind; spins and
/// elision; two pointers.
const MUTEX: usize = 40;
const KIND: usize = 16;
/// PTHREAD_MUTEX_RECURSIVE_NP.
const RECURSIVE: u32 = 1;
/// Largest value of the word `lock`: unlocked, locked, or locked with waiters.
const LOCK_STATES: u32 = 2;
const VARIABLE: &str = "_rtld_global";
/// Upper limit of the variable's size, above that of all versions.
const MAX_VARIABLE_SIZE: u64 = 64 << 10;

/// The place of the locks in a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkerLocks {
    /// Address and length of the variable that contains the locks; None in a process without
    /// glibc's dynamic linker.
    variable: Option<(u64, u64)>,
}

impl LinkerLocks {
    /// Finds the variable in a process.
    pub(crate) fn find(pid: u32, regions: &[Region], is_linker: impl Fn(&str) -> bool) -> LinkerLocks {
        let symbols = Symbols::exported(pid, regions, is_linker, |name| name == VARIABLE);
        let variable = symbols.and_then(|symbols| symbols.range(VARIABLE));
        LinkerLocks { variable: variable.map(|(start, end)| (start, (end - start).min(MAX_VARIABLE_SIZE))) }
    }

    /// Whether a thread holds one of the locks. True as well if the variable cannot be read or no
    /// locks are found in it.
    pub(crate) fn are_held(&self, text: &mut ProcessText) -> bool {
        let Some((start, length)) = self.variable else { return false };
        let mut bytes = vec![0; length as usize];
        text.read(Avma(start), &mut bytes).is_err() || are_held(&bytes)
    }
}

/// More objects than a program loads.
const OBJECTS: usize = 1 << 14;

/// Whether this is the file name of glibc's dynamic linker.
pub(crate) fn is_linker(name: &str) -> bool {
    name.starts_with("ld-linux") || name.starts_with("ld-2")
}

/// Returns the mappings of a process without text of which the first namespace has another copy. A
/// library that was opened in a namespace of its own (dlmopen) brings copies of the libraries that
/// it needs, which are unloaded with it.
pub fn first_objects(pid: u32, regions: &[Region]) -> Vec<Region> {
    let base = |region: &Region| region.start.wrapping_sub(region.offset);
    let text: Vec<&Region> =
        regions.iter().filter(|region| region.executable && region.file.1 != 0).collect();
    let is_copied = |region: &Region| {
        let same = |other: &&&Region| (&other.file, other.offset) == (&region.file, region.offset);
        region.executable && text.iter().filter(same).count() > 1
    };
    let mut all = regions.to_vec();
    if !text.iter().any(|region| is_copied(region)) {
        return all;
    }
    let first = first_namespace(pid, regions);
    let is_there = |region: &Region| first.contains(&base(region));
    all.retain(|region| {
        let same = |other: &&Region| (&other.file, other.offset) == (&region.file, region.offset);
        !is_copied(region) || is_there(region) || !text.iter().copied().filter(same).any(is_there)
    });
    all
}

/// Returns the bias of each object of the dynamic linker's first namespace: the objects that it
/// loaded with the program, and later by `dlopen`. glibc's variable begins with their list.
fn first_namespace(pid: u32, regions: &[Region]) -> Vec<u64> {
    /// Offset of `next` in `struct link_map`, behind bias, name and dynamic section.
    const NEXT: u64 = 24;
    let symbols = Symbols::exported(pid, regions, is_linker, |name| name == VARIABLE);
    let Some((start, _)) = symbols.and_then(|symbols| symbols.range(VARIABLE)) else { return Vec::new() };
    let Ok(mut text) = ProcessText::open(pid) else { return Vec::new() };
    let mut word = |at: u64| {
        let mut bytes = [0; 8];
        text.read(Avma(at), &mut bytes).ok().map(|()| u64::from_le_bytes(bytes)).filter(|_| at != 0)
    };
    let (mut found, mut object) = (Vec::new(), word(start).unwrap_or(0));
    while let Some(added) = word(object).filter(|_| found.len() < OBJECTS) {
        found.push(added);
        object = word(object.wrapping_add(NEXT)).unwrap_or(0);
    }
    found
}

fn are_held(bytes: &[u8]) -> bool {
    let locks = locks(bytes);
    locks.is_empty() || locks.iter().any(|[lock, count, owner, _]| [lock, count, owner] != [&0; 3])
}

/// Returns the first four words of each lock in the first row of at least two.
fn locks(bytes: &[u8]) -> Vec<[u32; 4]> {
    let starts = (0..bytes.len()).step_by(8);
    let rows = starts.map(|at| bytes[at..].chunks_exact(MUTEX).map_while(mutex).collect::<Vec<_>>());
    rows.into_iter().find(|row| row.len() >= 2).unwrap_or_default()
}

fn mutex(bytes: &[u8]) -> Option<[u32; 4]> {
    let word = |at: usize| {
        bytes.get(at..at + 4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    };
    let head = [word(0)?, word(4)?, word(8)?, word(12)?];
    let is_one =
        word(KIND)? == RECURSIVE && head[0] <= LOCK_STATES && bytes[KIND + 4..].iter().all(|byte| *byte == 0);
    is_one.then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(head: [u32; 4]) -> Vec<u8> {
        let words = [head[0], head[1], head[2], head[3], RECURSIVE, 0, 0, 0, 0, 0];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Tests memory with some pointers, these locks, and more pointers.
    fn check(heads: &[[u32; 4]], expected: bool) {
        let pointers = [0x7f12_3456_7890_u64, 1, 0, 3].map(u64::to_le_bytes).concat();
        let locks = heads.iter().flat_map(|head| lock(*head));
        let memory: Vec<u8> = pointers.iter().copied().chain(locks).chain(pointers.iter().copied()).collect();
        assert_eq!(are_held(&memory), expected, "{heads:?}");
    }

    #[test]
    fn locks_that_no_thread_holds_are_free() {
        check(&[[0; 4], [0; 4]], false);
        check(&[[0; 4], [0; 4], [0; 4]], false);
    }

    #[test]
    fn lock_is_held_by_its_owner_and_during_hand_over() {
        check(&[[1, 1, 4711, 1], [0; 4]], true);
        check(&[[0; 4], [2, 1, 4711, 1], [0; 4]], true);
        check(&[[1, 0, 0, 0], [0; 4]], true);
    }

    #[test]
    fn unknown_locks_may_be_held() {
        check(&[], true);
        check(&[[0; 4]], true);
        check(&[[7, 0, 0, 0], [0; 4]], true);
    }
}

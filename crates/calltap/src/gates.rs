//! Gates: the only generated code. A gate is `push cell; jmp trampoline`, with both addresses
//! behind it, 32 bytes for each site.
//!
//! The gates of a module lie together, within reach of a 5-byte call from its sites. They are never
//! unmapped, as there is no way to tell that no thread was interrupted in one; none is needed,
//! since a gate uses its cell's contents at the time when it runs.
//!
//! Uses `unsafe` because memory is mapped. It is mapped executable and read-only; [`LocalText`]
//! writes it.
#![allow(unsafe_code)]

use crate::table::Module;
use crate::text::LocalText;
use crate::trampoline;
use calltap_patch::{Avma, PAGE, Text, reaches};
use std::io;
use std::ptr;
use std::sync::atomic::Ordering::*;

const SIZE: u64 = 32;
/// Distance to existing mappings, which may grow.
const MARGIN: u64 = 1 << 20;

/// Returns the address of a site's gate.
pub(crate) fn gate(module: &Module, n: usize) -> Avma {
    Avma(module.gates.load(SeqCst) + n as u64 * SIZE)
}

/// The reason why the gates of a module cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoGates {
    /// No free addresses in reach of the module.
    #[error("no free addresses near its module")]
    NoRange,
    /// The memory of the gates cannot be written.
    #[error("its gate cannot be written: {0}")]
    Unwritable(io::ErrorKind),
}

/// Writes the gates of some disabled sites, given by their numbers in order.
pub(crate) fn write(module: &Module, sites: &[usize], text: &mut LocalText) -> Result<(), NoGates> {
    if module.gates.load(SeqCst) == 0 {
        let length = (module.sites.len() as u64 * SIZE).next_multiple_of(PAGE);
        let start = map_near(module.start, module.end, length);
        module.gates.store(start.ok_or(NoGates::NoRange)?, SeqCst);
    }
    for run in sites.chunk_by(|one, next| one + 1 == *next) {
        let bytes = |n: &usize| gate_bytes(ptr::from_ref(&module.cells[*n]) as u64, trampoline::address());
        let bytes: Vec<u8> = run.iter().flat_map(bytes).collect();
        // A thread that was interrupted in a gate finds the same bytes again. No processor has
        // fetched from a new gate.
        text.write(gate(module, run[0]), &bytes).map_err(NoGates::Unwritable)?;
    }
    Ok(())
}

/// Returns the bytes of a gate: `push [rip + 10]; jmp [rip + 12]`, padding, the two addresses.
fn gate_bytes(cell: u64, trampoline: u64) -> [u8; SIZE as usize] {
    let mut bytes = [0xCC; SIZE as usize];
    bytes[..6].copy_from_slice(&[0xFF, 0x35, 10, 0, 0, 0]);
    bytes[6..12].copy_from_slice(&[0xFF, 0x25, 12, 0, 0, 0]);
    bytes[16..24].copy_from_slice(&cell.to_le_bytes());
    bytes[24..].copy_from_slice(&trampoline.to_le_bytes());
    bytes
}

/// Maps a region in reach of a module: below it if possible, as heaps grow above.
fn map_near(start: u64, end: u64, length: u64) -> Option<u64> {
    let taken = taken().ok()?;
    let near = |at: &u64| {
        [start, end]
            .iter()
            .all(|module| reaches(Avma(*module), Avma(*at)) && reaches(Avma(*module), Avma(at + length)))
    };
    let free = |at: &u64| taken.iter().all(|(from, to)| to + MARGIN <= *at || at + length + MARGIN <= *from);
    let below = taken.iter().rev().filter(|(from, _)| *from <= start);
    let above = taken.iter().filter(|(_, to)| *to >= end);
    /// Distance to keep above a program, for its heap.
    const HEAP_ROOM: u64 = 1 << 30;
    below
        .filter_map(|(from, _)| from.checked_sub(length + MARGIN))
        .chain(above.map(|(_, to)| to + if *to < 1 << 46 { HEAP_ROOM } else { MARGIN }))
        .map(|at| at & !(PAGE - 1))
        .filter(|at| near(at) && free(at))
        .find_map(|at| map(at, length))
}

/// Returns the address ranges of the program's mappings.
fn taken() -> io::Result<Vec<(u64, u64)>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
    };
    Ok(maps.lines().filter_map(range).filter(|(from, _)| *from < 1 << 47).collect())
}

/// Maps memory at an address, if it is free.
fn map(at: u64, length: u64) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping, which replaces none.
    let mapped = unsafe {
        libc::mmap(ptr::without_provenance_mut(at as usize), length as usize, protection, flags, -1, 0)
    };
    if mapped != libc::MAP_FAILED && mapped as u64 != at {
        // SAFETY: just mapped, at another address than requested, by a kernel that does not know
        // the flag.
        unsafe { libc::munmap(mapped, length as usize) };
        return None;
    }
    (mapped != libc::MAP_FAILED).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::gate_bytes;

    #[test]
    fn a_gate_refers_to_its_own_words() {
        let bytes = gate_bytes(0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00);
        let operand =
            |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        assert_eq!((6 + operand(2), 12 + operand(8)), (16, 24));
        assert_eq!(bytes[16..24], 0x1122_3344_5566_7788u64.to_le_bytes());
    }
}

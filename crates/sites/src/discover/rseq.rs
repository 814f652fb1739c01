//! Restartable sequences (rseq): critical sections that the kernel aborts when it preempts a thread
//! in one. The kernel knows a sequence by its addresses, so none of its instructions may be
//! executed out of line.
//!
//! Their descriptors, `struct rseq_cs`, lie in a section of their own, by the convention of the
//! kernel's examples, librseq and tcmalloc.

use crate::elf::image::Image;
use crate::elf::pointers::Pointer;

const SECTION: &[u8] = b"__rseq_cs";
/// Bytes of a descriptor: version and flags; start, length and abort address, 8 bytes each.
const DESCRIPTOR: u64 = 32;
const START: u64 = 8;
const LENGTH: u64 = 16;
const ABORT: u64 = 24;
/// Bytes of the signature in front of an abort handler.
const SIGNATURE: u64 = 4;
/// Maximum number of bytes of a sequence; real ones have some ten instructions.
const MAX_SEQUENCE_LEN: u64 = 4096;
/// Maximum number of descriptors of a file.
const MAX_DESCRIPTORS: u64 = 4096;

/// Addresses in front of which no instruction may be displaced together with the one there: those
/// of the sequences, of their ends, and of the signatures and abort handlers. `pointers`, ordered
/// by where they are stored, are the addresses that are filled in at load time.
pub(crate) fn kept(image: &Image<'_>, pointers: &[Pointer]) -> Vec<u64> {
    let Some(section) = image.section(SECTION) else { return Vec::new() };
    let word = |at: u64| Some(u64::from_le_bytes(image.bytes(at, 8)?.try_into().ok()?));
    let address = |at: u64| match pointers.binary_search_by_key(&at, |pointer| pointer.at) {
        Ok(n) => Some(pointers[n].to),
        Err(_) => word(at),
    };
    let of = |n: u64| {
        let at = section.address.checked_add(n * DESCRIPTOR)?;
        let (start, abort) = (address(at + START)?, address(at + ABORT)?);
        let end = start.checked_add(word(at + LENGTH)?.min(MAX_SEQUENCE_LEN))?;
        Some((start..=end).chain(abort.checked_sub(SIGNATURE)?..=abort))
    };
    (0..(section.size / DESCRIPTOR).min(MAX_DESCRIPTORS)).filter_map(of).flatten().collect()
}

//! Code that a program has generated itself, and that may lead to calltap's.
//!
//! A compiler that generates calls may read the function to be called first: PyPy's follows a jump
//! at its beginning, and calls the place where it leads. While a function is traced, that is
//! calltap's code.

use calltap_process::memory::maps::{self, Region};
use calltap_process::memory::text::ProcessText;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Bytes of a word, and of a relative call or jump behind its first byte.
const WORD: usize = 8;
const DISTANCE: usize = 4;

/// Returns the address of a word or of a call in generated code that leads into one of these
/// ranges. The text of a program may be in no file, too: the jumps at `sites`, which are sorted, are
/// calltap's own.
pub(super) fn leads_into(
    pid: u32,
    text: &mut ProcessText,
    ranges: &[(u64, u64)],
    sites: &[u64],
) -> Option<u64> {
    let regions = maps::read(pid).unwrap_or_default();
    let is_ours =
        |region: &Region| ranges.iter().any(|(start, end)| region.start < *end && *start < region.end);
    regions.iter().filter(|region| may_be_generated(region) && !is_ours(region)).find_map(|region| {
        let mut at = region.start;
        while at < region.end {
            // A word may lie across two pieces.
            let length = (region.end - at).min(PIECE + WORD as u64);
            let pieces = text.read_many(&[(at, length as usize)]);
            if let Some(found) = pieces.get(0).and_then(|code| find(code, at, ranges, sites)) {
                return Some(found);
            }
            at += PIECE;
        }
        None
    })
}

/// Whether a program may have generated the code of a mapping: it is that of no file in a
/// directory, as calltap's code is.
fn may_be_generated(region: &Region) -> bool {
    let path = region.path.to_string_lossy();
    let is_kernels = ["[vdso]", "[vsyscall]", "[vvar"].iter().any(|name| path.starts_with(name));
    let is_in_memory = region.file.1 == 0 || path.starts_with("/memfd:");
    region.executable && is_in_memory && !is_kernels
}

/// Returns the address of a word that is an address in one of the ranges, or of a relative call or
/// jump that leads there, in code that begins at `start`.
fn find(code: &[u8], start: u64, ranges: &[(u64, u64)], sites: &[u64]) -> Option<u64> {
    let lowest = ranges.iter().map(|range| range.0).min()?;
    let span = ranges.iter().map(|range| range.1).max()? - lowest;
    let is_in = |to: u64| {
        to.wrapping_sub(lowest) < span && ranges.iter().any(|(start, end)| (*start..*end).contains(&to))
    };
    let words = code
        .windows(WORD)
        .position(|bytes| bytes.try_into().is_ok_and(|bytes| is_in(u64::from_le_bytes(bytes))));
    let leads = |(n, bytes): (usize, &[u8])| {
        let distance = bytes[1..].try_into().map(i32::from_le_bytes).ok()?;
        let behind = start + (n + bytes.len()) as u64;
        let is_branch = matches!(bytes[0], 0xE8 | 0xE9);
        let leads_in = is_branch && is_in(behind.wrapping_add_signed(distance.into()));
        (leads_in && sites.binary_search(&(start + n as u64)).is_err()).then_some(n)
    };
    let branches = || code.windows(1 + DISTANCE).enumerate().find_map(leads);
    words.or_else(branches).map(|n| start + n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &[u8], expected: Option<u64>) {
        let ranges = [(0x7f00_0000_1000, 0x7f00_0000_2000), (0x7f00_0010_0000, 0x7f00_0010_0040)];
        assert_eq!(find(code, 0x7f00_0001_0000, &ranges, &[0x7f00_0001_0003]), expected, "{code:x?}");
    }

    #[test]
    fn addresses_and_relative_branches_are_found_at_any_offset() {
        check(&[], None);
        check(&[0x90; 64], None);
        // mov r11, 0x7f0000001230; call r11
        check(&[0x90, 0x49, 0xbb, 0x30, 0x12, 0, 0, 0, 0x7f, 0, 0, 0x41, 0xff, 0xd3], Some(0x7f00_0001_0003));
        check(&[0x49, 0xbb, 0x30, 0x22, 0, 0, 0, 0x7f, 0, 0, 0x41, 0xff, 0xd3], None);
        check(&[0x49, 0xbb, 0x3f, 0, 0x10, 0, 0, 0x7f, 0, 0], Some(0x7f00_0001_0002));
        check(&[0x49, 0xbb, 0x40, 0, 0x10, 0, 0, 0x7f, 0, 0], None);
        // call and jmp to 0x7f0000001000.
        for branch in [0xe8, 0xe9] {
            check(&[0x90, branch, 0xfa, 0x0f, 0xff, 0xff], Some(0x7f00_0001_0001));
        }
        check(&[0x90, 0x90, 0x90, 0xe9, 0xf8, 0x0f, 0xff, 0xff], None);
        check(&[0x90, 0xeb, 0xfa, 0x0f, 0xff, 0xff], None);
        check(&[0xe8, 0xfa, 0x0f, 0xff], None);
    }
}

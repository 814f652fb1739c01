//! Reads the memory of a stack, from a stack pointer up.

use crate::memory::faults::Page;
use crate::memory::maps::{Mappings, Region};
use crate::memory::text::ProcessText;
use calltap_abi::PAGE;
use calltap_patch::{Avma, Text};

/// Bytes of a stack read at a time, as most of the range above may not be mapped.
const PIECE: u64 = 1 << 20;

/// Returns the end of the adjacent anonymous writable mappings around or above an address.
pub(super) fn end_of_stack(start: u64, mappings: &Mappings<'_>) -> u64 {
    // The stack may have grown down, or be newer than the mappings that were read.
    let Some(first) = mappings.next(start) else { return u64::MAX };
    let is_more = |end: u64, region: &Region| region.start == end && region.writable && region.file.1 == 0;
    let mut end = first.end;
    while let Some(region) = mappings.next(end).filter(|region| is_more(end, region)) {
        end = region.end;
    }
    end
}

/// Reads the memory between two addresses, up to the first page that cannot be read and is not
/// merely missing. Returns the bytes, and whether that page is in memory, so that the stack may go
/// on there.
pub(super) fn read_up(start: u64, end: u64, text: &mut ProcessText) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut at = start;
    while at < end {
        let next = end.min((at + PIECE) / PIECE * PIECE);
        let from = bytes.len();
        bytes.resize(from + (next - at) as usize, 0);
        if text.read(Avma(at), &mut bytes[from..]).is_err() {
            bytes.truncate(from);
            if let Some(page) = read_pages(at, next, text, &mut bytes) {
                return (bytes, page == Page::Present);
            }
        }
        at = next;
    }
    (bytes, false)
}

/// Appends memory page by page. Returns the state of the first page that cannot be read. Of the
/// states, only [`Page::Present`] may hold a frame.
fn read_pages(mut at: u64, end: u64, text: &mut ProcessText, bytes: &mut Vec<u8>) -> Option<Page> {
    while at < end {
        let next = end.min((at + PAGE) / PAGE * PAGE);
        let from = bytes.len();
        bytes.resize(from + (next - at) as usize, 0);
        if text.read(Avma(at), &mut bytes[from..]).is_err() {
            match text.page(at) {
                // A large frame may leave pages untouched, with frames above them.
                Page::Missing if text.serves_faults() => {}
                page => {
                    bytes.truncate(from);
                    return Some(page);
                }
            }
        }
        at = next;
    }
    None
}

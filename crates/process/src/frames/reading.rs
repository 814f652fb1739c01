//! Reads the memory of a stack, from a stack pointer up, a piece at a time.

use crate::memory::faults::Page;
use crate::memory::maps::{Mappings, Region};
use crate::memory::text::ProcessText;
use calltap_abi::PAGE;
use calltap_patch::{Avma, Text};

/// Maximum number of bytes that are searched above a stack pointer.
pub(super) const MAX_STACK_SEARCH: u64 = 1 << 30;
/// Bytes of a stack read at a time: few enough to stay in the cache until they are searched, and
/// most of the range above may not be mapped.
pub(super) const PIECE: u64 = 128 << 10;

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
/// merely missing.
pub(super) struct Reader {
    /// Address of the next byte.
    pub(super) at: u64,
    /// The reader stops here.
    pub(super) end: u64,
    /// Whether the stack may go on beyond `end`.
    pub(super) is_cut: bool,
}

impl Reader {
    pub(super) fn new(start: u64, end: u64) -> Reader {
        let limit = start.saturating_add(MAX_STACK_SEARCH);
        Reader { at: start, end: end.min(limit), is_cut: end > limit }
    }

    /// Reads the next piece to an index of the buffer. Returns its length, 0 at the end.
    pub(super) fn next(&mut self, text: &mut ProcessText, buffer: &mut Vec<u8>, to: usize) -> usize {
        if self.at >= self.end {
            return 0;
        }
        let next = self.end.min(self.at.saturating_add(PIECE) / PIECE * PIECE);
        let length = (next - self.at) as usize;
        if buffer.len() < to + length {
            buffer.resize(to + length, 0);
        }
        let into = &mut buffer[to..to + length];
        let read = match text.read(Avma(self.at), into) {
            Ok(()) => length,
            Err(_) => self.read_pages(next, text, into),
        };
        self.at += read as u64;
        read
    }

    /// Reads page by page, up to the first page that cannot be read, where the reader then ends:
    /// the stack ends where memory ends, as a false signal frame leads to unmapped memory. Returns
    /// the number of bytes.
    fn read_pages(&mut self, end: u64, text: &mut ProcessText, into: &mut [u8]) -> usize {
        let mut at = self.at;
        while at < end {
            let next = end.min((at + PAGE) / PAGE * PAGE);
            let bytes = &mut into[(at - self.at) as usize..(next - self.at) as usize];
            if text.read(Avma(at), bytes).is_err() {
                match text.page(at) {
                    // A large frame may leave pages untouched, with frames above them.
                    Page::Missing if text.serves_faults() => bytes.fill(0),
                    page => {
                        // Of the states, only this may hold a frame.
                        self.is_cut = page == Page::Present;
                        self.end = at;
                        break;
                    }
                }
            }
            at = next;
        }
        (at - self.at) as usize
    }
}

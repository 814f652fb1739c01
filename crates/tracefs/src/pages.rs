//! `trace_pipe_raw` and `snapshot_raw`: records as pages of the kernel's ring buffer. Reading
//! consumes them.

use crate::ring::{Payload, Record, Ring, SUBBUF};
use crate::stack::Level;
use crate::symbols::Symbols;
use calltap_ringbuffer::{MAX_RECORD_LEN, PAGE_SIZE, SubBuffer, record};

/// An open file.
#[derive(Default, Debug)]
pub(crate) struct Pages {
    /// The part of a consumed page that was not read yet.
    rest: Vec<u8>,
}

impl Pages {
    /// Reads at most `size` bytes; none if there are no records. `full`: a page that is not full is
    /// left in the buffer.
    pub(crate) fn read(
        &mut self,
        ring: &mut Ring,
        symbols: &mut Symbols,
        size: usize,
        full: bool,
    ) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.rest);
        // A read returns whole pages, unless the reader's buffer is smaller than a page.
        while (bytes.is_empty() || bytes.len() + PAGE_SIZE <= size)
            && !ring.is_empty()
            && !(full && ring.bytes() < SUBBUF)
        {
            bytes.extend_from_slice(page(ring, symbols).page());
        }
        self.rest = bytes.split_off(size.min(bytes.len()));
        bytes
    }

    /// Whether all consumed pages were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Consumes as many records as fit into a page.
fn page(ring: &mut Ring, symbols: &mut Symbols) -> SubBuffer {
    let mut page = SubBuffer::new();
    while let Some((lost, record)) = ring.first() {
        if lost > 0 {
            // A page can report missing events only in front of its first event.
            if !page.is_empty() {
                break;
            }
            page.miss(lost);
        }
        let longest = if lost > 0 { MAX_RECORD_LEN } else { PAGE_SIZE };
        if !page.push(record.time, &encode(record, symbols, longest)) {
            break;
        }
        ring.take();
    }
    page
}

/// Encodes a record as [`calltap_ringbuffer::formats`] describes it.
fn encode(of: &Record, symbols: &mut Symbols, longest: usize) -> Vec<u8> {
    let tid = of.tid;
    match &of.payload {
        Payload::Function { site, parent } => {
            record::function(tid, symbols.code(*site), symbols.caller(*parent)).to_vec()
        }
        Payload::Repeats { site, parent, count, last } => {
            let (count, before) = (u16::try_from(*count).unwrap_or(u16::MAX), last.saturating_sub(of.time));
            record::repeats(tid, symbols.code(*site), symbols.caller(*parent), count, before).to_vec()
        }
        Payload::Enter { site, depth } => {
            record::graph_entry(tid, symbols.code(*site), (*depth).into()).to_vec()
        }
        Payload::Exit { site, depth, ns } => {
            // A clock that does not count nanoseconds may have advanced less than the call's
            // duration.
            let returned = of.time.max(*ns);
            let code = symbols.code(*site);
            record::graph_exit(tid, code, (*depth).into(), returned - ns, returned).to_vec()
        }
        Payload::Stack(levels) => {
            let mut code = |level: &Level| match level {
                Level::In(site) => symbols.code(*site),
                Level::Return(address) => symbols.caller(*address),
            };
            record::stack(tid, &levels.iter().map(&mut code).collect::<Vec<u64>>())
        }
        Payload::Mark(text) => {
            // 16 bytes precede the text, and one follows it.
            let cut = (0..=text.len().min(longest - 17)).rev().find(|at| text.is_char_boundary(*at));
            record::print(tid, symbols.marker(), &text[..cut.unwrap_or(0)])
        }
        Payload::RawMark(bytes) => record::raw_data(tid, &bytes[..bytes.len().min(longest - 8)]),
    }
}

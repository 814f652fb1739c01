//! Readers of records as text: `trace` and `snapshot`, which show the records as of opening the
//! file, and `trace_pipe`, whose reads consume the records.

use crate::ring::{Payload, Ring, View};
use crate::symbols::Symbols;
use crate::text::{Format, PrintState};
use std::collections::VecDeque;

/// Number of records of other threads that may lie between an entry and its return for both to make
/// one line.
const AHEAD: usize = 64;
/// Number of bytes of earlier text that are kept for reading them again.
const BEHIND: usize = 1 << 20;

/// A reader that leaves the records in the buffer.
#[derive(Debug)]
pub(crate) struct Reader {
    records: View,
    format: Format,
    header: String,
    at: usize,
    shown: PrintState,
    /// Indexes of returns that were printed with their entries.
    told: VecDeque<usize>,
    /// A part of the text, which begins at offset `start`.
    window: String,
    start: u64,
    /// The end of the last read, within the window.
    reached: usize,
}

impl Reader {
    /// Returns a reader of records, with a header above them.
    pub(crate) fn new(records: View, format: Format, header: String) -> Reader {
        let window = header.clone();
        let (shown, told) = Default::default();
        Reader { records, format, header, at: 0, shown, told, window, start: 0, reached: 0 }
    }

    /// Returns bytes from an offset on.
    pub(crate) fn read(&mut self, symbols: &Symbols, offset: u64, size: usize) -> Vec<u8> {
        if offset < self.start {
            (self.at, self.start) = (0, 0);
            (self.shown, self.told) = Default::default();
            self.window.clone_from(&self.header);
        }
        loop {
            // Text before the offset is made and forgotten.
            self.forget(((offset - self.start) as usize).min(self.window.len()));
            let skip = (offset - self.start) as usize;
            if self.window.len() >= skip + size || self.at == self.records.len() {
                let bytes = &self.window.as_bytes()[skip.min(self.window.len())..];
                let bytes = bytes[..size.min(bytes.len())].to_vec();
                self.reached = skip.min(self.window.len()) + bytes.len();
                return bytes;
            }
            self.fill(symbols, (skip + size).min(self.window.len() + BEHIND));
        }
    }

    /// Makes `size` bytes of text behind the last read.
    pub(crate) fn read_ahead(&mut self, symbols: &Symbols, size: usize) {
        self.forget(self.reached);
        self.fill(symbols, self.reached + size.min(BEHIND));
    }

    /// Removes the text far in front of a position in the window.
    fn forget(&mut self, place: usize) {
        if place > BEHIND {
            let cut =
                (0..=place - BEHIND / 2).rev().find(|at| self.window.is_char_boundary(*at)).unwrap_or(0);
            self.window.drain(..cut);
            self.start += cut as u64;
            self.reached = self.reached.saturating_sub(cut);
        }
    }

    fn fill(&mut self, symbols: &Symbols, length: usize) {
        while self.window.len() < length && self.at < self.records.len() {
            self.line(symbols);
        }
    }

    fn line(&mut self, symbols: &Symbols) {
        let at = self.at;
        self.at += 1;
        if let Some(known) = self.told.iter().position(|told| *told == at) {
            self.told.remove(known);
            return;
        }
        let Some(record) = self.records.get(at) else { return };
        let after = self.records.get(at + 1);
        self.shown.next = after.map(|next| next.time);
        let next = match (&record.payload, after) {
            (Payload::Enter { .. }, Some(next)) if next.tid == record.tid => Some((at + 1, next)),
            (Payload::Enter { .. }, _) => {
                let mut later = (at + 2..=at + AHEAD).map_while(|at| Some((at, self.records.get(at)?)));
                later.find(|(_, next)| next.tid == record.tid)
            }
            _ => None,
        };
        let told =
            self.format.write(&mut self.window, symbols, &mut self.shown, record, next.map(|(_, next)| next));
        if let (true, Some((place, _))) = (told, next) {
            self.told.push_back(place);
        }
    }
}

/// A reader that consumes records.
#[derive(Default, Debug)]
pub(crate) struct Pipe {
    shown: PrintState,
    /// Text of consumed records that was not read yet.
    text: String,
    /// Whether a read has returned any text.
    any: bool,
}

impl Pipe {
    /// Reads at most `size` bytes; `None` if there are none now.
    pub(crate) fn read(
        &mut self,
        ring: &mut Ring,
        format: &Format,
        symbols: &Symbols,
        size: usize,
    ) -> Option<Vec<u8>> {
        while self.text.len() < size
            && let Some((lost, record)) = ring.take()
        {
            if lost > 0 {
                self.text += &format!("CPU:0 [LOST {lost} EVENTS]\n");
            }
            let next = ring.first().map(|(_, next)| next);
            self.shown.next = next.map(|next| next.time);
            let next = next.filter(|next| next.tid == record.tid).cloned();
            if format.write(&mut self.text, symbols, &mut self.shown, &record, next.as_ref()) {
                ring.take();
            }
        }
        if self.text.is_empty() {
            return None;
        }
        let cut = (0..=size.min(self.text.len())).rev().find(|at| self.text.is_char_boundary(*at));
        let rest = self.text.split_off(cut.unwrap_or(0));
        let bytes = std::mem::replace(&mut self.text, rest).into_bytes();
        self.any = true;
        Some(bytes)
    }

    /// Returns the text of all records.
    pub(crate) fn all(&mut self, ring: &mut Ring, format: &Format, symbols: &Symbols) -> String {
        let bytes = self.read(ring, format, symbols, usize::MAX).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// Whether a read has returned any text.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Whether all text of consumed records was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

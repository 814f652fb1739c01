//! Reads a process's text ahead: one system call per site would cost more than everything else in
//! classifying a hundred thousand sites.

use calltap_abi::PAGE;
use calltap_patch::{Avma, Text};
use calltap_process::memory::text::ProcessText;
use rustix::io::Errno;

const AHEAD: usize = 1 << 16;

/// Read-ahead of a process's text, valid while the text is not written.
pub(crate) struct ReadAhead<'a> {
    text: &'a mut ProcessText,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> ReadAhead<'a> {
    /// Creates an empty buffer.
    pub(crate) fn new(text: &'a mut ProcessText) -> ReadAhead<'a> {
        ReadAhead { text, start: 0, bytes: Vec::new() }
    }

    /// Returns `length` bytes at an address.
    pub(crate) fn at(&mut self, at: Avma, length: usize) -> Result<&[u8], Errno> {
        let offset = |start: u64| usize::try_from(at.0.checked_sub(start)?).ok();
        let end = offset(self.start).and_then(|offset| offset.checked_add(length));
        if end.is_none_or(|end| end > self.bytes.len()) {
            // A page is readable as a whole or not at all.
            let pages = (at.0 + length as u64).next_multiple_of(PAGE) - at.0;
            self.fill(at, AHEAD).or_else(|_| self.fill(at, pages as usize))?;
        }
        let offset = (at.0 - self.start) as usize;
        Ok(&self.bytes[offset..offset + length])
    }

    fn fill(&mut self, at: Avma, length: usize) -> Result<(), Errno> {
        self.start = at.0;
        self.bytes.resize(length, 0);
        let read = self.text.read(at, &mut self.bytes);
        // After a failed read, the buffer holds no valid bytes.
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}

//! Reading one site after another: a call for each would cost more than everything else that is done to find out what a hundred thousand are.

use calltap_abi::PAGE;
use calltap_patch::{Avma, Text};
use calltap_process::memory::text::ProcessText;
use rustix::io::Errno;

const AHEAD: usize = 1 << 16;

/// Reads a process's text ahead, while nothing writes it.
pub struct Ahead<'a> {
    text: &'a mut ProcessText,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Ahead<'a> {
    /// Nothing was read yet.
    pub fn new(text: &'a mut ProcessText) -> Ahead<'a> {
        Ahead { text, start: 0, bytes: Vec::new() }
    }

    /// So many bytes.
    pub fn at(&mut self, at: Avma, length: usize) -> Result<&[u8], Errno> {
        let offset = |start: u64| usize::try_from(at.0.checked_sub(start)?).ok();
        let end = offset(self.start).and_then(|offset| offset.checked_add(length));
        if end.is_none_or(|end| end > self.bytes.len()) {
            // Pages are there or not, each as a whole.
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
        // What could not be read is not there.
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}

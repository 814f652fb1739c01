//! Pages of the kernel's buffers, read while the kernel recorded.

use crate::bytes::Bytes;
use crate::compression::Compression;
use crate::error::Error;
use crate::head::{Buffer, CpuPages, Head, Options};
use crate::import::{Named, import_head};
use crate::summary::Summary;
use calltap_ringbuffer::PageLayout;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Pages in a file, in the order in which they were added. As [`Bytes`], the pages of each
/// processor are together.
pub struct Pages {
    file: File,
    page_size: usize,
    /// Indices of each processor's pages in the file.
    places: BTreeMap<u32, Vec<u64>>,
    count: u64,
}

/// The kernel's description of its events and functions.
#[derive(Clone, Copy, Debug)]
pub struct Described<'d> {
    /// Layout of pages.
    pub header_page: &'d str,
    /// Formats of events.
    pub formats: &'d [String],
    /// Symbols in the format of `/proc/kallsyms`.
    pub kallsyms: &'d [u8],
    /// The kernel's name of the clock.
    pub clock: &'d str,
}

impl Pages {
    /// Makes an empty list of pages of `page_size` bytes, stored in an empty file.
    pub fn new(file: File, page_size: usize) -> Pages {
        Pages { file, page_size, places: BTreeMap::new(), count: 0 }
    }

    /// Adds the next page of a processor.
    pub fn push(&mut self, cpu: u32, page: &[u8]) -> io::Result<()> {
        if page.len() != self.page_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.write_all(page)?;
        self.places.entry(cpu).or_default().push(self.count);
        self.count += 1;
        Ok(())
    }

    fn buffer(&self, clock: &str) -> Buffer {
        let mut offset = 0;
        let place = |(cpu, pages): (&u32, &Vec<u64>)| {
            let size = (pages.len() * self.page_size) as u64;
            let place = CpuPages { cpu: *cpu, offset, size, compression: Compression::None };
            offset += size;
            place
        };
        let places = self.places.iter().map(place).collect();
        Buffer { name: String::new(), clock: clock.to_owned(), page_size: self.page_size as u32, places }
    }
}

impl Bytes for Pages {
    fn size(&self) -> io::Result<u64> {
        Ok(self.count * self.page_size as u64)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let size = self.page_size as u64;
        let mut at = at;
        let mut rest = into;
        while !rest.is_empty() {
            let mut place = at / size;
            let mut of_cpus = self.places.values();
            let page = loop {
                let pages = of_cpus.next().ok_or(io::ErrorKind::UnexpectedEof)?;
                match pages.get(place as usize) {
                    Some(page) => break page,
                    None => place -= pages.len() as u64,
                }
            };
            let length = rest.len().min((size - at % size) as usize);
            let (now, then) = rest.split_at_mut(length);
            self.file.read_exact_at(now, page * size + at % size)?;
            at += length as u64;
            rest = then;
        }
        Ok(())
    }
}

/// Writes the trace of the pages to `output`, as [`crate::import()`] does for a file; `named.file`
/// describes them.
pub fn import_pages(
    pages: &Pages,
    described: Described<'_>,
    named: Named<'_>,
    output: &Path,
) -> Result<Summary, Error> {
    let layout = PageLayout::parse(described.header_page);
    let head = Head {
        layout: layout.ok_or(Error::Damaged("no description of its pages"))?,
        formats: described.formats.to_vec(),
        kallsyms: described.kallsyms.to_vec(),
        cmdlines: Vec::new(),
        options: Options::default(),
        buffers: vec![pages.buffer(described.clock)],
    };
    import_head(pages, &head, named, named.file.to_owned(), output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_processor_are_read_together() {
        let mut pages = Pages::new(tempfile::tempfile().unwrap(), 4);
        for (cpu, byte) in [(1, 1), (0, 2), (1, 3), (0, 4), (0, 5)] {
            pages.push(cpu, &[byte; 4]).unwrap();
        }
        let places = pages.buffer("x86-tsc").places;
        let places: Vec<_> = places.iter().map(|place| (place.cpu, place.offset, place.size)).collect();
        assert_eq!(places, [(0, 0, 12), (1, 12, 8)]);
        let mut all = [0; 20];
        pages.read(0, &mut all).unwrap();
        assert_eq!(all, [2, 2, 2, 2, 4, 4, 4, 4, 5, 5, 5, 5, 1, 1, 1, 1, 3, 3, 3, 3]);
        let mut some = [0; 6];
        pages.read(10, &mut some).unwrap();
        assert_eq!(some, [5, 5, 1, 1, 1, 1]);
        assert!(pages.read(16, &mut some).is_err() && pages.push(0, &[0; 3]).is_err());
    }
}

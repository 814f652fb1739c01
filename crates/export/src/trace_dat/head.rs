//! Everything before the pages, in both versions of the file.
//!
//! Version 6 has its parts one after the other. Version 7 has the same parts as sections, located
//! by a list of options.

use crate::options::Version;
use calltap_ringbuffer::{PAGE_SIZE, formats};

/// The contents of the head.
pub(super) struct Head {
    pub(super) kallsyms: String,
    pub(super) cmdlines: String,
    pub(super) clocks: &'static str,
    pub(super) system: String,
    pub(super) writer: String,
    /// Number of pages of each stream.
    pub(super) pages: Vec<u64>,
}

mod option {
    pub(super) const DONE: u16 = 0;
    pub(super) const BUFFER: u16 = 3;
    pub(super) const CLOCK: u16 = 4;
    pub(super) const SYSTEM: u16 = 5;
    pub(super) const STREAMS: u16 = 8;
    pub(super) const VERSION: u16 = 9;
    pub(super) const STRINGS: u16 = 15;
    pub(super) const HEADER_INFO: u16 = 16;
    pub(super) const FTRACE_EVENTS: u16 = 17;
    pub(super) const EVENT_FORMATS: u16 = 18;
    pub(super) const KALLSYMS: u16 = 19;
    pub(super) const PRINTK: u16 = 20;
    pub(super) const CMDLINES: u16 = 21;
}

/// Size of a section's header: option, flags, name, size.
const SECTION: usize = 16;

impl Head {
    /// Returns the bytes up to the first page.
    pub(super) fn bytes(&self, version: Version) -> Vec<u8> {
        let mut file = b"\x17\x08\x44tracing".to_vec();
        file.extend_from_slice(if version == Version::V6 { b"6\0" } else { b"7\0" });
        // Little-endian, with longs of 8 bytes.
        file.extend_from_slice(&[0, 8]);
        number(&mut file, PAGE_SIZE as u32);
        match version {
            Version::V6 => self.parts(&mut file),
            Version::V7 => self.sections(&mut file),
        }
        file.resize(file.len().next_multiple_of(PAGE_SIZE), 0);
        file
    }

    fn parts(&self, file: &mut Vec<u8>) {
        for (_, part) in self.metadata() {
            file.extend_from_slice(&part);
        }
        number(file, self.pages.len() as u32);
        file.extend_from_slice(b"options  \0");
        for (id, value) in self.options() {
            add_option(file, id, &value);
        }
        file.extend_from_slice(&option::DONE.to_le_bytes());
        file.extend_from_slice(b"flyrecord\0");
        // The clocks are repeated after the table.
        let clocks = sized(self.clocks);
        let table = 2 * size_of::<u64>() * self.pages.len();
        let mut data = (file.len() + table + clocks.len()).next_multiple_of(PAGE_SIZE) as u64;
        for (offset, size) in self.places(&mut data) {
            number(file, offset);
            number(file, size);
        }
        file.extend_from_slice(&clocks);
    }

    fn sections(&self, file: &mut Vec<u8>) {
        file.extend_from_slice(b"none\0\0");
        let first = file.len();
        number(file, 0_u64);
        let mut options = Vec::new();
        section(file, option::STRINGS, b"\0");
        for (id, part) in self.metadata() {
            add_option(&mut options, id, &(file.len() as u64).to_le_bytes());
            section(file, id, &part);
        }
        for (id, value) in self.options() {
            add_option(&mut options, id, &value);
        }
        // KernelShark reads this option before it looks at the buffer.
        add_option(&mut options, option::STREAMS, &(self.pages.len() as u32).to_le_bytes());
        let start = file.len() as u64;
        file[first..first + 8].copy_from_slice(&start.to_le_bytes());
        // The pages are a section too. Its position depends on the size of the option that locates
        // it, not on the option's value.
        let rest = |buffer: &[u8]| {
            let mut options = options.clone();
            add_option(&mut options, option::BUFFER, buffer);
            add_option(&mut options, option::DONE, &0_u64.to_le_bytes());
            options
        };
        let size = rest(&self.buffer(0, 0)).len();
        let buffer = file.len() + SECTION + size;
        let data = (buffer + SECTION).next_multiple_of(PAGE_SIZE) as u64;
        section(file, option::DONE, &rest(&self.buffer(buffer as u64, data)));
        let pages: u64 = self.pages.iter().sum();
        let size = data - (buffer + SECTION) as u64 + pages * PAGE_SIZE as u64;
        section_header(file, option::BUFFER, size);
    }

    /// Returns the option for the only buffer, with its streams.
    fn buffer(&self, offset: u64, mut data: u64) -> Vec<u8> {
        let clock = self.clocks.split(['[', ']']).nth(1).unwrap_or_default();
        let mut buffer = offset.to_le_bytes().to_vec();
        buffer.push(0);
        buffer.extend_from_slice(clock.as_bytes());
        buffer.push(0);
        number(&mut buffer, PAGE_SIZE as u32);
        number(&mut buffer, self.pages.len() as u32);
        for (stream, (offset, size)) in (0_u32..).zip(self.places(&mut data)) {
            number(&mut buffer, stream);
            number(&mut buffer, offset);
            number(&mut buffer, size);
        }
        buffer
    }

    /// Returns offset and size of each stream.
    fn places<'a>(&'a self, next: &'a mut u64) -> impl Iterator<Item = (u64, u64)> + 'a {
        self.pages.iter().map(|pages| {
            let (offset, size) = (*next, pages * PAGE_SIZE as u64);
            *next += size;
            (offset, size)
        })
    }

    fn options(&self) -> [(u16, Vec<u8>); 3] {
        let text = |text: &str| [text.as_bytes(), b"\0"].concat();
        [
            (option::CLOCK, text(self.clocks)),
            (option::SYSTEM, text(&self.system)),
            (option::VERSION, text(&self.writer)),
        ]
    }

    /// Returns the parts that both versions have in the same form and order.
    fn metadata(&self) -> [(u16, Vec<u8>); 6] {
        let mut header = b"header_page\0".to_vec();
        header.extend_from_slice(&sized(formats::HEADER_PAGE));
        header.extend_from_slice(b"header_event\0");
        header.extend_from_slice(&sized(formats::HEADER_EVENT));
        let mut events = (formats::EVENTS.len() as u32).to_le_bytes().to_vec();
        for (_, text) in formats::EVENTS {
            events.extend_from_slice(&sized(text));
        }
        let mut sched = 1_u32.to_le_bytes().to_vec();
        sched.extend_from_slice(b"sched\0");
        sched.extend_from_slice(&(formats::SCHED.len() as u32).to_le_bytes());
        for (_, text) in formats::SCHED {
            sched.extend_from_slice(&sized(text));
        }
        let mut symbols = (self.kallsyms.len() as u32).to_le_bytes().to_vec();
        symbols.extend_from_slice(self.kallsyms.as_bytes());
        [
            (option::HEADER_INFO, header),
            (option::FTRACE_EVENTS, events),
            (option::EVENT_FORMATS, sched),
            (option::KALLSYMS, symbols),
            // There are no formats of printk.
            (option::PRINTK, 0_u32.to_le_bytes().to_vec()),
            (option::CMDLINES, sized(&self.cmdlines)),
        ]
    }
}

/// An integer field of the file.
trait Number {
    fn add(self, file: &mut Vec<u8>);
}

impl Number for u32 {
    fn add(self, file: &mut Vec<u8>) {
        file.extend_from_slice(&self.to_le_bytes());
    }
}

impl Number for u64 {
    fn add(self, file: &mut Vec<u8>) {
        file.extend_from_slice(&self.to_le_bytes());
    }
}

fn number(file: &mut Vec<u8>, number: impl Number) {
    number.add(file);
}

fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn add_option(options: &mut Vec<u8>, id: u16, value: &[u8]) {
    options.extend_from_slice(&id.to_le_bytes());
    number(options, value.len() as u32);
    options.extend_from_slice(value);
}

fn section(file: &mut Vec<u8>, id: u16, content: &[u8]) {
    section_header(file, id, content.len() as u64);
    file.extend_from_slice(content);
}

fn section_header(file: &mut Vec<u8>, id: u16, size: u64) {
    file.extend_from_slice(&id.to_le_bytes());
    // No compression, and the first string as name, which is empty.
    file.extend_from_slice(&[0; 6]);
    number(file, size);
}
